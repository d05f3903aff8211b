"""The drives of a model: those that its oscillators settle by, without the padding."""

import pytest
import torch
from invented import SMOKE, Untrained

from lohe import sphere
from lohe.experiments.studies.settle.drives import (
    AS_DEFINED,
    AS_PUBLISHED,
    COHORTS,
    drives,
    drives_of,
)
from lohe.models import Oscillator, attention_layers, attention_weights
from lohe.tasks.language import PAD


@pytest.mark.parametrize("cohort", [AS_PUBLISHED, AS_DEFINED], ids=lambda c: c.reading)
def test_the_attention_follows_from_the_drives(cohort):
    run, bench = cohort.run(SMOKE, 8), Untrained()
    model, tokens = bench.model(run), bench.data(run).valid.take(slice(2)).inputs["tokens"]
    with torch.no_grad():
        expected = attention_weights(model, tokens=tokens)
    for layer, h, weights in zip(
        attention_layers(model), drives_of(model, tokens=tokens), expected, strict=True
    ):
        anchors = layer.anchors[:, : tokens.shape[1]].detach()
        anchors = sphere.normalize(anchors) if cohort == AS_DEFINED else anchors
        similarity = 1 + torch.einsum("bhid,hjd->bhij", sphere.normalize(h), anchors)
        read = similarity.clamp(min=0).tril()
        torch.testing.assert_close(read / read.sum(dim=-1, keepdim=True), weights)


def test_looking_leaves_the_model_as_it_was():
    run, bench = AS_PUBLISHED.run(SMOKE, 2), Untrained()
    model = bench.model(run)
    before = [layer.settle for layer in attention_layers(model)]
    drives_of(model, **bench.data(run).valid.take(slice(1)).inputs)
    assert [layer.settle for layer in attention_layers(model)] == before


def test_padding_has_no_oscillators():
    run = COHORTS[-1].run(SMOKE, 2)
    found = drives(Untrained(), run, examples=3)
    tokens = Untrained().data(run).valid.take(slice(3)).inputs["tokens"]
    words = int((tokens != PAD).sum())
    assert words < tokens.numel()
    assert [h.shape for h in found.layers] == [(3, 4, tokens.shape[1], 2)] * 2
    assert found.oscillators(-1).shape == (4 * words, 2)
    assert found.oscillators(0).dtype == torch.float64


def test_clips_have_none_to_leave_out():
    run = SMOKE.keyword_spotting("ten whistles", Oscillator())
    assert drives(Untrained(), run, examples=2).oscillators(0).shape == (2 * 2 * 49, 2)


def test_cohorts_are_the_readings():
    runs = {(c.corpus, c.reading): c.run(SMOKE, 8) for c in COHORTS}
    assert runs["wikitext2", "as published"] == SMOKE.wikitext2(Oscillator(8, anchors="free"), 0)
    assert runs["wikitext2", "as defined"] == SMOKE.wikitext2(Oscillator(8), 0)
    assert runs["tinystories", "as published"] == SMOKE.tinystories(
        Oscillator(8, anchors="free"), 0
    )
