"""The readout as linear attention: no weights a_ij, a state of (features) x (d_v + 1) numbers
instead.

While the clamp of Eq. 5 is idle (unit anchors, γ <= 1) and p is an integer, the weight factorises,

    (1 + γ z·r)^p = ψ(z)·φ(r),    so    o_i = ψ(z_i)ᵀ Σ_j φ(r_j) v_jᵀ / ψ(z_i)·Σ_j φ(r_j),

with [1, γ z] and [1, r] at p = 1: the sums over keys are the whole state, and causality makes them
prefix sums. At the fixed point of Eq. 4 some allowed key has z·r > 0, so the denominator is at
least 1.
"""

from functools import reduce
from itertools import combinations_with_replacement
from math import comb, factorial, prod
from operator import mul
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lohe.ops.available import constant
from lohe.ops.masks import Allowed

BLOCK = 32  # queries that share a prefix state in the causal case


def feature_count(d_osc: int, sharpness: int) -> int:
    """Numbers in φ(r): the monomials of degree <= p in d_osc variables."""
    return comb(d_osc + sharpness, sharpness)


def pays(d_osc: int, sharpness: int, keys: int) -> bool:
    """Whether the state is well below the row of weights that it replaces."""
    return sharpness == 1 or (sharpness <= 4 and 4 * feature_count(d_osc, sharpness) <= keys)


def features(
    x: Float[Tensor, "*batch d_osc"], sharpness: int, gain: float
) -> Float[Tensor, "*batch features"]:
    """φ with φ(x)·φ(y) = (1 + γ x·y)^p: the p-th symmetric power of [1, sqrt(γ) x].

    The first feature is the constant 1.
    """
    lifted = torch.cat([torch.ones_like(x[..., :1]), gain**0.5 * x], dim=-1)
    if sharpness == 1:
        return lifted
    picks, weights = _monomials(lifted.shape[-1], sharpness, x.device)
    # products of picked columns: `prod` would look at values on the way back
    return reduce(mul, (lifted @ pick for pick in picks.to(x.dtype))) * weights.to(x.dtype)


_MONOMIALS: dict[tuple[int, int, torch.device], tuple[Tensor, Tensor]] = {}


@constant
def _monomials(variables: int, degree: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What picks the factors of each monomial, (degree, variables, features), and the root of its
    multinomial coefficient.

    Kept, because a CUDA graph that is being captured cannot copy them from the CPU.
    """
    key = (variables, degree, device)
    if key not in _MONOMIALS:
        chosen = list(combinations_with_replacement(range(variables), degree))
        roots = [
            (factorial(degree) / prod(factorial(c.count(i)) for i in set(c))) ** 0.5 for c in chosen
        ]
        with torch._C._DisableFuncTorch():  # pyright: ignore; else they belong to one vmap or grad
            picks = F.one_hot(torch.tensor(chosen), variables).permute(1, 2, 0).double()
            _MONOMIALS[key] = (
                picks.to(device),
                torch.tensor(roots, dtype=torch.float64).to(device),
            )
    return _MONOMIALS[key]


class State(NamedTuple):
    """All that the keys seen so far leave behind: Σ_j φ(r_j) v_jᵀ and Σ_j φ(r_j)."""

    weighted: Float[Tensor, "batch heads features d_v"]
    total: Float[Tensor, "batch heads features"]


def readout(
    oscillators: Float[Tensor, "batch heads i d_osc"],
    anchors: Float[Tensor, "heads j d_osc"],
    values: Float[Tensor, "batch heads j d_v"],
    allowed: Allowed,
    *,
    sharpness: int = 1,
    gain: float = 1.0,
    state: State | None = None,
) -> Float[Tensor, "batch heads i d_v"]:
    """Eqs. 5 and 6 for unit anchors, γ <= 1 and integer p, in O(T) time and memory.

    `state` stands for keys before the first of these, which every query may read.
    """
    psi, phi = (
        features(oscillators, sharpness, gain),
        key_features(anchors, allowed, sharpness, gain),
    )
    everyone = allowed.keys - allowed.queries if allowed.causal else allowed.keys
    if everyone < 0:  # the first queries see no key at all
        psi = psi[:, :, -everyone:]
    seen = after(state, phi[:, :, : max(0, everyone)], values[:, :, : max(0, everyone)])
    phi, values = phi[:, :, max(0, everyone) :], values[:, :, max(0, everyone) :]

    total = seen.total[:, :, None] + phi.cumsum(dim=2) if phi.shape[2] else seen.total[:, :, None]
    keys, denominator = total[..., :1], (psi * total).sum(dim=-1, keepdim=True)
    # all weights vanish: count every key once, which is what the constant first feature does
    vanished = denominator <= 4 * torch.finfo(psi.dtype).eps * keys
    only_first = F.pad(torch.ones_like(keys), (0, psi.shape[-1] - 1))
    psi = torch.where(vanished, only_first, psi)
    denominator = torch.where(vanished, keys, denominator)
    psi = psi / torch.where(keys > 0, denominator, 1)  # here, where it is narrow

    out = psi @ seen.weighted if not phi.shape[2] else _causal(psi, phi, values, seen.weighted)
    return out if everyone >= 0 else F.pad(out, (0, 0, -everyone, 0))


def key_features(
    anchors: Float[Tensor, "heads j d_osc"], allowed: Allowed, sharpness: int, gain: float
) -> Float[Tensor, "_ heads j features"]:
    """φ(r_j), and 0 for a key that may not be read."""
    phi = features(anchors, sharpness, gain)[None]
    for part in allowed.parts:
        phi = phi * part.mT.to(phi.dtype)
    return phi


def after(
    state: State | None,
    phi: Float[Tensor, "_ heads j features"],
    values: Float[Tensor, "batch heads j d_v"],
) -> State:
    """The state once the keys j have been seen too."""
    phi = phi.expand(values.shape[0], -1, -1, -1)
    weighted, total = phi.mT @ values, phi.sum(dim=2)
    return State(weighted, total) if state is None else State(state[0] + weighted, state[1] + total)


def _causal(psi: Tensor, phi: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """Σ_{j <= i} ψ_i·φ_j v_j: prefix states of all earlier blocks, and the triangle inside each."""
    tokens = psi.shape[2]
    block = min(BLOCK, tokens)
    if short := -tokens % block:
        psi, phi, values = (F.pad(x, (0, 0, 0, short)) for x in (psi, phi, values))
    psi, phi, v = (x.unflatten(2, (-1, block)) for x in (psi, phi, values))
    states = phi.mT @ v
    prefix = torch.cat([seen[:, :, None], states[:, :, :-1]], dim=2).cumsum(dim=2)
    before, inside = psi @ prefix, (psi @ phi.mT).mul_(psi.new_ones(block, block).tril())
    out = torch.baddbmm(*(x.flatten(0, 2) for x in (before, inside, v)))  # before + inside v
    return out.view(before.shape).flatten(2, 3)[:, :, :tokens]
