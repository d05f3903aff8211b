"""The agreement sentences are the published ones."""

import hashlib

import pytest
import torch

from lohe.tasks import sva
from lohe.tasks.sva import BOS, EOS, PAD, PUBLISHED, SVA, VOCABULARY

# simple, easy, hard, and how many agree, as published
COUNTS = {
    "train": (15_929, 12_101, 11_970, 20_113),
    "valid": (1_666, 1_181, 1_153, 2_049),
    "test": (1_585, 1_265, 1_150, 2_041),
}
ENDS = {
    "train": ("the leaves look .", "the leaves by the seeds have ."),
    "valid": ("the buses beside the duck sit .", "the cats swims ."),
    "test": ("the dogs play .", "the ducks runs ."),
}


@pytest.fixture
def data(agreement):
    return agreement


@pytest.mark.parametrize("split", PUBLISHED)
def test_sentences_have_the_published_checksum(split):
    published = PUBLISHED[split]
    sentences = sva.generate(published.seed, published.sentences)
    lines = sva.json_lines(sentences)
    assert hashlib.sha256(lines.encode()).hexdigest() == published.sha256
    assert (" ".join(sentences[0].words), " ".join(sentences[-1].words)) == ENDS[split]


def test_a_generator_that_draws_otherwise_is_refused(monkeypatch):
    monkeypatch.setattr(sva, "PREPOSITIONS", sva.PREPOSITIONS[::-1])
    monkeypatch.setattr(sva, "PUBLISHED", {"test": sva.PUBLISHED["test"]})
    with pytest.raises(ValueError, match=r"generated test sentences have sha256 .*CPython"):
        SVA().load()


@pytest.mark.parametrize("split", PUBLISHED)
def test_counts(data, split):
    targets = data.splits[split].targets
    counts = torch.bincount(targets["category"].long()).tolist()
    assert (*counts, int(targets["label"].sum())) == COUNTS[split]


def test_train_has_29491_distinct_sentences(data):
    assert len(data.train.inputs["tokens"].unique(dim=0)) == 29_491


def test_vocabulary_has_169_ids(data):
    assert len(VOCABULARY) == 169
    assert data.names == VOCABULARY
    assert VOCABULARY[:5] == ("<PAD>", "<BOS>", "<EOS>", "<UNK>", ".")


def test_a_verb_stands_where_the_position_points(data):
    verbs = {*sva.SINGULAR_VERBS, *sva.PLURAL_VERBS}
    tokens, position = data.valid.inputs["tokens"], data.valid.inputs["position"].long()
    found = tokens.gather(1, position[:, None])[:, 0].tolist()
    assert {VOCABULARY[k] for k in found} <= verbs


def test_the_mask_ends_with_the_sentence(data):
    tokens, mask = data.valid.inputs["tokens"], data.valid.inputs["key_mask"]
    simple = data.valid.targets["category"] == 0
    assert (tokens[:, 0] == BOS).all()
    assert (mask.sum(1) == torch.where(simple, 6, 9)).all()
    assert (tokens[~mask] == PAD).all()
    last = tokens.gather(1, mask.sum(1, keepdim=True) - 1)
    assert (last == EOS).all()


def test_knowing_all_but_fish_and_deer_scores_the_ceiling(data):
    # their labels are coin flips: expected 97.76 % overall on the validation split
    fickle = torch.tensor([VOCABULARY.index(noun) for noun in ("fish", "deer")])
    subject_is_fickle = torch.isin(data.valid.inputs["tokens"][:, 2].long(), fickle)
    assert int(subject_is_fickle.sum()) == 179
    truth = 2.0 * data.valid.targets["label"] - 1
    best = SVA().score(
        SVA().tally(torch.where(subject_is_fickle, 0.5 * truth, truth), data.valid.targets)
    )
    assert best["overall"] == 100
    ceiling = 100 * (1 - 0.5 * subject_is_fickle.double().mean())
    assert abs(ceiling.item() - 97.76) < 0.005


def test_each_category_is_scored_apart(data):
    truth = 2.0 * data.valid.targets["label"] - 1
    only_hard_wrong = torch.where(data.valid.targets["category"] == 2, -truth, truth)
    score = SVA().score(SVA().tally(only_hard_wrong, data.valid.targets))
    assert (score["simple"], score["easy"], score["hard"]) == (100, 100, 0)
    assert abs(score["overall"].item() - 100 * (1 - 1_153 / 4_000)) < 1e-12
