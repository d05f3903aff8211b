"""Which tiles a device gets."""

import pytest
import torch

pytest.importorskip("triton")

from triton.runtime.errors import OutOfResources

from lohe.ops.triton import fitting

CPU = torch.device("cpu")
KERNEL = ("forward", torch.bfloat16, CPU, "relu", 64)
TILES = ("first", "second", "third", "last")
LARGE = fitting.ENOUGH


class Device:
    """Runs nothing; says how long each tile would take, None where there is no room."""

    def __init__(self, monkeypatch, folder, times):
        self.times, self.ran, self.timed = times, [], []
        monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
        monkeypatch.setattr(fitting, "_FITS", {})
        monkeypatch.setattr(fitting, "_FASTEST", {})
        monkeypatch.setattr(fitting, "_measured", lambda device: False)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100")
        monkeypatch.setattr(fitting, "_milliseconds", self.milliseconds)

    def milliseconds(self, go, tile):
        self.timed.append(tile)
        time = self.times[TILES.index(tile)]
        if time is None:
            return float("inf")
        go(tile)
        return time

    def go(self, tile):
        if self.times[TILES.index(tile)] is None:
            raise OutOfResources(200_000, 100_000, "shared memory")
        self.ran.append(tile)

    def launch(self, pairs=LARGE, **options):
        self.ran.clear()
        fitting.launch(KERNEL, TILES, self.go, CPU, pairs, **options)
        return self.ran[-1]


@pytest.mark.parametrize(
    ("times", "taken"),
    [
        ((1.0, 0.9, 0.8, 0.1), "third"),  # no more than three are tried
        ((1.0, 0.99, 1.2, 1.0), "first"),  # by less than noise: as on other devices
        ((None, 1.0, 0.5, 1.0), "third"),
        ((None, None, None, 1.0), "last"),
    ],
)
def test_the_fastest_tile_of_a_few_is_taken(monkeypatch, tmp_path, times, taken):
    device = Device(monkeypatch, tmp_path, times)
    assert device.launch() == taken
    assert device.timed == list(TILES[:3])
    assert device.launch() == taken
    assert len(device.ran) == 1  # nothing is timed again


def test_the_answer_stays_on_disk(monkeypatch, tmp_path):
    assert Device(monkeypatch, tmp_path, (1.0, 0.5, 0.9, 1.0)).launch() == "second"
    later = Device(monkeypatch, tmp_path, (0.1, 1.0, 1.0, 1.0))
    assert later.launch() == "second"
    assert not later.timed
    elsewhere = Device(monkeypatch, tmp_path, (0.1, 1.0, 1.0, 1.0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    assert elsewhere.launch() == "first"


def test_what_a_kernel_adds_to_is_as_before(monkeypatch, tmp_path):
    device = Device(monkeypatch, tmp_path, (1.0, 0.5, 0.9, 1.0))
    sums, go = torch.zeros(3), device.go

    def add(tile):
        go(tile)
        sums.add_(1)

    device.go = add
    device.launch(adds_to=sums)
    assert sums.tolist() == [1, 1, 1]


@pytest.mark.parametrize("why", ["small", "measured", "capturing", "deterministic"])
def test_not_tuned(monkeypatch, tmp_path, why):
    device = Device(monkeypatch, tmp_path, (None, 1.0, 0.1, 1.0))
    if why == "measured":
        monkeypatch.setattr(fitting, "_measured", lambda device: True)
    if why == "capturing":
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    if why == "deterministic":
        assert device.launch() == "third"  # what was found before does not count
        device.timed.clear()
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert device.launch(LARGE - 1 if why == "small" else LARGE) == "second"
    assert not device.timed


@pytest.mark.parametrize(("name", "known"), [("NVIDIA H200", True), ("NVIDIA RTX A6000", False)])
def test_measured_devices(monkeypatch, name, known):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert fitting._measured.__wrapped__(torch.device("cuda", 0)) is known
    assert fitting._measured.__wrapped__(CPU)


def test_no_room_at_all(monkeypatch, tmp_path):
    device = Device(monkeypatch, tmp_path, (None, None, None, None))
    with pytest.raises(OutOfResources):
        device.launch()
