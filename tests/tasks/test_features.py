"""Keyword spotting on stored features: what a file holds is what a task sees, or an error."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

import shared_data
from lohe.experiments.setting import STORED
from lohe.tasks import KeywordFeatures, LogMel
from lohe.tasks.kws import frame_statistics

TASK = KeywordFeatures(("yes", "no"), "mine")
CLIPS = {"yes": [0, 1, 2, 0], "no": [0, 0, 2, 1, 1]}  # the split of each


def write(root: Path, word: str, **other: torch.Tensor) -> Path:
    folder = root / "keyword-features" / "mine"
    folder.mkdir(parents=True, exist_ok=True)
    split = torch.tensor(CLIPS[word], dtype=torch.uint8)
    rng = torch.Generator().manual_seed(len(split))
    tensors = {
        "features": torch.randint(256, (len(split), 3, 2), generator=rng, dtype=torch.uint8),
        "split": split,
        "scale": torch.tensor([0.5, -3.0], dtype=torch.float64),
    }
    path = folder / f"{word}.safetensors"
    kept = {k: v for k, v in (tensors | other).items() if len(v)}  # an empty one is left out
    safetensors.torch.save_file(kept, path)
    return path


@pytest.fixture
def root(tmp_path) -> Path:
    for word in CLIPS:
        write(tmp_path, word)
    return tmp_path


def test_splits_and_labels_are_those_of_the_files(root):
    data = TASK.load(root)
    assert data.names == TASK.words
    assert data.facts["clips"] == {"train": 4, "valid": 3, "test": 2}
    labels = {name: split.targets["label"].tolist() for name, split in data.splits.items()}
    assert labels == {"train": [0, 0, 1, 1], "valid": [0, 1, 1], "test": [0, 1]}
    assert data.facts["front_end"] == "mine"


def test_of_which_recordings_they_are_is_said_where_the_files_tell(root):
    data = TASK.load(root)
    assert data.facts["data_version"] == "not told by the stored features"
    for word, version in {"yes": "0.02", "no": "0.01"}.items():
        path = write(root, word)
        tensors = safetensors.torch.load_file(path)
        safetensors.torch.save_file(tensors, path, {"data_version": f"speech_commands_v{version}"})
    told = TASK.load(root).facts["data_version"]
    assert told == "speech_commands_v0.01, speech_commands_v0.02"


def test_the_checksum_of_stored_features_stays(root):
    """Records are of it; it names the features as they were always named."""
    data = TASK.load(root)
    named = {k: data.facts[k] for k in ("task", "front_end", "sources")} | {"data_version": "mine"}
    expected = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    assert data.checksum == expected


def test_features_are_scaled_and_normalised_by_the_training_frames(root):
    rows = {w: safetensors.torch.load_file(write(root, w))["features"] for w in CLIPS}
    train = torch.cat([rows["yes"][[0, 3]], rows["no"][[0, 1]]]) * 0.5 - 3
    mean, deviation = frame_statistics(train)
    test = torch.stack([rows["yes"][2], rows["no"][2]]) * 0.5 - 3
    loaded = TASK.load(root).splits
    torch.testing.assert_close(loaded["test"].inputs["features"], (test - mean) / deviation)
    torch.testing.assert_close(loaded["train"].inputs["features"], (train - mean) / deviation)


def test_the_scale_cancels_and_floating_point_is_as_good(root):
    expected = TASK.load(root)
    for word in CLIPS:
        bytes_ = safetensors.torch.load_file(write(root, word))["features"]
        write(root, word, features=bytes_.double(), scale=torch.tensor([7.0, 0.0]))
    found = TASK.load(root)
    assert found.checksum != expected.checksum  # other files
    torch.testing.assert_close(found.train.inputs, expected.train.inputs)


def test_another_order_of_words_is_another_task(root):
    other = replace(TASK, words=("no", "yes")).load(root)
    assert other.names == ("no", "yes")
    assert other.checksum != TASK.load(root).checksum


def test_a_missing_word_is_named(root):
    task = replace(TASK, words=("yes", "bird"))
    with pytest.raises(FileNotFoundError, match=r"mine.bird\.safetensors is missing.*lohe data"):
        task.load(root)


@pytest.mark.parametrize("words", [(), ("yes", "yes")], ids=["none", "one twice"])
def test_words_that_do_not_differ(words):
    with pytest.raises(ValueError, match=r"words that differ, got .* name it once"):
        KeywordFeatures(words, "mine")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"split": torch.empty(0)}, r"no\.safetensors has no split, only features, scale"),
        ({"features": torch.zeros(5, 6)}, r"are expected, got \(5, 6\), \(5,\) and \(2,\)"),
        ({"features": torch.zeros(4, 3, 2)}, r"are expected, got \(4, 3, 2\), \(5,\) and \(2,\)"),
        ({"scale": torch.ones(3)}, r"are expected, got .* and \(3,\)"),
        ({"split": torch.tensor([0, 0, 2, 1, 3])}, r"0 train, 1 valid or 2 test, got \{0, 1, 2, 3"),
        ({"features": torch.zeros(5, 4, 2)}, r"several shapes .*'yes': \(3, 2\), 'no': \(4, 2\)"),
        ({"split": torch.tensor([0, 0, 0, 0, 0])}, None),  # the other word has all three
    ],
    ids=["no split", "flat", "too few", "scale", "fourth split", "shapes", "train only"],
)
def test_what_is_wrong_with_a_file_is_said(root, tensors, message):
    write(root, "no", **tensors)
    if message is None:
        assert TASK.load(root).facts["clips"] == {"train": 7, "valid": 1, "test": 1}
        return
    with pytest.raises(ValueError, match=message):
        TASK.load(root)


def test_a_file_that_is_something_else(root):
    (root / "keyword-features" / "mine" / "no.safetensors").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"no\.safetensors cannot be read as safetensors"):
        TASK.load(root)


def test_a_split_without_clips(root):
    for word, split in CLIPS.items():
        write(root, word, split=torch.zeros(len(split), dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"falls into the split valid or test"):
        TASK.load(root)


def test_scores_are_percent(root):
    targets = TASK.load(root).valid.take(slice(0, 3)).targets  # yes, no, no
    always_yes = torch.tensor([[1.0, 0.0]]).expand(3, 2)
    assert TASK.score(TASK.tally(always_yes, targets))["accuracy"] == pytest.approx(100 / 3)
    assert TASK.loss(always_yes, targets) == pytest.approx(0.9799, abs=1e-4)


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """A data root with the shared arrays of two words."""
    try:
        return shared_data.export_features(tmp_path_factory.mktemp("stored"), TASK.words)
    except FileNotFoundError as reason:
        pytest.skip(str(reason))


def test_the_shared_arrays_load_as_they_are_stored(stored):
    data = KeywordFeatures(TASK.words, STORED).load(stored)
    assert data.facts["clips"] == {"train": 6_358, "valid": 803, "test": 824}
    assert data.facts["front_end"] != LogMel().name
    place = {"train": [], "test": []}
    for row in shared_data.index():
        if row["word"] in TASK.words and row["split"] in place:
            place[row["split"]].append((row["word"], int(row["row"])))
    values = {word: shared_data.log_mel(word) for word in TASK.words}
    train, test = (torch.stack([values[w][n] for w, n in place[s]]) for s in ("train", "test"))
    mean, deviation = frame_statistics(train)
    found = data.splits["test"].inputs["features"]
    torch.testing.assert_close(found, (test - mean) / deviation)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_features_that_are_no_finite_numbers_are_refused(root, value):
    """As samples are: one NaN would make the mean of its bin NaN, and so all of the training."""
    odd = torch.rand(4, 3, 2)
    odd[2, 1, 0] = value  # a clip of test only
    path = write(root, "yes", features=odd)
    with pytest.raises(ValueError, match=rf"{path.name}: .* no finite numbers .*Write them again"):
        TASK.load(root)
    write(root, "yes", scale=torch.tensor([1.0, value], dtype=torch.float64))
    with pytest.raises(ValueError, match="no finite numbers"):
        TASK.load(root)
