"""Looking at a layer does not change it, and what is seen is what Eqs. 3 and 4 say."""

import pytest
import torch
from invented import loaded

from lohe import sphere
from lohe.experiments.studies.robust.observed import observe, real_tokens
from lohe.models import Agreement, LanguageModel, Oscillator, attention_layers
from lohe.tasks import SVA, GeneratedClips, GeneratedText


@pytest.fixture(scope="module")
def text():
    return GeneratedText(examples=4).load()


@pytest.mark.parametrize("anchors", ["free", "sphere"])
def test_what_is_seen_is_the_layer(text, rng, anchors):
    mechanism = Oscillator(d_osc=3, anchors=anchors)
    model = LanguageModel(attention=mechanism).build(text, rng).eval()
    for layer in attention_layers(model):
        layer.anchors.data.mul_(2)  # off the sphere
    before = [(layer.drive, layer.settle) for layer in attention_layers(model)]
    inputs = text.valid.take(slice(2)).inputs
    output, layers = observe(model, **inputs)
    torch.testing.assert_close(output, model(**inputs))
    assert [(layer.drive, layer.settle) for layer in attention_layers(model)] == before
    assert len(layers) == 2
    for seen in layers:
        torch.testing.assert_close(seen.drive, seen.couplings @ seen.anchors)
        torch.testing.assert_close(seen.oscillators, sphere.normalize(seen.drive))
        assert torch.equal(seen.couplings, seen.couplings.tril())
        lengths = seen.anchors.norm(dim=-1)
        torch.testing.assert_close(lengths, torch.full_like(lengths, 2 if anchors == "free" else 1))


def test_the_layers_are_put_back_after_an_error(text, rng):
    model = LanguageModel(attention=Oscillator()).build(text, rng)
    before = attention_layers(model)[0].settle
    with pytest.raises(IndexError):
        observe(model, tokens=torch.tensor([[10**6]]))
    assert attention_layers(model)[0].settle is before


def test_padding_is_no_token():
    agreement, stories = loaded(SVA()).valid, GeneratedText(layout="stories", examples=8).load()
    # 1,666 sentences of 6 words, 2,334 of 9
    assert real_tokens(agreement).sum() == 1666 * 6 + 2334 * 9 == 31_002
    assert real_tokens(stories.valid).sum(dim=1).tolist() == [47, 47, 46, 45]
    clips = GeneratedClips().load().valid
    assert real_tokens(clips).shape == (len(clips), 49)
    assert real_tokens(clips).all()


def test_agreement_models_are_seen_too(rng):
    data = loaded(SVA())
    model = Agreement(attention=Oscillator(pads="as-published")).build(data, rng).eval()
    (seen,) = observe(model, **data.valid.take(slice(3)).inputs)[1]
    assert seen.drive.shape == (3, 1, 9, 2)
