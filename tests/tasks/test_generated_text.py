"""Generated text has the shape and the rules of the corpora that it stands for."""

import pytest
import torch

from lohe.experiments.setting import GENERATED
from lohe.tasks import GeneratedText, Task, TinyStories, WikiText2, sva
from lohe.tasks.language import BOS, EOS, PAD, SPECIALS, UNK

STREAM, STORIES = GeneratedText(tokens=12), GeneratedText(tokens=16, layout="stories")


@pytest.fixture(scope="module")
def stream():
    return STREAM.load()


@pytest.fixture(scope="module")
def stories():
    return STORIES.load()


def whole(split) -> torch.Tensor:
    """Chunks from inputs and targets, which are the same tokens one apart."""
    inputs, targets = split.inputs["tokens"], split.targets["next"]
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    return torch.cat([inputs, targets[:, -1:]], dim=1)


def test_a_stream_is_cut_by_both_protocols_as_wikitext_is(stream):
    names = {"train", "valid", "test"}
    names |= {f"{s}_{p}" for s in ("valid", "test") for p in ("published", "strict")}
    assert set(stream.splits) == names
    for name, split in stream.splits.items():
        chunks = whole(split)
        if name.endswith("strict"):
            assert chunks.shape[1] == STREAM.tokens + 1
            assert (chunks[1:, 0] == chunks[:-1, -1]).all()  # windows overlap by one word
            assert not ((chunks == BOS) | (chunks == EOS)).any()
        else:
            assert chunks.shape[1] == STREAM.tokens + 2
            assert (chunks[:, 0] == BOS).all()
            assert (chunks[:, -1] == EOS).all()
            assert not (chunks == PAD).any()
    assert stream.splits["valid"] is stream.splits["valid_published"]
    assert stream.splits["test"] is stream.splits["test_published"]


def test_both_protocols_see_the_same_words(stream):
    published = whole(stream.splits["valid_published"])[:, 1:-1].flatten()
    windows = whole(stream.splits["valid_strict"])
    strict = torch.cat([windows[:1, 0], windows[:, 1:].flatten()])
    assert torch.equal(strict[strict != PAD], published)


def test_stories_begin_and_end_once_and_are_padded_after(stories):
    assert set(stories.splits) == {"train", "valid", "test"}
    lengths = set()
    for split in stories.splits.values():
        for chunk in whole(split).tolist():
            assert len(chunk) == STORIES.tokens
            end = chunk.index(EOS)
            assert chunk[0] == BOS
            assert not {BOS, EOS, PAD} & set(chunk[1:end])
            assert set(chunk[end + 1 :]) <= {PAD}
            lengths.add(end + 1)
    assert max(lengths) == STORIES.tokens
    assert min(lengths) == STORIES.tokens // 2 + 1  # padding is met as well


@pytest.mark.parametrize("task", [STREAM, STORIES], ids=lambda task: task.layout)
def test_words_are_those_of_the_sentences(task):
    data = task.load()
    assert data.names[: len(SPECIALS)] == SPECIALS
    assert set(data.names[len(SPECIALS) :]) <= set(sva.WORDS)
    assert len(data.train) == task.examples
    assert len(data.valid) == len(data.splits["test"]) == task.examples // 2
    used = torch.cat([whole(s).flatten() for s in data.splits.values() if s is not data.train])
    assert int(used.max()) < len(data.names)
    assert (used == UNK).float().mean() < 0.05  # a word that training does not have
    # the first sentences of each split, in order
    words = [word for sentence in sva.generate(0, 5) for word in sentence.words]
    first = [data.names[k] for k in whole(data.train)[0].tolist() if k not in (BOS, EOS, PAD)]
    start = 1 if task.layout == "stories" else 0  # BOS takes the place of a word
    assert first == words[start : start + len(first)]


def test_splits_differ_and_loading_again_does_not(stream):
    again = STREAM.load()
    assert (again.checksum, again.names) == (stream.checksum, stream.names)
    assert GeneratedText(tokens=12, examples=32).load().checksum != stream.checksum
    rows = {name: whole(stream.splits[name])[:10].tolist() for name in ("train", "valid", "test")}
    assert rows["train"] != rows["valid"] != rows["test"] != rows["train"]


def test_it_is_scored_as_language(stories):
    """A model that knows nothing has the perplexity of the vocabulary."""
    batch = stories.valid.take(slice(4))
    uniform = torch.zeros(*batch.targets["next"].shape, len(stories.names))
    assert isinstance(STORIES, Task)
    assert STORIES.loss(uniform, batch.targets).exp().item() == pytest.approx(len(stories.names))
    sums = STORIES.tally(uniform, batch.targets)
    assert sums["targets"] == (batch.targets["next"] != PAD).sum()
    assert STORIES.score(sums)["perplexity"].item() == pytest.approx(len(stories.names))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GeneratedText(tokens=7), "GeneratedText needs tokens >= 8, got 7"),
        (lambda: GeneratedText(examples=1), "GeneratedText needs examples >= 2, got 1"),
    ],
)
def test_options_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_smoke_runs_fit_the_models_of_the_corpora():
    assert GENERATED.wikitext2.tokens == WikiText2().tokens
    assert GENERATED.tinystories.tokens < TinyStories().tokens  # shorter, since seconds count
    assert not GENERATED.published
