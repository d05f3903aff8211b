"""The mechanism as pure functions of tensors: Eqs. 2-6 and the ways to compute them."""

from lohe.ops.checks import checks
from lohe.ops.dispatch import (
    attend,
    attention_weights,
    couplings,
    drive,
    oscillator_attention,
    readout,
    takes_state,
    weights,
)
from lohe.ops.problem import Problem, problem
from lohe.ops.reference import fixed_point

__all__ = [
    "Problem",
    "attend",
    "attention_weights",
    "checks",
    "couplings",
    "drive",
    "fixed_point",
    "oscillator_attention",
    "problem",
    "readout",
    "takes_state",
    "weights",
]
