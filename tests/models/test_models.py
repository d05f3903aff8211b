"""The three models, as Appendix B and the published code compose them."""

import inspect
import json
from dataclasses import asdict, replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from accuracy import ROUNDING
from lohe.models import (
    Agreement,
    Block,
    Classifier,
    ExponentialReadout,
    FrozenAnchors,
    LanguageModel,
    LearnedSharpness,
    NoDynamics,
    Oscillator,
    Softmax,
    SoftmaxAlibi,
    SoftmaxCosine,
    SoftmaxPositions,
    SoftmaxRope,
    SoftmaxTemperature,
    attention_layers,
    attention_weights,
)
from lohe.tasks import SVA, Data, Split

MECHANISMS = pytest.mark.parametrize(
    "attention", [Softmax(), Oscillator(), Oscillator(anchors="free", pads="as-published")]
)
CAUSAL = pytest.mark.parametrize(
    "attention",
    [
        Softmax(),
        Oscillator(),
        Oscillator(anchors="free", pads="as-published"),
        SoftmaxTemperature(),
        SoftmaxPositions(),
        SoftmaxRope(),
        SoftmaxAlibi(),
        SoftmaxCosine(),
        NoDynamics(d_osc=3, sharpness=4),
        ExponentialReadout(d_osc=3),
        LearnedSharpness(d_osc=3, gain="learned"),
        FrozenAnchors(d_osc=3, sharpness=4, gain="learned"),
    ],
    ids=repr,
)


def blank(names: int, **inputs: torch.Tensor) -> Data:
    """Data of the published sizes, without content."""
    return Data({"train": Split(inputs, {})}, tuple(map(str, range(names))), "blank")


KWS = blank(10, features=torch.zeros(1, 49, 40))
WIKITEXT2 = blank(10_000, tokens=torch.zeros(1, 49, dtype=torch.int16))
TINYSTORIES = blank(8_004, tokens=torch.zeros(1, 127, dtype=torch.int16))


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def attention_size(d: int, anchors: int) -> int:
    return 4 * d * d + d + anchors


def ffn_size(d: int, d_ff: int) -> int:
    return 2 * d * d_ff + d_ff + d + 4 * d  # and the two LayerNorms of the block


def test_parameter_counts_of_the_published_models():
    oscillator = Oscillator()
    assert size(Classifier(attention=oscillator).build(KWS)) == 14_446
    assert size(Classifier(attention=Softmax()).build(KWS)) == 14_446 - 2 * 49 * 2
    learned = Classifier(attention=oscillator, positions="learned")
    assert size(learned.build(KWS)) == 14_446 + 49 * 32

    sva = Agreement(attention=oscillator).build(SVA().load())
    block = attention_size(32, 1 * 50 * 2) + ffn_size(32, 64)
    assert size(sva) == 169 * 32 + block + 2 * 32 + 33

    for data, words, tokens in ((WIKITEXT2, 10_000, 50), (TINYSTORIES, 8_004, 128)):
        model = LanguageModel(attention=Oscillator(d_osc=8)).build(data)
        block = attention_size(128, 4 * tokens * 8) + ffn_size(128, 512)
        assert size(model) == 128 * words + 2 * block + 2 * 128 + 129 * words


def published_block(d: int, d_ff: int, anchors: tuple[int, int, int]) -> list[torch.Tensor]:
    """A block's parameters, by PyTorch's own modules and in the published order."""
    attention = [nn.Linear(d, d, bias=False) for _ in range(3)] + [nn.Linear(d, d)]
    drawn: list[torch.Tensor] = [p for m in attention for p in m.parameters()]
    drawn.append(F.normalize(torch.randn(anchors), dim=-1))
    return drawn + [p for m in (nn.Linear(d, d_ff), nn.Linear(d_ff, d)) for p in m.parameters()]


DRAWN = {
    "classifier": (Classifier, lambda: KWS, lambda: nn.Linear(40, 32), (2, 49, 2)),
    "agreement": (Agreement, SVA().load, lambda: nn.Embedding(169, 32, 0), (1, 50, 2)),
    "language model": (
        LanguageModel,
        lambda: WIKITEXT2,
        lambda: nn.Embedding(10_000, 128, 0),
        (4, 50, 2),
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_initialisation_is_pytorchs_in_the_published_order(name):
    kind, load, first, anchors = DRAWN[name]
    config, data = kind(attention=Oscillator()), load()
    model = config.build(data, torch.Generator().manual_seed(7))
    with torch.random.fork_rng():
        torch.manual_seed(7)
        theirs = list(first().parameters())
        for _ in range(config.layers):
            theirs += published_block(config.d_model, config.d_ff, anchors)
        theirs += nn.Linear(*model.head.weight.shape[::-1]).parameters()
    ours = sorted(drawn(model), key=place)
    assert len(ours) == len(theirs)
    for (name, mine), usual in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, usual, rtol=1e-5, atol=1e-7, msg=name)


def drawn(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Parameters that are drawn: all but those of LayerNorm."""
    norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    return [(name, p) for name, p in model.named_parameters() if id(p) not in norms]


def place(named: tuple[str, torch.Tensor]) -> tuple[int, str, int]:
    """Where a parameter is drawn; a layer *lists* its anchors before its projections."""
    part = named[0].split(".")
    if part[0] != "encoder":
        return (2 if part[0] == "head" else 0), "", 0
    order = ["to_f", "to_g", "to_v", "to_out", "anchors"]
    return 1, ".".join(part[2:4]), order.index(part[4]) if part[4] in order else 0


def test_embedding_is_normal_with_a_padding_row_of_zeros(language_model):
    weight = LanguageModel(attention=Softmax()).build(WIKITEXT2).embedding.weight
    assert (weight[0] == 0).all()
    assert abs(weight[1:].std().item() - 1) < 0.01
    model = language_model.build(Softmax())
    model(**language_model.inputs).square().sum().backward()
    gradient = model.embedding.weight.grad
    assert (gradient[0] == 0).all()
    assert (gradient[1:] != 0).any(dim=1).all()


def test_the_block_is_pytorchs_pre_norm_layer(rng):
    ours = Block(Softmax().build(8, 2, 9, generator=rng), 8, 12, generator=rng).double().eval()
    theirs = nn.TransformerEncoderLayer(
        8, 2, 12, activation="gelu", norm_first=True, batch_first=True, dtype=torch.float64
    )
    attention = ours.attention
    into = torch.cat([attention.to_q.weight, attention.to_k.weight, attention.to_v.weight])
    theirs.load_state_dict(
        {
            "self_attn.in_proj_weight": into,
            "self_attn.in_proj_bias": torch.zeros(24),
            "self_attn.out_proj.weight": attention.to_out.weight,
            "self_attn.out_proj.bias": attention.to_out.bias,
        }
        | {f"norm1.{n}": p for n, p in ours.attention_norm.named_parameters()}
        | {f"norm2.{n}": p for n, p in ours.ffn_norm.named_parameters()}
        | {f"linear1.{n}": p for n, p in ours.ffn[0].named_parameters()}
        | {f"linear2.{n}": p for n, p in ours.ffn[3].named_parameters()}
    )
    x = torch.randn(2, 9, 8, dtype=torch.float64, generator=rng)
    key_mask = torch.arange(9) < torch.tensor([[9], [6]])
    theirs.train(False)
    with torch.no_grad():  # of padded positions, theirs makes zeros on its fast path
        wanted = theirs(x, src_key_padding_mask=~key_mask)
    found = ours(x, key_mask)
    torch.testing.assert_close(found[key_mask], wanted[key_mask], rtol=0, atol=ROUNDING)


@CAUSAL
@pytest.mark.parametrize("positions", ["sinusoidal", "none"])
def test_the_language_model_does_not_look_ahead(language_model, attention, positions):
    model = language_model.build(attention, positions=positions).double().eval()
    tokens = language_model.inputs["tokens"]
    changed = tokens.clone()
    changed[:, 5:] = 1 + changed[:, 5:] % 10
    before, after = model(tokens), model(changed)
    assert before.shape == (6, 9, 11)
    torch.testing.assert_close(before[:, :5], after[:, :5], rtol=0, atol=ROUNDING)
    assert (before[:, 5] - after[:, 5]).abs().max() > 1e-3
    torch.testing.assert_close(model(tokens[:, :4]), before[:, :4], rtol=0, atol=ROUNDING)


def test_agreement_is_read_at_the_position_asked_for(agreement):
    model = agreement.build(Oscillator()).double().eval()
    inputs = agreement.inputs
    x = model.encoder(model.embedding(inputs["tokens"]), inputs["key_mask"])
    everywhere = model.head(model.norm(x))[..., 0]
    for n, position in enumerate(inputs["position"]):
        assert abs(model(**inputs)[n] - everywhere[n, position]) < ROUNDING


@pytest.mark.parametrize(
    ("attention", "blind"),
    [(Softmax(), True), (Oscillator(), True), (Oscillator(pads="as-published"), False)],
)
def test_agreement_sees_padding_only_as_published(agreement, attention, blind):
    model = agreement.build(attention).double().eval()
    inputs = agreement.inputs
    alone = {name: rows[1:2] for name, rows in inputs.items()}  # six words and three pads
    cut = alone | {"tokens": alone["tokens"][:, :6], "key_mask": alone["key_mask"][:, :6]}
    assert (abs(model(**alone) - model(**cut)).item() < ROUNDING) == blind


def test_the_classifier_means_over_frames_that_only_anchors_order(classifier, double):
    inputs = double(classifier.inputs)
    order = torch.tensor([3, 1, 4, 0, 5, 8, 2, 7, 6])
    shuffled = {"features": inputs["features"][:, order]}
    for attention, blind in ((Softmax(), True), (Oscillator(), False)):
        model = classifier.build(attention).double().eval()
        difference = (model(**inputs) - model(**shuffled)).abs().max()
        assert (difference < ROUNDING) == blind
    for positions in ("sinusoidal", "learned"):
        model = classifier.build(Softmax(), positions=positions).double().eval()
        assert (model(**inputs) - model(**shuffled)).abs().max() > 1e-6


def test_the_classifier_has_no_final_norm(classifier, double):
    model = classifier.build(Softmax()).double().eval()
    features = double(classifier.inputs)["features"]
    by_hand = model.head(model.encoder(model.into(features)).mean(1))
    assert torch.equal(model(features), by_hand)
    assert sum(isinstance(m, nn.LayerNorm) for m in model.modules()) == 2 * 2


def test_embeddings_are_not_scaled_and_positions_follow(language_model):
    model = language_model.build(Softmax()).double().eval()
    tokens = language_model.inputs["tokens"]
    seen = []
    model.encoder.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(tokens)
    assert model.encoder.positions.table.shape == (10, 8)  # one more than the inputs
    expected = model.embedding.weight[tokens] + model.encoder.positions.table[:9]
    assert torch.equal(seen[0], expected)


@pytest.mark.parametrize(
    ("attention", "ordered"),
    [
        (Softmax(), False),
        (SoftmaxTemperature(), False),
        (SoftmaxCosine(), False),
        (SoftmaxPositions(), True),
        (SoftmaxRope(), True),
        (SoftmaxAlibi(), True),
        (Oscillator(), True),
        (NoDynamics(), True),
    ],
    ids=repr,
)
def test_without_positions_of_its_own_a_model_has_those_of_its_layers(
    language_model, attention, ordered
):
    """One layer, read at the last of nine words: is the order of the eight before seen?"""
    model = language_model.build(attention, positions="none", layers=1).double().eval()
    assert not any(name.startswith("encoder.positions") for name in model.state_dict())
    tokens = language_model.inputs["tokens"][:1]
    swapped = tokens[:, [3, 1, 4, 0, 5, 7, 2, 6, 8]]
    difference = (model(tokens)[:, -1] - model(swapped)[:, -1]).abs().max()
    assert (difference > 1e-4) if ordered else (difference < ROUNDING)


def test_train_and_eval_differ_by_dropout_alone(toy):
    model = toy.build(Oscillator())
    assert not torch.allclose(model.train()(**toy.inputs), model.eval()(**toy.inputs))
    model = toy.build(Oscillator(), dropout=0.0)
    assert torch.equal(model.train()(**toy.inputs), model.eval()(**toy.inputs))


@MECHANISMS
def test_attention_weights_of_every_layer(toy, attention):
    model = toy.build(attention).eval()
    weights = attention_weights(model, **toy.inputs)
    assert [tuple(a.shape) for a in weights] == [(6, 2, 9, 9)] * 2
    for a in weights:
        torch.testing.assert_close(a.sum(-1), torch.ones(6, 2, 9))
    assert len(attention_layers(model)) == 2
    assert not any(layer._forward_hooks for layer in attention_layers(model))


@pytest.mark.parametrize("kind", [Classifier, Agreement, LanguageModel])
def test_a_configuration_is_a_value(kind):
    config = kind(attention=Oscillator(d_osc=4))
    assert config == kind(attention=Oscillator(d_osc=4))
    assert hash(config) == hash(kind(attention=Oscillator(d_osc=4)))
    assert replace(config, attention=Softmax()) != config
    assert json.loads(json.dumps(asdict(config)))["attention"]["d_osc"] == 4


def test_data_of_another_task_is_explained(language_model, classifier):
    with pytest.raises(ValueError, match="Classifier reads 'features', but the data has tokens"):
        Classifier(attention=Softmax()).build(language_model.data)
    with pytest.raises(ValueError, match="LanguageModel reads 'tokens', but the data has features"):
        LanguageModel(attention=Softmax()).build(classifier.data)


def test_sentences_that_are_too_long_are_explained(agreement, language_model):
    with pytest.raises(ValueError, match=r"Agreement\(max_tokens=8\).*up to 9 tokens.*>= 9"):
        agreement.build(Softmax(), max_tokens=8)
    with pytest.raises(ValueError, match=r"LanguageModel\(max_tokens=8\).*up to 9 tokens"):
        language_model.build(Softmax(), max_tokens=8)
    longer = language_model.build(Oscillator(), max_tokens=20)
    assert attention_layers(longer)[0].anchors.shape == (2, 20, 2)


def test_a_name_is_no_mechanism():
    make = inspect.unwrap(Agreement.__init__)  # past the tests' own checks of types
    with pytest.raises(ValueError, match=r"attention='oscillator' is no mechanism. Give one of"):
        make(object.__new__(Agreement), attention="oscillator")
