"""Two protocols on one stream of words."""

import lzma
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lohe.tasks import WikiText2, total, wikitext2
from lohe.tasks.language import BOS, EOS, PAD, UNK

STREAMS = st.lists(st.integers(4, 99), min_size=2, max_size=60)
TOKENS = WikiText2(release="tokens")


@pytest.fixture(scope="module")
def data(shared_root):
    return TOKENS.load(shared_root)


@given(STREAMS, st.integers(1, 12))
def test_strict_scores_every_word_but_the_first_once(words, tokens):
    windows = wikitext2.overlapping_windows(torch.tensor(words, dtype=torch.int16), tokens)
    scored = windows[:, 1:].flatten()
    assert scored[scored != PAD].tolist() == words[1:]
    assert (windows[1:, 0] == windows[:-1, -1]).all()  # they overlap by one word
    assert windows.shape[1] == tokens + 1


@given(STREAMS, st.integers(1, 12))
def test_published_wraps_whole_pieces(words, tokens):
    chunks = wikitext2.wrapped_chunks(torch.tensor(words, dtype=torch.int16), tokens)
    assert len(chunks) == len(words) // tokens
    assert (chunks[:, 0] == BOS).all()
    assert (chunks[:, -1] == EOS).all()
    assert chunks[:, 1:-1].flatten().tolist() == words[: len(words) // tokens * tokens]


def test_the_free_token_lowers_perplexity_by_a_power_of_48_over_49(data):
    # a model that knows nothing but that EOS comes last: 10,000 words, and PPL 10,000^(48/49)
    batch = data.splits["valid_published"].take(slice(0, 50))
    uniform = torch.zeros(50, 49, len(data.names))
    uniform[:, -1, EOS] = 1e4
    perplexity = TOKENS.score(TOKENS.tally(uniform, batch.targets))["perplexity"].item()
    assert math.isclose(perplexity, 10_000 ** (48 / 49), rel_tol=1e-5)


def test_one_model_can_be_scored_both_ways(data, rng):
    # a unigram model does not depend on context, so it takes both shapes
    counts = torch.bincount(data.train.targets["next"].long().flatten(), minlength=10_000)
    logits = torch.log(counts.double().clamp(min=0.5)).float()
    perplexity = {}
    for name in ("valid_published", "valid_strict"):
        batch = data.splits[name].take(slice(0, 100))
        tokens = batch.inputs["tokens"].shape[1]
        outputs = logits.expand(100, tokens, -1)
        sums = total([TOKENS.tally(outputs, batch.targets)])
        perplexity[name] = TOKENS.score(sums)["perplexity"].item()
    assert perplexity["valid_published"] < perplexity["valid_strict"]


def test_counts_on_the_tokens_release(data):
    # the published rules on this release, whose articles are in another order than the paper's
    assert (len(data.train), len(data.valid)) == (43_465, 4_533)
    assert math.ceil(len(data.train) / 64) == 680
    assert len(data.names) == 10_000
    assert data.train.inputs["tokens"].shape == (43_465, 49)
    assert data.splits["valid_strict"].inputs["tokens"].shape == (4_534, 48)
    assert data.facts["words"] == {"train": 2_086_329, "valid": 217_611, "test": 245_074}


def test_strict_counts_every_word_of_the_shared_splits(data):
    for split, words in data.facts["words"].items():
        if split != "train":
            assert int((data.splits[f"{split}_strict"].targets["next"] != PAD).sum()) == words - 1


def test_both_protocols_train_on_the_same_words(shared_root, data):
    strict = WikiText2(release="tokens", protocol="strict").load(shared_root)
    assert strict.names == data.names
    assert strict.checksum != data.checksum
    assert strict.train.inputs["tokens"].shape == (43_466, 48)
    for name in ("valid_published", "valid_strict", "test_published", "test_strict"):
        torch.testing.assert_close(strict.splits[name].targets, data.splits[name].targets)
    assert strict.valid is strict.splits["valid_strict"]
    assert data.valid is data.splits["valid_published"]


def test_the_literal_unk_is_no_word(data):
    assert "<unk>" not in data.names[4:]
    assert data.names[3] == "<unk>"


def test_unknown_words_are_unk():
    names = ("<pad>", "<bos>", "<eos>", "<unk>", "cat")
    assert wikitext2.encode(["cat", "<unk>", "dog", "<pad>"], names).tolist() == [4, UNK, UNK, UNK]


def test_xz_makes_no_difference(wikitext):
    plain = WikiText2(tokens=10).load(wikitext)
    for path in (wikitext / "wikitext-2-raw").iterdir():
        path.with_name(path.name + ".xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    packed = WikiText2(tokens=10).load(wikitext)
    assert packed.checksum == plain.checksum
    assert packed.facts == plain.facts


def test_punctuation_stands_alone_and_case_is_lost():
    line = 'He said : "No, (perhaps) 1 @,@ 000!" [x] {y} it\'s; done? A-B'
    assert " ".join(wikitext2.tokenize([line, "  \n"])) == (
        'he said : " no , ( perhaps ) 1 @ , @ 000 ! " [ x ] { y } it \' s ; done ? a-b'
    )
