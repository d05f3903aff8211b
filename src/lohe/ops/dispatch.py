"""Oscillator attention as users call it: checks the inputs and chooses how to compute them.

The seam of the mechanism is `drive -> settle`: `drive` and `readout` are the digital sides of it,
and anything that maps h to points on the sphere can stand between them.
"""

import os
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.ops import chunked, linear, reference
from lohe.ops.available import HAS_TRITON, serves, shared_memory
from lohe.ops.checks import active, require_finite, require_positive
from lohe.ops.problem import Problem, problem
from lohe.ops.reference import as_typed, wide, widened
from lohe.ops.unit import unit
from lohe.transforms import mapped

BACKENDS = ("auto", "reference", "chunked", "triton")

SMALL = 2**16  # query-key pairs in a head up to which one plain tile is faster than chunks
MANY = 2**18  # pairs in all heads above which the kernels pay for short sequences, too
# what the kernels were written for; they are imported where they are used
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on the CPU, to be tested
NO_SCALE = 2.0**-100  # up to which a scale of scores is 0
MOST_PROGRAMS = 65_535  # along the second axis of a grid
MOST_TOKENS = 2**23  # of 256 numbers each: kernels count those of a head with 32 bits
WIDEST = {"d_h": 256, "d_v": 256, "d_osc": 64}
# bytes of shared memory: A100 and H100 have the first, H100 the second, L4 and RTX 4090 neither
WIDE_FLOAT32, WIDEST_FLOAT32 = 160 * 1024, 176 * 1024


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
    return attend(p, backend).to(v.dtype)


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
    return weights(p, unit(drive(p, "auto", shifted=True)))  # Eq. 4


def attend(p: Problem, backend: str = "auto") -> Tensor:
    """Eqs. 2-6 at the fixed point, in one go where a kernel does that."""
    assert p.v is not None
    if _choose(p, backend) == "triton" and p.is_linear and p.sharpness == 1 and p.one_mask:
        from lohe.ops.triton import attention

        assert isinstance(p.coupling, str)
        _check(p)
        gain = 1.0 if p.gain is None else float(p.gain)
        with as_typed(p.f):
            f, scale = _scaled_up(p)
            return attention.attention(
                f, p.g, p.v, p.anchors, p.drives, coupling=p.coupling, scale=scale, gain=gain
            )
    z = unit(drive(p, backend, shifted=True))  # Eq. 4
    return readout(p, z, backend, at_rest=True)


def drive(p: Problem, backend: str = "auto", *, shifted: bool = False) -> Tensor:
    """h of Eq. 3, (batch, heads, queries, d_osc), in float32 or wider.

    `shifted` lets an exponential coupling be scaled by a positive number in each row: right before
    Eq. 4, which does not see it, wrong before anything that settles at a rate of ‖h‖.
    """
    chosen = _choose(p, backend)
    with as_typed(p.f):
        if chosen in ("chunked", "triton"):
            assert isinstance(p.coupling, str)
            _check(p)
            options = {"coupling": p.coupling, "scale": p.scale, "shifted": shifted}
            if chosen == "chunked":
                return chunked.drive(wide(p.f), wide(p.g), p.anchors, p.drives, **options)
            from lohe.ops.triton import attention

            f, options["scale"] = _scaled_up(p)
            return attention.drive(f, p.g, p.anchors, p.drives, **options)
        return reference.drive(couplings(p, chosen, shifted=shifted), p.anchors)


def _scaled_up(p: Problem) -> tuple[Tensor, float]:
    """f and scale with the same scores and scale > 0, which the kernels divide by.

    Some 2^-100 is 0: a larger score than 2^100 has no square in float32 either.
    """
    if p.scale > NO_SCALE:
        return p.f, p.scale
    return (-p.f, -p.scale) if p.scale < -NO_SCALE else (0 * p.f, 1.0)


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
    p: Problem,
    oscillators: Float[Tensor, "batch heads i d_osc"],
    backend: str = "auto",
    *,
    at_rest: bool = False,
) -> Tensor:
    """Eqs. 5 and 6 from where the oscillators settled: (batch, heads, queries, d_v).

    `at_rest`: that is the fixed point of Eq. 4. Elsewhere all weights of a row may nearly vanish,
    and sums over keys before they meet z, which `linear` takes, would cancel to rounding.
    """
    assert p.v is not None
    backend = _choose(p, backend)
    z = oscillators.to(widened(p.v))
    with as_typed(p.f):
        if backend == "triton" and not (at_rest and p.is_linear and p.sharpness == 1):
            from lohe.ops.triton import sharp

            return sharp.readout(z, p.anchors, p.v, p.reads, sharpness=p.sharpness, gain=p.gain)
        v = wide(p.v)
        if backend != "reference" and at_rest and takes_state(p, p.reads.keys):
            power, gain = int(p.sharpness), 1.0 if p.gain is None else float(p.gain)
            return linear.readout(z, p.anchors, v, p.reads, sharpness=power, gain=gain)
        if backend == "chunked":
            return chunked.readout(z, p.anchors, v, p.reads, sharpness=p.sharpness, gain=p.gain)
        return reference.output(weights(p, z), v)


def takes_state(p: Problem, keys: int) -> bool:
    """Whether the readout at rest over so many keys is linear attention, and cheaper that way."""
    # keys that are read and do not drive may all stand against z, and z·r + 1 to the p is rounding
    if not p.is_linear or not (int(p.sharpness) == 1 or p.one_mask):
        return False
    return linear.pays(p.anchors.shape[-1], int(p.sharpness), keys)


def weights(p: Problem, oscillators: Float[Tensor, "batch heads i d_osc"]) -> Tensor:
    """a of Eq. 5, (batch, heads, queries, keys)."""
    with as_typed(p.f):
        z = oscillators.to(p.anchors.dtype)
        similarity = reference.similarity(z, p.anchors, p.gain)
        return reference.attention(similarity, sharpness=p.sharpness, allowed=p.reads.dense())


def _check(p: Problem) -> None:
    """Values, where `lohe.checks()` asks for it."""
    if active(default=False):
        require_finite(f=p.f, g=p.g, v=p.v, anchors=p.anchors)


def _choose(p: Problem, backend: str) -> str:
    """reference, chunked, triton, or (under `auto`) plain: the reference without value checks."""
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is not known. Choose one of {', '.join(BACKENDS)}.")
    if not isinstance(p.coupling, str):
        if backend in ("chunked", "triton"):
            raise ValueError(
                f'backend="{backend}" cannot serve a callable coupling: its derivative is not '
                'known. Use backend="reference", or one of the named couplings.'
            )
        return "reference"
    if backend == "triton" and (reason := _not_by_triton(p)) is not None:
        raise ValueError(
            f'backend="triton" cannot serve this call: {reason}. Use "auto": it takes the fastest '
            "that can; `lohe doctor` lists what runs here."
        )
    if backend != "auto":
        return backend
    pairs, heads = p.drives.queries * p.drives.keys, p.f.shape[0] * p.f.shape[1]
    long = pairs > SMALL
    if p.f.is_cuda and (long or pairs * heads > MANY) and _not_by_triton(p) is None:
        return "triton"
    return "chunked" if long else "plain"


def _not_by_triton(p: Problem) -> str | None:
    """Why the kernels cannot serve a call, known without looking at a value; None if they can."""
    if not HAS_TRITON:
        return "triton is not installed (pip install triton)"
    if not p.f.is_cuda and not INTERPRETED:
        return f"it needs a CUDA device, and the tensors are on {p.f.device}"
    if p.f.is_cuda and not serves(p.f.device):
        return "it needs an NVIDIA GPU of capability 8.0 (Ampere) or newer"
    if p.anchors.dtype == torch.float64:
        return "it computes in float32, and there are float64 inputs"
    # a pack of models under vmap is one call with more heads
    models = 1 if torch.compiler.is_compiling() else mapped()
    if models * p.f.shape[0] * p.f.shape[1] > MOST_PROGRAMS:
        return f"batch x heads is more than {MOST_PROGRAMS}, a limit of CUDA's"
    if max(p.drives.queries, p.drives.keys) > MOST_TOKENS:
        return f"there are more than {MOST_TOKENS} tokens, and it counts with 32 bits"
    if not p.drives.by_key:
        return "`mask` differs from query to query; `causal` and `key_mask` are served"
    widths = {"d_h": p.f.shape[-1], "d_osc": p.anchors.shape[-1]}
    widths |= {} if p.v is None else {"d_v": p.v.shape[-1]}
    for name, most in WIDEST.items():
        if widths.get(name, 0) > most:
            return f"{name} = {widths[name]} is more than {most}"
    d_h, d_osc, d_v = widths["d_h"], widths["d_osc"], widths.get("d_v", 0)
    wide = max(d_h, d_v) > 128 or (d_h > 64 and d_osc > 32)
    takes = WIDEST_FLOAT32 if d_h > 128 and d_osc > 32 else WIDE_FLOAT32
    if wide and p.f.dtype == torch.float32 and shared_memory(p.f.device) < takes:
        given = ", ".join(f"{name} = {width}" for name, width in widths.items())
        return f"float32 with {given} takes more shared memory than this GPU has; bfloat16 fits"
    return None
