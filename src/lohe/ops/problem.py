"""What a call of oscillator attention asks for: checked, in one dtype, masks in pieces."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.ops.coupling import COUPLINGS
from lohe.ops.masks import Allowed
from lohe.ops.reference import widened
from lohe.ops.unit import unit

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
Sharpness = float | Float[Tensor, " heads"]
Gain = float | Float[Tensor, " heads"] | None


@dataclass(frozen=True)
class Problem:
    """Inputs of Eqs. 2-6 for one call; `drives` masks Eq. 2, `reads` masks Eq. 5."""

    f: Float[Tensor, "batch heads i d_h"]
    g: Float[Tensor, "batch heads j d_h"]
    v: Float[Tensor, "batch heads j d_v"] | None
    anchors: Float[Tensor, "heads j d_osc"]
    drives: Allowed
    reads: Allowed
    coupling: str | Callable[[Tensor], Tensor]
    sharpness: Sharpness
    gain: Gain
    scale: float
    unit_anchors: bool

    @property
    def is_linear(self) -> bool:
        """Whether the clamp of Eq. 5 is idle and p an integer, known without looking at a value."""
        gain_bounded = self.gain is None or (not isinstance(self.gain, Tensor) and self.gain <= 1)
        whole = not isinstance(self.sharpness, Tensor) and float(self.sharpness).is_integer()
        return self.unit_anchors and gain_bounded and whole and self.reads.by_key

    @property
    def one_mask(self) -> bool:
        """Whether Eqs. 2 and 5 have the same masks."""
        return self.drives.parts is self.reads.parts


def problem(
    f: Tensor,
    g: Tensor,
    v: Tensor | None,
    anchors: Tensor,
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
) -> Problem:
    """Check everything that shapes and types can tell; raise ValueError otherwise."""
    _check_shapes(f, g, v, anchors)
    batch, heads, queries, d_h = f.shape
    keys = g.shape[2]
    if isinstance(coupling, str) and coupling not in COUPLINGS:
        raise ValueError(
            f"coupling={coupling!r} is not known. Choose one of {', '.join(COUPLINGS)}, or pass a "
            "callable that maps scores to positive couplings."
        )
    if not isinstance(coupling, str) and not callable(coupling):
        raise ValueError(f"coupling must be a name or a callable, got {type(coupling).__name__}.")
    _check_per_head("sharpness", sharpness, heads, least=1)
    if gain is not None:
        _check_per_head("gain", gain, heads, least=0)
    size = (batch, heads, queries, keys)
    shown = {"mask": mask, "key_mask": key_mask}
    drives = tuple(check_mask(name, m, size) for name, m in shown.items() if m is not None)
    reads = drives if readout_mask is None else (check_mask("readout_mask", readout_mask, size),)
    given = [x for x in (f, g, v) if x is not None]
    precise = widened(anchors, *given)
    # 16-bit inputs stay as they are, for kernels that read them; other backends widen them
    same = precise == torch.float32 and len({x.dtype for x in given}) == 1
    dtype = f.dtype if same else precise
    anchors = anchors.to(precise)
    return Problem(
        f=f.to(dtype),
        g=g.to(dtype),
        v=None if v is None else v.to(dtype),
        anchors=unit(anchors) if normalize_anchors else anchors,
        drives=Allowed(queries, keys, f.device, causal, drives),
        reads=Allowed(queries, keys, f.device, causal, reads),
        coupling=coupling,
        sharpness=sharpness.to(precise) if isinstance(sharpness, Tensor) else sharpness,
        gain=gain.to(precise) if isinstance(gain, Tensor) else gain,
        scale=d_h**-0.5 if scale is None else _finite(scale),
        unit_anchors=normalize_anchors,
    )


def _check_shapes(f: Tensor, g: Tensor, v: Tensor | None, anchors: Tensor) -> None:
    named = {"f": f, "g": g, "anchors": anchors} | ({} if v is None else {"v": v})
    for name, x in named.items():
        if not isinstance(x, Tensor) or x.dtype not in DTYPES:
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(
                f"`{name}` must be a tensor of float64, float32, bfloat16 or float16, got {kind}."
            )
        if x.ndim != (3 if name == "anchors" else 4):
            layout = (
                "(heads, keys, d_osc)" if name == "anchors" else "(batch, heads, tokens, features)"
            )
            raise ValueError(f"`{name}` must be {layout}, got shape {tuple(x.shape)}.")
        if x.device != f.device:
            raise ValueError(
                f"`{name}` is on {x.device} but `f` is on {f.device}; move one of them."
            )
    batch, heads, queries, d_h = f.shape
    keys = g.shape[2]
    if queries == 0 or keys == 0:
        raise ValueError(
            f"Attention needs at least one query and one key, got {queries} and {keys}."
        )
    if d_h == 0:
        raise ValueError(f"`f` must have at least one feature, got shape {tuple(f.shape)}.")
    if g.shape != (batch, heads, keys, d_h):
        raise ValueError(
            f"`g` must match `f` in batch, heads and features: f is {tuple(f.shape)}, g "
            f"{tuple(g.shape)}."
        )
    if v is not None and v.shape[:3] != g.shape[:3]:
        raise ValueError(
            f"`v` needs one value for each key: g is {tuple(g.shape)}, v is {tuple(v.shape)}."
        )
    if anchors.shape[:2] != (heads, keys):
        raise ValueError(
            f"`anchors` must hold one anchor for each head and key, ({heads}, {keys}, d_osc), got "
            f"{tuple(anchors.shape)}. Anchors belong to positions (Sec. 2): slice the table to the "
            "keys, anchors[:, :keys]."
        )
    if anchors.shape[2] < 2:
        raise ValueError(
            f"d_osc must be at least 2 (a circle), got anchors with {anchors.shape[2]} "
            "component(s)."
        )


def _check_per_head(name: str, x: float | Tensor, heads: int, *, least: float) -> None:
    bound = ">= 1 (p of Eq. 5)" if least == 1 else "> 0"
    if isinstance(x, Tensor):
        if x.shape != (heads,) or not x.is_floating_point():
            raise ValueError(
                f"`{name}` as a tensor must hold one floating-point number for each of the {heads} "
                f"heads, got shape {tuple(x.shape)} of {x.dtype}. For one number, pass a Python "
                "number."
            )
    elif not isinstance(x, Real) or isinstance(x, bool):
        raise ValueError(
            f"`{name}` must be a number or a tensor, got {x!r}. A learned one belongs to a layer, "
            "`lohe.OscillatorAttention`."
        )
    elif not (x >= 1 if least == 1 else x > 0) or x == float("inf"):
        raise ValueError(f"`{name}` must be finite and {bound}, got {x}.")


def check_mask(name: str, mask: Tensor, size: tuple[int, int, int, int]) -> Tensor:
    """A boolean mask as (batch | 1, heads | 1, queries | 1, keys | 1)."""
    batch, heads, _, keys = size
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"`{name}` must be a boolean tensor (True = may attend), got {kind}. One of 1 (may "
            "attend) and 0 becomes `mask.bool()`, an additive one of 0 (may attend) and -inf "
            "`mask == 0`; other additive biases have no meaning here."
        )
    if name == "key_mask":
        if mask.shape != (batch, keys):
            raise ValueError(
                f"`key_mask` must be (batch, keys) = ({batch}, {keys}), got {tuple(mask.shape)}."
            )
        return mask[:, None, None, :]
    shape = tuple(mask.shape)
    if mask.ndim == 2:
        full = mask[None, None]
    elif mask.ndim == 4:
        full = mask
    elif mask.ndim == 3:
        if batch == heads != 1 and shape[0] == batch:
            raise ValueError(
                f"`{name}` of shape {shape} is ambiguous: batch and heads are both {batch}. Write "
                f"it with four axes, {name}[:, None] (a mask for each sequence) or {name}[None] "
                "(for each head)."
            )
        full = mask[:, None] if shape[0] == batch else mask[None]
    else:
        raise ValueError(f"`{name}` must have 2, 3 or 4 axes, got {mask.ndim}.")
    if any(n not in (1, want) for n, want in zip(full.shape, size, strict=True)):
        hint = ""
        if shape == (batch, keys):
            hint = " A mask for the keys of each sequence goes in `key_mask`."
        raise ValueError(
            f"`{name}` must broadcast to (batch, heads, queries, keys) = {size}, got {shape}.{hint}"
        )
    return full


def _finite(scale: float) -> float:
    if not isinstance(scale, Real) or not math.isfinite(scale):
        raise ValueError(f"scale must be a finite number, got {scale}; None is d_h^-1/2.")
    return float(scale)
