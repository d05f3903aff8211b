"""Operations that attention weights cost, by softmax and by oscillators, on paper and in the array.

The convention is Appendix B's ("Cost accounting"). It counts the step where the two mechanisms
differ, from scores to normalised weights, per inference and per attention layer; everything around
it is the same for both. The unit is one multiply-add. These are first-order counts of the
arithmetic that stays digital: equilibration in an array costs time, not operations, and writing
the couplings into it is not counted.

The paper counts p = 1 without a gain. Beyond it we count: 1 + γ z·r is a multiply-add a pair until
the readout is physical, where γ is an amplifier; the p-th power takes the multiplications of
repeated squaring, or for a real p an exponential, until the affine sum is physical too. That last
row so needs an array that also raises to the p-th power; where it cannot, the row before is the
last that can be had, since the sum and the division come after the power.
"""

import math
import operator
from dataclasses import dataclass

EXPONENTIAL = 10  # multiply-add equivalents; App. B and the caption of Table 7
MULTIPLY_ADD = 1  # "every other operation as one"

# Operations per pair. A coupling that contains an exponential costs as much as softmax's, however
# many logarithms or additions surround it; likewise the 1e-3 added to relu is free.
COUPLINGS = {
    "relu": MULTIPLY_ADD,
    "softplus": EXPONENTIAL,
    "elu": EXPONENTIAL,
    "exp": EXPONENTIAL,
}

# The implementations, each moving one more stage into the array than the one before.
LABELS = {
    "softmax": "Softmax",
    "all_digital": "Oscillator, all digital",
    "equilibration_physical": "+ equilibration physical",
    "equilibration_and_readout_physical": "+ readout physical",
    "affine_physical": "+ affine sum, division",
}


@dataclass(frozen=True)
class Operations:
    """Counts of one attention layer: softmax, then oscillators with ever more of it physical."""

    softmax: int
    all_digital: int
    equilibration_physical: int
    equilibration_and_readout_physical: int
    affine_physical: int

    def reduction(self, implementation: str) -> float:
        """Factor by which `implementation` (a field's name) has fewer operations than softmax."""
        if implementation not in LABELS:
            raise ValueError(
                f"reduction() knows the implementations {', '.join(LABELS)}, "
                f"got {implementation!r}."
            )
        return self.softmax / getattr(self, implementation)


def operations(
    tokens: int,
    heads: int,
    d_osc: int,
    coupling: str = "relu",
    causal: bool = False,
    *,
    sharpness: float = 1,
    gain: float | str | None = None,
) -> Operations:
    """Operations per inference of one attention layer, by softmax and by four implementations.

    `coupling` is relu as in the paper's headline table; the trained models use softplus. `gain` as
    in the layers, None, a number or "learned"; or whether there is one, True or False.

    >>> kws = operations(tokens=49, heads=2, d_osc=2)
    >>> kws.softmax, kws.all_digital, kws.affine_physical
    (57526, 33908, 4802)
    >>> round(kws.reduction("affine_physical"), 1)
    12.0
    >>> operations(tokens=49, heads=2, d_osc=2, sharpness=4, gain=True).all_digital
    48314
    """
    _check_shape(tokens, heads, d_osc)
    if not sharpness >= 1:
        raise ValueError(f"sharpness must be >= 1 (p of Eq. 5), got {sharpness}.")
    if coupling not in COUPLINGS:
        raise ValueError(
            f"coupling must be one of {', '.join(COUPLINGS)}, got {coupling!r}. For another σ, "
            f"take the name that costs as much: relu without an exponential, softplus with one."
        )
    gain = None if gain is False else gain
    number = None if gain == "learned" else gain
    if isinstance(number, str) or (number is not None and not 0 < number < math.inf):
        raise ValueError(f'gain must be a number > 0, "learned" or None, got {gain!r}.')
    p = pairs(tokens, causal)
    sigma = nonlinearity(p, COUPLINGS[coupling])
    equilibration = fixed_point(p, d_osc) + sphere_normalization(tokens, d_osc)
    inner_products = readout(p, d_osc)
    affine = row_sum(p, tokens) + division(p)
    sharpened = affine + power(p, sharpness)
    read = inner_products + amplification(p, gain is not None) + sharpened
    return Operations(
        softmax=heads * (nonlinearity(p, EXPONENTIAL) + affine),
        all_digital=heads * (sigma + equilibration + read),
        equilibration_physical=heads * (sigma + read),
        equilibration_and_readout_physical=heads * (sigma + sharpened),
        affine_physical=heads * sigma,
    )


def oscillators(tokens: int, heads: int, d_osc: int) -> int:
    """Phase oscillators that one layer needs, n_h T (d_osc - 1): Section 5's hardware budget.

    Only the free oscillators count; the anchors are fixed forcing points.

    >>> oscillators(tokens=49, heads=2, d_osc=2)
    98
    """
    _check_shape(tokens, heads, d_osc)
    return heads * tokens * (d_osc - 1)


# The stages, per head. P is the number of query-key pairs that are evaluated.


def pairs(tokens: int, causal: bool) -> int:
    """P = T², or T(T+1)/2 when a token sees only itself and its past."""
    return tokens * (tokens + 1) // 2 if causal else tokens**2


def nonlinearity(pairs: int, cost: int) -> int:
    """σ or the exponential, once per pair."""
    return cost * pairs


def fixed_point(pairs: int, d_osc: int) -> int:
    """h_i = Σ_j w_ij r_j: d_osc products per pair."""
    return MULTIPLY_ADD * d_osc * pairs


def sphere_normalization(tokens: int, d_osc: int) -> int:
    """h_i / ‖h_i‖: d_osc squares and d_osc divisions per query."""
    return MULTIPLY_ADD * 2 * d_osc * tokens


def readout(pairs: int, d_osc: int) -> int:
    """z_i·r_j: d_osc products per pair."""
    return MULTIPLY_ADD * d_osc * pairs


def amplification(pairs: int, gain: bool) -> int:
    """1 + γ z_i·r_j: a multiply-add per pair; without a gain, the 1 is where the sum starts."""
    return MULTIPLY_ADD * pairs * gain


def power(pairs: int, sharpness: float) -> int:
    """The p-th power per pair: by repeated squaring, or exp(p ln x) where p is no whole number.

    >>> [power(1, p) for p in (1, 2, 3, 4, 8, 2.5)]
    [0, 1, 2, 2, 3, 10]
    """
    if not float(sharpness).is_integer():
        return EXPONENTIAL * pairs
    p = int(sharpness)
    return MULTIPLY_ADD * (p.bit_length() - 1 + p.bit_count() - 1) * pairs


def row_sum(pairs: int, tokens: int) -> int:
    """The denominator: one addition per term summed, P - T over all rows."""
    return MULTIPLY_ADD * (pairs - tokens)


def division(pairs: int) -> int:
    """One division per weight."""
    return MULTIPLY_ADD * pairs


# What the paper prints, and ours beside it.


@dataclass(frozen=True)
class Configuration:
    """An attention layer of the paper."""

    tokens: int
    heads: int
    d_osc: int
    causal: bool = False


TASKS = {
    "KWS": Configuration(tokens=49, heads=2, d_osc=2),
    "SVA": Configuration(tokens=9, heads=1, d_osc=2),
    "TinyStories": Configuration(tokens=128, heads=4, d_osc=8, causal=True),
}


@dataclass(frozen=True)
class Row:
    """One row of a table: our numbers, and the paper's in the same order."""

    label: str
    ours: tuple[int, ...] | tuple[float, ...]
    paper: tuple[int, ...] | tuple[float, ...]

    @property
    def agrees(self) -> bool:
        """Equal in every printed digit: counts to the unit, reductions to one decimal."""
        return tuple(round(x, 1) for x in self.ours) == self.paper


def table_7() -> list[Row]:
    """Table 7 (tab:cost): reduction relative to softmax; KWS, SVA, TinyStories; ReLU coupling."""
    paper = [(1.0, 1.0, 1.0), (1.7, 1.6, 0.6), (2.4, 2.4, 1.1), (4.0, 4.1, 4.0), (12.0, 11.9, 12.0)]
    return _reductions("relu", paper)


def table_10() -> list[Row]:
    """Table 10 (tab:cost_softplus): Table 7 with softplus coupling, as the models were trained."""
    paper = [(1.0, 1.0, 1.0), (0.7, 0.7, 0.4), (0.9, 0.9, 0.6), (1.0, 1.0, 1.0), (1.2, 1.2, 1.2)]
    return _reductions("softplus", paper)


def table_11() -> list[Row]:
    """Table 11 (tab:cost_absolute): the counts behind both, first for ReLU, then for softplus."""
    paper = [
        (57_526, 963, 395_776, 57_526, 963, 395_776),
        (33_908, 594, 635_136, 77_126, 1_323, 932_352),
        (23_912, 396, 362_752, 67_130, 1_125, 659_968),
        (14_308, 234, 98_560, 57_526, 963, 395_776),
        (4_802, 81, 33_024, 48_020, 810, 330_240),
    ]
    counts = _tasks("relu") + _tasks("softplus")
    return [
        Row(label, tuple(getattr(count, name) for count in counts), printed)
        for (name, label), printed in zip(LABELS.items(), paper, strict=True)
    ]


def _reductions(coupling: str, paper: list[tuple[float, ...]]) -> list[Row]:
    return [
        Row(label, tuple(count.reduction(name) for count in _tasks(coupling)), printed)
        for (name, label), printed in zip(LABELS.items(), paper, strict=True)
    ]


def _tasks(coupling: str) -> list[Operations]:
    return [operations(t.tokens, t.heads, t.d_osc, coupling, t.causal) for t in TASKS.values()]


def _check_shape(tokens: int, heads: int, d_osc: int) -> None:
    for name, value in (("tokens", tokens), ("heads", heads)):
        if operator.index(value) < 1:
            raise ValueError(
                f"{name} must be at least 1, got {value}: a layer needs some to count."
            )
    if operator.index(d_osc) < 2:
        raise ValueError(
            f"d_osc must be at least 2, got {d_osc}: oscillators live on the sphere S^(d_osc-1), "
            f"which is the circle at 2 and not connected below."
        )
