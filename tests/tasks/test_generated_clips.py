"""Whistles in the place of keywords: the shape of the real thing, and something to tell apart."""

import math
from dataclasses import replace

import pytest
import torch

from lohe.tasks import GeneratedClips, LogMel
from lohe.tasks.kws import KEYWORDS


@pytest.fixture(scope="module")
def data():
    return GeneratedClips().load()


def test_ten_words_in_three_splits(data):
    assert data.names == KEYWORDS
    assert data.facts["clips"] == {"train": 80, "valid": 20, "test": 20}
    for split, each in (("train", 8), ("valid", 2), ("test", 2)):
        labels = data.splits[split].targets["label"].tolist()
        assert labels == [k for k in range(10) for _ in range(each)]
    assert data.train.inputs["features"].shape == (80, 49, 40)


def test_frames_are_normalised(data):
    frames = data.train.inputs["features"].flatten(0, 1).double()
    assert frames.mean(0).abs().max() < 1e-5
    assert (frames.std(0) - 1).abs().max() < 1e-5


def test_the_same_clips_every_time_and_others_for_another_task(data):
    again = GeneratedClips().load()
    assert again.checksum == data.checksum
    torch.testing.assert_close(again.valid.inputs, data.valid.inputs, rtol=0, atol=0)
    assert replace(GeneratedClips(), examples=6).load().checksum != data.checksum


@pytest.mark.parametrize("word", [0, 4, 9])
def test_a_whistle_rises_by_an_octave(word):
    front_end = LogMel()
    rng = torch.Generator().manual_seed(0)
    loudest = front_end(GeneratedClips()._clips(word, rng)).argmax(-1).double()  # (clip, frame)
    spacing = 2595 * math.log10(1 + 8_000 / 700) / 41
    hertz = 700 * (10 ** ((loudest + 1) * spacing / 2595) - 1)
    low, high = 300 * (word + 1), 330 * (word + 1)
    width = 0.1 + 60 / low  # a band: a tenth of its frequency, or 60 Hz
    for frame, octave in ((1, 0.02), (25, 0.5), (48, 0.96)):  # the middle of frame n is at 20 n ms
        at = hertz[:, frame] / (1 + octave)
        assert ((at > low * (1 - width)) & (at < high * (1 + width))).all()


def test_few_examples_are_still_in_every_split():
    clips = GeneratedClips(words=("a", "b"), examples=3).load().facts["clips"]
    assert clips == {"train": 2, "valid": 2, "test": 2}
