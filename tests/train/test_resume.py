"""A run that was stopped ends with the numbers of one that was not."""

import time

import pytest
import torch

import short_sva
from lohe.train import train

SEEDS = [2, 0]
EPOCHS = 4


class Stopped(Exception):
    pass


def stop_after(last: int):
    def report(epoch, lines):
        if epoch == last:
            raise Stopped

    return report


def interrupted(run, data, memory, last: int) -> None:
    with pytest.raises(Stopped):
        train(run, SEEDS, data, checkpoint=memory, report=stop_after(last))


@pytest.fixture(scope="module")
def run():
    # selection, so that the best epoch so far must survive as well
    return short_sva.run(epochs=EPOCHS, select="highest overall")


@pytest.fixture(scope="module")
def whole(run, data):
    return train(run, SEEDS, data)


@pytest.mark.parametrize("last", range(EPOCHS))
def test_stopped_after_any_epoch_and_resumed_is_bitwise_the_same(run, data, memory, whole, last):
    assert run.model.dropout > 0
    interrupted(run, data, memory, last)
    assert len(memory.saved) == last + 1
    heard = []
    resumed = train(
        run, SEEDS, data, checkpoint=memory, report=lambda epoch, _: heard.append(epoch)
    )
    assert heard == list(range(last + 1, EPOCHS))
    assert resumed.outcomes == whole.outcomes
    for name, parameter in whole.parameters.items():
        assert torch.equal(resumed.parameters[name], parameter)


def test_time_spent_before_the_stop_is_counted(run, data, memory):
    interrupted(run, data, memory, 1)
    memory.saved[-1][1]["seconds"] = 1000.0
    assert train(run, SEEDS, data, checkpoint=memory).seconds > 1000


def test_a_checkpoint_of_other_seeds_is_refused(run, data, memory):
    interrupted(run, data, memory, 0)
    with pytest.raises(
        ValueError, match=r"^memory is of seeds \[2, 0\], the run asks for \[0, 2\]"
    ):
        train(run, [0, 2], data, checkpoint=memory)


def test_a_checkpoint_of_other_data_is_refused(run, data, memory):
    interrupted(run, data, memory, 0)
    memory.saved[-1][1]["examples"] = "of another corpus"
    with pytest.raises(
        ValueError, match=r"^memory was trained on data with checksum of another corpus"
    ):
        train(run, SEEDS, data, checkpoint=memory)


@pytest.mark.parametrize("damage", ["gone", "of another shape"])
def test_a_checkpoint_of_other_code_is_refused_by_name(run, data, memory, damage):
    """Parameters have other names or shapes now; the recipe, and so the place, is the same."""
    interrupted(run, data, memory, 0)
    tensors = memory.saved[-1][0]
    bias = tensors.pop("parameters.head.bias")
    if damage == "of another shape":
        tensors["parameters.head.bias"] = bias[:, None, :]
    with pytest.raises(ValueError, match=r"^memory was written by other code .*delete it"):
        train(run, SEEDS, data, checkpoint=memory)


def test_a_checkpoint_that_cannot_be_written_ends_the_run(run, data):
    """It is written while training goes on, and what went wrong is still heard of."""

    class Full:
        def load(self):
            return None

        def save(self, tensors, state):
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        train(run, SEEDS, data, checkpoint=Full(), checkpoint_every=1e-9)


def test_a_checkpoint_is_of_the_moment_it_was_taken(run, data, memory):
    """Saved slowly, it is none of a later epoch."""
    train(run, SEEDS, data, checkpoint=memory)
    slow = type(memory)()
    original = slow.save
    slow.save = lambda tensors, state: (time.sleep(0.05), original(tensors, state))[1]
    train(run, SEEDS, data, checkpoint=slow, checkpoint_every=1e-9)
    for (a, _), (b, _) in zip(memory.saved, slow.saved, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)
