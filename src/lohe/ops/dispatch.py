"""Oscillator attention as users call it: checks the inputs and chooses how to compute them.

The seam of the mechanism is `drive -> settle`: `drive` and `readout` are the digital sides of it,
and anything that maps h to points on the sphere can stand between them.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.ops import chunked, linear, reference
from lohe.ops.checks import active, require_finite, require_positive
from lohe.ops.problem import Problem, problem

Backend = Literal["auto", "reference", "chunked", "triton"]
BACKENDS = ("auto", "reference", "chunked", "triton")

SMALL = 2**16  # query-key pairs in a head up to which one plain tile is faster than chunks


def oscillator_attention(
    f: Tensor,  # (batch, heads, queries, d_h)
    g: Tensor,  # (batch, heads, keys, d_h)
    v: Tensor,  # (batch, heads, keys, d_v)
    anchors: Tensor,  # (heads, keys, d_osc)
    *,
    coupling: str | Callable[[Tensor], Tensor] = "softplus",
    sharpness: float | Tensor = 1,
    gain: float | Tensor | None = None,
    causal: bool = False,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    readout_mask: Tensor | None = None,
    scale: float | None = None,
    normalize_anchors: bool = True,
    backend: str = "auto",
) -> Tensor:
    """Eqs. 2-6 at the fixed point: (batch, heads, queries, d_v), in the dtype of `v`.

    `coupling` is softplus, relu (+ 1e-3), elu (+ 1), exp, or a callable (reference backend).
    `sharpness` p and `gain` γ are numbers or one per head, a_ij ∝ max(0, 1 + γ z_i·r_j)^p. Masks
    are boolean, True = may attend: `mask` (queries, keys), or 3 or 4 axes that broadcast;
    `key_mask` (batch, keys); `readout_mask` takes their place in Eq. 5. `causal` holds in both and
    aligns bottom-right: the last query sees all keys, also when queries < keys (decoding; SDPA
    aligns top-left). A row without any allowed key gives 0. `backend` is auto, reference, chunked
    or triton; one that cannot serve raises ValueError.

    >>> import torch, lohe
    >>> f, g, v = (torch.randn(2, 4, 10, 16) for _ in range(3))
    >>> anchors = torch.randn(4, 10, 2)  # normalised here, onto the circle
    >>> lohe.oscillator_attention(f, g, v, anchors, causal=True).shape
    torch.Size([2, 4, 10, 16])
    """
    p = problem(
        f,
        g,
        v,
        anchors,
        coupling=coupling,
        sharpness=sharpness,
        gain=gain,
        causal=causal,
        mask=mask,
        key_mask=key_mask,
        readout_mask=readout_mask,
        scale=scale,
        normalize_anchors=normalize_anchors,
    )
    z = reference.fixed_point(drive(p, backend, shifted=True))
    return readout(p, z, backend).to(v.dtype)


def attention_weights(
    f: Tensor,  # (batch, heads, queries, d_h)
    g: Tensor,  # (batch, heads, keys, d_h)
    anchors: Tensor,  # (heads, keys, d_osc)
    *,
    coupling: str | Callable[[Tensor], Tensor] = "softplus",
    sharpness: float | Tensor = 1,
    gain: float | Tensor | None = None,
    causal: bool = False,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    readout_mask: Tensor | None = None,
    scale: float | None = None,
    normalize_anchors: bool = True,
) -> Tensor:
    """The matrix a_ij of Eq. 5, (batch, heads, queries, keys), for looking at: it is T x T.

    >>> import torch, lohe
    >>> f, g = torch.randn(2, 1, 3, 5, 8)
    >>> a = lohe.attention_weights(f, g, torch.randn(3, 5, 2), causal=True)
    >>> a.shape, bool(torch.allclose(a.sum(-1), torch.ones(1, 3, 5)))
    (torch.Size([1, 3, 5, 5]), True)
    """
    p = problem(
        f,
        g,
        None,
        anchors,
        coupling=coupling,
        sharpness=sharpness,
        gain=gain,
        causal=causal,
        mask=mask,
        key_mask=key_mask,
        readout_mask=readout_mask,
        scale=scale,
        normalize_anchors=normalize_anchors,
    )
    return weights(p, reference.fixed_point(drive(p, "auto", shifted=True)))


def drive(p: Problem, backend: str = "auto", *, shifted: bool = False) -> Tensor:
    """h of Eq. 3, (batch, heads, queries, d_osc), in float32 or wider.

    `shifted` lets an exponential coupling be scaled by a positive number in each row: right before
    Eq. 4, which does not see it, wrong before anything that settles at a rate of ‖h‖.
    """
    chosen = _choose(p, backend)
    with torch.autocast(p.f.device.type, enabled=False):
        if chosen == "chunked":
            assert isinstance(p.coupling, str)
            if active(default=False):
                require_finite(f=p.f, g=p.g, v=p.v, anchors=p.anchors)
            return chunked.drive(
                p.f, p.g, p.anchors, p.drives, coupling=p.coupling, scale=p.scale, shifted=shifted
            )
        return reference.drive(couplings(p, chosen, shifted=shifted), p.anchors)


def couplings(p: Problem, backend: str = "auto", *, shifted: bool = False) -> Tensor:
    """w of Eq. 2, (batch, heads, queries, keys): for devices whose couplings err one by one."""
    named = isinstance(p.coupling, str)
    check = active(default=backend == "reference" or not named)
    if check:
        require_finite(f=p.f, g=p.g, v=p.v, anchors=p.anchors)
    allowed = p.drives.dense()
    w = reference.couplings(p.f, p.g, p.coupling, allowed=allowed, scale=p.scale, shifted=shifted)
    if check and not named:  # a named coupling is positive up to underflow
        require_positive(w, allowed)
    return w


def readout(
    p: Problem, oscillators: Float[Tensor, "batch heads i d_osc"], backend: str = "auto"
) -> Tensor:
    """Eqs. 5 and 6 from where the oscillators settled: (batch, heads, queries, d_v)."""
    assert p.v is not None
    backend = _choose(p, backend)
    z = oscillators.to(p.v.dtype)
    with torch.autocast(p.f.device.type, enabled=False):
        if backend != "reference" and takes_state(p, p.reads.keys):
            power, gain = int(p.sharpness), 1.0 if p.gain is None else float(p.gain)
            return linear.readout(z, p.anchors, p.v, p.reads, sharpness=power, gain=gain)
        if backend == "chunked":
            return chunked.readout(z, p.anchors, p.v, p.reads, sharpness=p.sharpness, gain=p.gain)
        return reference.output(weights(p, z), p.v)


def takes_state(p: Problem, keys: int) -> bool:
    """Whether the readout over so many keys is linear attention, and cheaper that way."""
    return p.is_linear and linear.pays(p.anchors.shape[-1], int(p.sharpness), keys)


def weights(p: Problem, oscillators: Float[Tensor, "batch heads i d_osc"]) -> Tensor:
    """a of Eq. 5, (batch, heads, queries, keys)."""
    with torch.autocast(p.f.device.type, enabled=False):
        z = oscillators.to(p.anchors.dtype)
        similarity = reference.similarity(z, p.anchors, p.gain)
        return reference.attention(similarity, sharpness=p.sharpness, allowed=p.reads.dense())


def _choose(p: Problem, backend: str) -> str:
    """reference, chunked, or (under `auto`) plain: the reference formulas without value checks."""
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is not known. Choose one of {', '.join(BACKENDS)}.")
    if backend == "triton":
        raise ValueError(
            'backend="triton" is not part of this version of lohe. Use "auto": it takes the '
            "fastest that "
            "there is; `lohe doctor` lists what can run here."
        )
    if not isinstance(p.coupling, str):
        if backend == "chunked":
            raise ValueError(
                "A callable coupling has no tiles: its derivative is not known. Use "
                'backend="reference", or '
                "one of the named couplings."
            )
        return "reference"
    if backend != "auto":
        return backend
    return "plain" if p.drives.queries * p.drives.keys <= SMALL else "chunked"
