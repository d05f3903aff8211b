"""The command `lohe`: what it prints, in words and in JSON, and how it refuses."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import lohe
from commands import lohe as run
from lohe import cli, doctor


def test_version():
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"lohe {lohe.__version__}\n"


@pytest.mark.parametrize("command", [c.name for c in cli.app.registered_commands])
def test_every_command_has_help_with_examples(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Examples:\n    lohe {command}" in result.output
    assert max(len(line) for line in result.output.splitlines()) <= 80


def test_cost_prints_the_tables_with_the_papers_numbers_beside():
    result = run("cost")
    assert result.exit_code == 0
    for title in ("Table 7.", "Table 10.", "Table 11.", "Oscillators:"):
        assert title in result.output
    assert "57,526    963  395,776   57,526   963 395,776 agrees" in result.output
    assert result.output.count("agrees") == 20
    assert "DIFFERS" not in result.output
    assert "4 x 128 x 7 = 3,584" in result.output
    assert max(len(line) for line in result.output.splitlines()) <= 80
    assert "\x1b" not in result.output  # no colours in a pipe


def test_cost_as_json():
    paper = json.loads(run("cost", "--json").output)
    assert len(paper["layers"]) == 6
    kws = paper["layers"][0]
    assert (kws["task"], kws["coupling"], kws["operations"]["all_digital"]) == (
        "KWS",
        "relu",
        33908,
    )
    assert [kws["oscillators"], len(paper["table7"]), len(paper["table10"])] == [98, 5, 5]
    assert all(row["agrees"] and row["ours"] == row["paper"] for row in paper["table11"])


def test_cost_of_one_layer():
    layer = (
        "--tokens",
        "128",
        "--heads",
        "4",
        "--d-osc",
        "8",
        "--coupling",
        "softplus",
        "--causal",
    )
    assert "932,352" in run("cost", *layer).output
    counts = json.loads(run("cost", *layer, "--json").output)
    assert counts["operations"]["all_digital"] == 932_352
    assert counts["oscillators"] == 3_584
    assert counts["reduction"]["equilibration_and_readout_physical"] == 1


def test_cost_defaults_to_one_head_on_the_circle():
    counts = json.loads(run("cost", "--tokens", "9", "--json").output)
    assert (counts["heads"], counts["d_osc"], counts["coupling"]) == (1, 2, "relu")
    assert counts["operations"]["softmax"] == 963


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "0"], "tokens must be at least 1, got 0"),
        (["--tokens", "9", "--heads", "0"], "heads must be at least 1, got 0"),
        (["--tokens", "9", "--d-osc", "1"], "d_osc must be at least 2, got 1"),
        (["--tokens", "9", "--coupling", "tanh"], "one of relu, softplus, elu, exp, got 'tanh'"),
        (["--heads", "2"], "add --tokens"),
        (["--causal"], "add --tokens"),
        (["--tokens", "many"], "--tokens"),
    ],
)
def test_bad_values_get_one_line_and_exit_code_2(arguments, message):
    result = run("cost", *arguments)
    assert result.exit_code == 2
    [error] = [line for line in result.output.splitlines() if line.startswith("Error:")]
    assert message in error
    assert "Traceback" not in result.output


def test_as_a_module_in_a_process_of_its_own():
    command = [sys.executable, "-m", "lohe", "cost", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(result.stdout) == json.loads(run("cost", "--json").output)


def test_demo_hands_its_folder_over(monkeypatch, tmp_path):
    seen = []
    demo = ModuleType("lohe.demo")
    main = lambda out, quick: seen.append((out, quick))  # noqa: E731
    monkeypatch.setattr(demo, "main", main, raising=False)
    monkeypatch.setitem(sys.modules, "lohe.demo", demo)
    assert run("demo").exit_code == 0
    assert run("demo", "--quick", "--out", str(tmp_path)).exit_code == 0
    assert seen == [(Path("demo"), False), (tmp_path, True)]


def test_demo_refuses_a_file(tmp_path):
    (tmp_path / "taken").touch()
    result = run("demo", "--out", str(tmp_path / "taken"))
    assert result.exit_code == 2
    assert "is a file" in result.output


def test_doctor_finds_this_machine_fit():
    result = run("doctor")
    assert result.exit_code == 0, result.output
    assert "lohe works here." in result.output
    for name in (lohe.__version__, torch.__version__, "reference on cpu", "chunked on cpu"):
        assert name in result.output


def test_doctor_as_json():
    report = json.loads(run("doctor", "--json").output)
    assert report["healthy"]
    assert report["versions"]["lohe"] == lohe.__version__
    by_name = {finding["name"]: finding for finding in report["backends"]}
    assert by_name["reference on cpu"]["status"] == by_name["chunked on cpu"]["status"] == "ok"
    # the kernels may be absent, never wrong; where they are absent, the reason is given
    assert by_name["triton on cpu"]["status"] in ("ok", "absent")
    assert by_name["triton on cpu"]["detail"]


@pytest.mark.parametrize("wrong", [torch.nan, 1e-3])
def test_doctor_exits_with_1_when_a_backend_is_wrong(monkeypatch, wrong):
    right = lohe.oscillator_attention

    def broken(*args, backend, **kwargs):
        return right(*args, backend="reference", **kwargs) + (wrong if backend == "chunked" else 0)

    monkeypatch.setattr(lohe, "oscillator_attention", broken)
    result = run("doctor")
    assert result.exit_code == 1
    assert "FAILED" in result.output
    assert result.output.count("wrong by") == 1
    assert json.loads(run("doctor", "--json").output)["healthy"] is False


def test_doctor_tells_a_backend_that_declines_from_one_that_breaks(monkeypatch):
    right = lohe.oscillator_attention

    def declining(*args, backend, **kwargs):
        if backend != "reference" or args[0].dtype == torch.float32:
            raise ValueError(f"{backend} needs another machine")
        return right(*args, backend=backend, **kwargs)

    monkeypatch.setattr(lohe, "oscillator_attention", declining)
    assert doctor.self_test("triton", "cpu").detail == "needs a CUDA device"
    assert doctor.self_test("triton", "meta").status == "absent"
    assert doctor.self_test("triton", "meta").detail == "triton needs another machine"
    assert doctor.self_test("chunked", "cpu").status == "failed"


def test_doctor_names_what_is_missing_and_the_command_that_fixes_it(monkeypatch):
    installed = doctor.version
    monkeypatch.setattr(doctor, "version", lambda p: None if p == "torchode" else installed(p))
    result = run("doctor")
    assert result.exit_code == 0
    assert '\n  pip install "lohe[ode]"\n' in result.output


def test_doctor_describes_a_gpu(monkeypatch):
    gpu = SimpleNamespace(name="Big GPU", total_memory=80 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: gpu)
    cuda = next(finding for finding in doctor.devices() if finding.name == "cuda:0")
    assert (cuda.status, cuda.detail) == ("ok", "Big GPU, 80 GiB, capability 9.0")


def test_doctor_notices_a_driver_that_torch_cannot_use(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    cuda = next(finding for finding in doctor.devices() if finding.name == "cuda")
    assert (cuda.status, cuda.fix) == ("absent", "pip install --force-reinstall torch")


def test_the_data_that_is_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("LOHE_DATA", str(tmp_path))
    assert doctor.data().status == "absent"
    assert doctor.data().fix == "lohe data fetch wikitext2"
    there = SimpleNamespace(source=SimpleNamespace(name="x"), state="complete")
    monkeypatch.setattr(doctor, "list_corpora", lambda: [there])
    assert doctor.data().detail.endswith(": x")


def test_ctrl_c_while_it_imports_ends_it_quietly(tmp_path):
    """Also where whoever imports would catch an exception."""
    wait = "try:\n    time.sleep(60)\nexcept BaseException:\n    pass\n"
    (tmp_path / "typer.py").write_text(f"import time\nprint('importing', flush=True)\n{wait}")
    path = os.pathsep.join(map(str, (tmp_path, Path(cli.__file__).parents[1])))
    running = subprocess.Popen(
        [sys.executable, "-m", "lohe", "doctor"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "importing\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=30) == ("", "")
    assert running.returncode == 130


def test_public_names_are_there_and_torch_is_not_until_one_is_used():
    code = (
        "import sys, lohe; assert 'torch' not in sys.modules; "
        "from lohe import *; assert all(hasattr(lohe, name) for name in dir(lohe)); "
        "assert oscillator_attention is lohe.oscillator_attention; assert not hasattr(lohe, 'x')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_screen_without_the_characters_shows_question_marks(tmp_path):
    """As in a C locale of old: that is no error of the command."""
    env = os.environ | {
        "PYTHONIOENCODING": "ascii",
        "PYTHONPATH": str(Path(cli.__file__).parents[1]),
    }
    command = [sys.executable, "-m", "lohe", "show", "table2", "--store", str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b" ? " in done.stdout  # of 91.04 ± 8.32


@pytest.mark.parametrize("command", ["cost", "run table2 --scale smoke --seeds 0 --store {}/store"])
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_is_no_error(command, closed, tmp_path):
    """As cron and daemons have it: the work is done all the same."""
    env = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])}
    line = f"{sys.executable} -m lohe {command.format(tmp_path)} {closed}"
    done = subprocess.run(line, shell=True, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("store/*.json"))) == (0 if command == "cost" else 5)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full: of Linux")
@pytest.mark.parametrize("command", ["cost", "cost --json", "data list"])
def test_what_cannot_be_printed_is_said_in_one_line(command):
    env = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])}
    line = f"{sys.executable} -m lohe {command} > /dev/full"
    done = subprocess.run(line, shell=True, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "Error: [Errno 28] No space left on device\n"
