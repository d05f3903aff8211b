"""Clips in, normalised log-mel frames out; decoded once."""

import inspect
import math
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from sound import WORDS, speakers, tone, write_wav

import shared_data
from lohe.tasks import KeywordSpotting, LogMel, kws
from lohe.tasks.clips import which_set
from lohe.tasks.kws import KEYWORDS


class Uncompiled(ModuleType):
    """numba, compiling nothing: librosa's other functions would take it a quarter of a minute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def decorator(*given: Any, **options: Any) -> Any:
            return given[0] if inspect.isfunction(given[0] if given else None) else decorator

        return decorator


@pytest.mark.filterwarnings("ignore")  # librosa's own
def test_front_end_agrees_with_librosa(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", Uncompiled("numba"))
    librosa = pytest.importorskip("librosa")
    noise, seconds = torch.randn(6, 16_000, generator=rng), torch.arange(16_000) / 16_000
    audio = 0.1 * noise
    audio[1, 9_000:] = 0  # silence, as after a short clip
    audio[2] *= torch.linspace(1, 0, 16_000)
    audio[3] = 0
    audio[3, [100, 5_000, 5_003, 12_345]] = torch.tensor([0.9, -0.7, 0.3, 2**-15])  # clicks
    audio[4] = torch.sin(2 * math.pi * 3_000 * seconds)  # the other bands are all but silent
    audio[5] = torch.exp(-8 * seconds) * torch.sin(400 * math.pi * seconds) + 2**-15 * noise[5]
    power = librosa.feature.melspectrogram(
        y=audio.numpy(),
        sr=16_000,
        n_fft=512,
        win_length=400,
        hop_length=320,
        n_mels=40,
        fmin=0,
        fmax=8_000,
        pad_mode="reflect",
        htk=True,
        norm=None,
    )
    decibel = librosa.power_to_db(power, amin=1e-10, top_db=None)  # (clip, mel, 51 frames)
    expected = torch.from_numpy(decibel).transpose(1, 2)[:, :49]
    # librosa's float32 is off by 1e-5 dB here
    torch.testing.assert_close(LogMel()(audio), expected.float(), rtol=0, atol=1e-4)


def test_a_tone_lights_up_its_band():
    audio = torch.sin(2 * math.pi * 1_000 * torch.arange(16_000) / 16_000)[None]
    loudest = LogMel()(audio)[0, 25].argmax()
    mel = 2595 * math.log10(1 + 1_000 / 700)
    spacing = 2595 * math.log10(1 + 8_000 / 700) / 41
    assert abs(loudest.item() + 1 - mel / spacing) < 0.5


def test_silence_is_the_floor():
    assert (LogMel()(torch.zeros(1, 16_000)) == -100).all()


def test_hop_of_the_papers_text_is_a_variant():
    assert replace(LogMel(), hop=160)(torch.zeros(1, 16_000)).shape == (1, 49, 40)


def test_split_hash_agrees_with_the_official_lists():
    try:
        rows = shared_data.index()
    except FileNotFoundError as reason:
        pytest.skip(str(reason))
    assert all(which_set(f"{r['file']}.wav") == shared_data.SPLITS[r["split"]] for r in rows)
    keywords = [r for r in rows if r["word"] in KEYWORDS]
    assert len(keywords) == 30_956


def test_load(speech):
    data = KeywordSpotting(WORDS).load(speech)
    assert data.names == WORDS
    assert data.facts["clips"] == {"train": 6, "valid": 6, "test": 6}
    assert data.facts["front_end"] == "log-mel-db-40x49-hop320"
    assert data.facts["data_version"] == "speech_commands_v0.02"
    assert data.train.take(slice(0, 2)).inputs["features"].shape == (2, 49, 40)
    assert data.valid.take(slice(0, 6)).targets["label"].tolist() == [0, 0, 0, 1, 1, 1]


def test_training_frames_have_mean_0_and_deviation_1(speech):
    frames = KeywordSpotting(WORDS).load(speech).train.inputs["features"].flatten(0, 1).double()
    assert frames.mean(0).abs().max() < 1e-5
    assert (frames.std(0) - 1).abs().max() < 1e-5


def test_labels_follow_the_word_list(speech):
    data = KeywordSpotting(("no", "yes")).load(speech)
    other = KeywordSpotting(WORDS).load(speech)
    assert data.names == ("no", "yes")
    assert data.checksum != other.checksum
    assert KeywordSpotting(("no",)).load(speech).names == ("no",)


def test_audio_is_decoded_once(speech, monkeypatch):
    first = KeywordSpotting(WORDS).load(speech)
    monkeypatch.setattr(kws, "read_clip", lambda *_: pytest.fail("decoded again"))
    monkeypatch.setitem(sys.modules, "soundfile", None)  # the cache does without
    second = KeywordSpotting(WORDS).load(speech)
    torch.testing.assert_close(second.train.inputs, first.train.inputs, rtol=0, atol=0)
    assert KeywordSpotting(("yes",)).load(speech).facts["clips"]["train"] == 3


def test_another_front_end_has_its_own_cache(speech):
    published = KeywordSpotting(WORDS).load(speech)
    finer = KeywordSpotting(WORDS, front_end=LogMel(hop=160)).load(speech)
    assert finer.checksum != published.checksum
    assert finer.facts["front_end"] == "log-mel-db-40x49-hop160"
    assert KeywordSpotting(WORDS).load(speech).checksum == published.checksum


def test_features_of_another_version_are_made_again(speech, monkeypatch):
    KeywordSpotting(WORDS).load(speech)
    monkeypatch.setattr(kws, "VERSION", kws.VERSION + 1)
    heard = []
    KeywordSpotting(WORDS).load(speech, lambda *said: heard.append(said))
    assert ("decoding no", 9, 9) in heard


def test_a_new_clip_is_noticed(speech):
    KeywordSpotting(WORDS).load(speech)
    newcomer = f"{speakers('train', 4)[-1]}_nohash_0.wav"
    write_wav(speech / "speech_commands_v0.02" / "yes" / newcomer, tone(500))
    assert KeywordSpotting(WORDS).load(speech).facts["clips"]["train"] == 7


def test_flac_is_read_as_wav_is(speech):
    import soundfile

    before = KeywordSpotting(WORDS).load(speech)
    for path in (speech / "speech_commands_v0.02").rglob("*.wav"):
        soundfile.write(path.with_suffix(".flac"), *soundfile.read(path, dtype="int16"))
        path.unlink()
    after = KeywordSpotting(WORDS).load(speech)
    torch.testing.assert_close(after.train.inputs, before.train.inputs, rtol=0, atol=0)


def test_short_clips_are_padded_and_long_ones_cut(speech):
    folder = speech / "speech_commands_v0.02" / "yes"
    first, second, third = sorted(folder.glob("*.wav"))[:3]
    sound = tone(440, samples=9_000)
    write_wav(first, sound)
    write_wav(second, np.pad(sound, (0, 7_000)))
    write_wav(third, np.concatenate([np.pad(sound, (0, 7_000)), tone(200)]))
    clips = [kws.read_clip(path, 16_000, 16_000) for path in (first, second, third)]
    torch.testing.assert_close(clips[0], clips[1])
    torch.testing.assert_close(clips[2], clips[1])


def test_scores_are_percent(speech):
    data = KeywordSpotting(WORDS).load(speech)
    task, targets = KeywordSpotting(WORDS), data.valid.take(slice(0, 6)).targets
    always_yes = torch.tensor([[1.0, 0.0]]).expand(6, 2)
    assert task.score(task.tally(always_yes, targets))["accuracy"] == 50


def test_progress_is_reported(speech):
    heard = []
    KeywordSpotting(WORDS).load(speech, progress=lambda *report: heard.append(report))
    assert ("decoding no", 9, 9) in heard


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    """A data root with 60 clips of each word of which there is audio, and their index."""
    pytest.importorskip("soundfile")
    try:
        rows = shared_data.index()
    except FileNotFoundError as reason:
        pytest.skip(str(reason))
    root = tmp_path_factory.mktemp("speech")
    return root, {w: shared_data.export_audio(root, w, 60, rows) for w in WORDS}


def test_the_front_end_of_the_shared_arrays_is_close_but_another(audio):
    root, rows = audio
    assert sum(KeywordSpotting(WORDS).load(root).facts["clips"].values()) == 120
    ours, stored = [], []
    for word in WORDS:
        folder = root / "speech_commands_v0.02" / word
        clips = [kws.read_clip(folder / f"{r['file']}.wav", 16_000, 16_000) for r in rows[word]]
        ours.append(LogMel()(torch.stack(clips)))
        stored.append(shared_data.log_mel(word)[[int(r["row"]) for r in rows[word]]])
    a, b = torch.cat(ours), torch.cat(stored) * (10 / math.log(10))
    correlation = torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]
    # over all 3,800 clips: 0.94 once normalised, 7.8 dB rms apart
    assert 0.90 < correlation < 0.98
    assert 4 < (a - b).square().mean().sqrt() < 12
