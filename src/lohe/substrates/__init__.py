"""Things that settle: models of physical arrays, and what is imperfect about them."""

from lohe.substrates.imperfections import (
    DeviceMismatch,
    FiniteHorizon,
    FrequencyDisorder,
    Integrated,
    Mismatch,
    SequentialStart,
    StateNoise,
    UniformStart,
)

__all__ = [
    "DeviceMismatch",
    "FiniteHorizon",
    "FrequencyDisorder",
    "Integrated",
    "Mismatch",
    "SequentialStart",
    "StateNoise",
    "UniformStart",
]
