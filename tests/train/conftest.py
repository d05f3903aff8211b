"""Sentences to train on, and a checkpoint that lives in memory."""

import copy

import pytest

import short_sva
from lohe.tasks import Data


@pytest.fixture(scope="session")
def data() -> Data:
    return short_sva.data()


class Memory:
    """Every checkpoint that was saved, as it was then."""

    def __init__(self):
        self.saved = []

    def __str__(self):
        return "memory"

    def save(self, tensors, state):
        self.saved.append(({k: t.clone() for k, t in tensors.items()}, copy.deepcopy(state)))

    def load(self):
        return copy.deepcopy(self.saved[-1]) if self.saved else None


@pytest.fixture
def memory() -> Memory:
    return Memory()
