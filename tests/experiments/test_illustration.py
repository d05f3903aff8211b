"""Figure 5: the states belong to the words they are said to belong to."""

import math
from dataclasses import replace

import pytest
import torch
from invented import Untrained, claims, evidence, measured, verdicts

from lohe import sphere
from lohe.experiments.reported import published
from lohe.experiments.setting import Setting
from lohe.experiments.studies import illustration
from lohe.experiments.studies.illustration import PROMPT, Continuation, next_word, phase
from lohe.tasks.language import BOS, EOS, PAD, UNK
from lohe.viz.style import drawing

SMOKE = Setting("smoke")
ITEM = illustration.ITEMS["figure5"]
KNOWN = "the dogs near the bird run ."


@pytest.fixture
def bench():
    return Untrained()


def take(bench, prompt=KNOWN, reading="as published"):
    return Continuation(illustration.run(SMOKE, reading), prompt).take(bench)


def test_the_prompt_is_the_papers():
    assert published("figure5")["prompt"] == PROMPT
    assert published("figure5")["word"] == illustration.WORD


def test_some_words_never_come():
    logits = torch.tensor([9.0, 9.0, 1.0, 9.0, 1.0, 1.0 + math.log(2)])
    chances = next_word(logits)
    assert chances[[PAD, BOS, UNK]].tolist() == [0, 0, 0]
    torch.testing.assert_close(chances[[EOS, 4, 5]], torch.tensor([0.25, 0.25, 0.5]))


def test_each_state_belongs_to_its_word(bench):
    """In a causal model token k's state is the last one of the sentence that ends with it."""
    whole = take(bench).curve[1:]
    words = KNOWN.rstrip(" .").split()
    for k in range(len(words)):
        start = take(bench, " ".join(words[: k + 1])).curve[1:]
        for short, long in zip(start, whole, strict=True):
            assert short["states"][-1] == pytest.approx(long["states"][k + 1], abs=1e-3)
            assert short["anchors"] == long["anchors"][: k + 2]


def test_paths_end_where_the_last_token_settles(bench):
    for head in take(bench).curve[1:]:
        for path in head["paths"]:
            assert math.cos(path[-1] - head["states"][-1]) > 0.95
        # the drive is the sum of the anchors, weighted by the couplings
        x, y = (
            sum(
                w * r * f(a)
                for w, r, a in zip(head["couplings"], head["lengths"], head["anchors"], strict=True)
            )
            for f in (math.cos, math.sin)
        )
        assert math.hypot(x, y) == pytest.approx(head["drive"], rel=1e-3)
        assert math.atan2(y, x) == pytest.approx(head["states"][-1], abs=1e-3)


def test_paths_follow_the_law_of_the_flow(bench):
    # tan(θ/2) falls by e in every e-fold of ‖h‖t; angles are kept with five digits
    for head in take(bench).curve[1:]:
        paths = torch.tensor(head["paths"], dtype=torch.float64) - head["states"][-1]
        distance = torch.tan(paths / 2).abs()
        farthest = distance[distance[:, 0].argmax(), [0, 10]].log()
        e_folds = 10 * illustration.E_FOLDS / (illustration.STEPS - 1)
        assert farthest.diff().item() == pytest.approx(-e_folds, rel=1e-2)


def test_attention_leaves_the_beginning_out(bench):
    attention = torch.tensor(take(bench).curve[0]["attention"])
    assert attention.shape == (6, 6)
    assert torch.equal(attention, attention.tril())
    assert (attention.sum(dim=-1) < 1).all()  # the rest went to the beginning


def test_words_of_another_vocabulary_are_unknown(bench):
    found = take(bench, PROMPT)
    assert found.result["unknown"] == 8  # all but "was"
    assert found.curve[0]["words"].count("<unk>") == 8
    assert math.isnan(found.result["of_word"])
    assert found.curve[0]["probabilities"][0] == pytest.approx(
        found.result["probability"], rel=1e-4
    )


def test_phase():
    angles = torch.linspace(-3, 3, 7)
    z = sphere.normalize(torch.stack([angles.cos(), angles.sin()], dim=-1))
    torch.testing.assert_close(phase(z), angles)


def recorded(bench, **changes):
    records = []
    for measure in illustration.measures(SMOKE):
        found = measure.take(bench)
        full = replace(measure, run=illustration.run(Setting(), reading_of(measure)))
        first = found.curve[0] | changes
        records.append(measured(full, found.result, [first, *found.curve[1:]]))
    return evidence(records)


def reading_of(measure):
    return "as published" if measure.run.model.attention.anchors == "free" else "as defined"


def test_the_claim_is_the_word(bench):
    other = recorded(bench)
    assert set(claims(ITEM.lines(other)).values()) == {False}
    right = recorded(bench, next=["named", "who"], probabilities=[0.5, 0.1])
    assert set(claims(ITEM.lines(right)).values()) == {True}
    assert verdicts(ITEM.lines(right)) == {"not comparable"}


@pytest.mark.parametrize("there", [True, False])
def test_table_and_figure(bench, there):
    found = recorded(bench) if there else evidence()
    assert len(illustration.table(found).rows) == (3 if there else 1)
    with drawing():
        figure = illustration.figure_5(found)
        figure.canvas.draw()
    heads = [ax for ax in figure.axes if ax.get_title().startswith("head")]
    assert len(heads) == (4 if there else 0)
