"""`lohe bench`: what it prints, writes and draws, how it refuses, and when it fails."""

import json

import pytest

from commands import lohe
from lohe.bench import attention, rows
from lohe.bench.sets import SETS

TINY = ("--tokens", "24,40", "--seconds", "0", "--mechanism", "relu")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("lohe.bench.sets.FEW_IN_ALL", 80)


def test_from_the_clock_to_the_file_and_the_figure(tmp_path):
    path, picture = tmp_path / "a.jsonl", tmp_path / "a.png"
    result = lohe(
        "bench", *TINY, "--device", "cpu", "--json", path, "--figure", picture, "--seed", 7
    )
    assert result.exit_code == 0, result.output
    assert "2 x 40 tokens, 8 heads x 64, bidirectional, float32" in result.output
    assert result.output.count("cudnn             left out") == 1  # said once
    assert "forward, fastest rival" in result.output
    header, found = rows.read(path)
    assert (header["seed"], header["device"], header["set"]) == (7, "cpu", "quick")
    assert {"date", "torch", "triton", "driver", "cores", "threads"} <= header.keys()
    assert len([r for r in found if r.status == "timed"]) == 2 * 2 * 2 * 3
    assert picture.stat().st_size > 10_000
    again = lohe("bench", "--read", path, "--figure", tmp_path / "b.png")
    assert again.exit_code == 0
    assert (tmp_path / "b.png").read_bytes() == picture.read_bytes()
    assert (
        again.output.splitlines()[:5]
        == result.output.splitlines()[-len(again.output.splitlines()) :][:5]
    )


def test_sizes_of_my_own():
    result = lohe("bench", *TINY, "--device", "cpu", "--batch", 3, "--heads", 2, "--width", 24)
    assert result.exit_code == 0, result.output
    assert "3 x 40 tokens, 2 heads x 24, bidirectional, float32" in result.output
    result = lohe("bench", "--set", "step", *TINY, "--device", "cpu", "--batch", 1, "--width", 8)
    assert result.exit_code == 0, result.output
    assert "1 x 24 tokens, 12 heads x 8, causal, float32" in result.output
    assert result.output.count("flex              left out: not timed in the set step") == 1


def test_wrong_numbers_are_an_error(monkeypatch, tmp_path):
    right = attention.oscillator_attention
    monkeypatch.setattr(attention, "oscillator_attention", lambda *a, **k: 1.1 * right(*a, **k))
    result = lohe("bench", *TINY, "--json", tmp_path / "a.jsonl")
    assert result.exit_code == 1
    assert "relu              wrong: relative error " in result.output
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()[1:]]
    assert {r["status"] for r in found if r["kind"] == "ours"} == {"wrong"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "fast"), "set='fast' is not known"),
        (("--dtype", "int8"), "dtype='int8' is not known"),
        (("--backend", "cuda"), "backend='cuda' is not known"),
        (("--device", "cpu", "--backend", "triton"), "needs a CUDA device"),
        (("--mechanism", "tanh"), "mechanism='tanh' is not known"),
        (("--tokens", "1k"), "write lengths of at least 2 as 1024,4096"),
        (("--device", "tpu"), "device='tpu' is not here"),
        (("--seconds", "nan"), "seconds=nan: give a time from 0 on"),
        (("--seconds", "-1"), "seconds=-1.0: give a time from 0 on"),
        (("--seed", str(2**64)), "give one that fits into 64 bits"),
        (("--tokens", str(10**12), "--device", "cpu"), "do not fit into the memory of cpu"),
    ],
)
def test_refusals_name_the_choices(arguments, said):
    result = lohe("bench", *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', "no json"])
def test_another_file_is_named(tmp_path, content):
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    result = lohe("bench", "--read", path)
    assert result.exit_code == 2
    assert "other.jsonl" in result.output


def test_a_figure_that_cannot_be_drawn_is_said_before_the_clock_starts():
    result = lohe("bench", "--figure", "x.gif")
    assert result.exit_code == 2
    assert ".png, .svg, .pdf" in result.output


@pytest.mark.parametrize("json", [False, True])
def test_stopped_only_a_file_that_was_asked_for_is_named(monkeypatch, tmp_path, json):
    def stop(setup, choice):
        raise KeyboardInterrupt

    monkeypatch.setitem(SETS, "quick", stop)
    result = lohe("bench", *TINY, *(["--json", tmp_path / "a.jsonl"] if json else []))
    assert result.exit_code == 130
    assert ("a.jsonl" in result.stderr) == json
    assert ("--json" in result.stderr) == (not json)
