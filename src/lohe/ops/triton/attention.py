"""Launches the kernels: the drive alone, and Eqs. 2-6 as one op where the readout is linear.

Both are `torch.library` ops with fake kernels, paired with their gradients by `ops.autograd`.
"""
# Triton's decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from math import log2
from typing import Any, NamedTuple

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from lohe.ops.autograd import Pair, register
from lohe.ops.masks import Allowed
from lohe.ops.triton import kernels

CHUNK = 64  # blocks that a scan adds at a time
PACKED = 128  # rows that a program packs
LOOP = ("COUPLING", "CAUSAL", "SHIFTED", "FAST", "PRECISION", "D_H", "D_R", "DH")


class Tiles(NamedTuple):
    """Rows that a program owns, rows that it goes through at a time, and how it is compiled."""

    block: int
    step: int
    warps: int
    stages: int
    tma: bool = False  # whether the copy engine reads the tiles


# --- what is asked for ---------------------------------------------------------------------------


def drive(
    f: Float[Tensor, "batch heads i d_h"],
    g: Float[Tensor, "batch heads j d_h"],
    anchors: Float[Tensor, "heads j d_osc"],
    allowed: Allowed,
    *,
    coupling: str,
    scale: float,
    shifted: bool,
) -> Float[Tensor, "batch heads i d_osc"]:
    """h_i = Σ_j w_ij r_j of Eqs. 2 and 3, in float32; f and g may be 16-bit."""
    options = (coupling, allowed.causal, shifted and coupling == "exp", scale)
    return _apply_drive((f, g, anchors.float()), _key_masks(allowed), options)


def attention(
    f: Float[Tensor, "batch heads i d_h"],
    g: Float[Tensor, "batch heads j d_h"],
    v: Float[Tensor, "batch heads j d_v"],
    anchors: Float[Tensor, "heads j d_osc"],
    allowed: Allowed,
    *,
    coupling: str,
    scale: float,
    gain: float,
) -> Float[Tensor, "batch heads i d_v"]:
    """Eqs. 2-6 at p = 1 for unit anchors and γ <= 1, in the dtype of v."""
    options = (coupling, allowed.causal, scale, gain)
    return _apply_attention((f, g, v, anchors.float()), _key_masks(allowed), options)


def _key_masks(allowed: Allowed) -> tuple[Tensor, ...]:
    """The masks of keys met into one, (batch | 1, heads | 1, 1, keys)."""
    if not allowed.parts:
        return ()
    met = allowed.parts[0]
    for part in allowed.parts[1:]:
        met = met & part
    return (met.expand(-1, -1, -1, allowed.keys).contiguous(),)


# --- how it is cut -------------------------------------------------------------------------------


def tiles(kind: str, f: Tensor, d_osc: int) -> Tiles:
    """Sizes for forward, queries (df) and keys (dg, dr), by the width of a head and the dtype."""
    wide = f.element_size() == 4 or f.shape[-1] > 128
    if wide:
        return Tiles(32, 32, 4, 2)
    if f.shape[-1] > 64:
        return {
            "forward": Tiles(128, 64, 4, 3),
            "queries": Tiles(128, 64, 8, 2),
            "keys": Tiles(128, 64, 8, 2),
        }[kind]
    return {
        "forward": Tiles(128, 128, 4, 3),
        "queries": Tiles(128, 64, 4, 3),
        "keys": Tiles(128, 64, 4, 2),
    }[kind]


class _Call(NamedTuple):
    """What every kernel of a call is told."""

    batch: int
    heads: int
    queries: int
    keys: int
    origin: int  # where the first block of keys starts, <= 0, so that blocks end at the diagonal
    block: int
    tensors: tuple[Tensor, ...]  # f, g, v, as the kernels read them
    r: Tensor  # (heads, keys, d_osc), float32
    mask: Tensor
    constants: dict[str, Any]
    readout: dict[str, Any]

    @property
    def key_blocks(self) -> int:
        return triton.cdiv(self.keys - self.origin, self.block)

    @property
    def query_blocks(self) -> int:
        return triton.cdiv(self.queries, self.block)

    @property
    def of_mask(self) -> tuple[int, int]:
        """Strides of the mask over batch and heads, 0 where it broadcasts."""
        return _over(self.mask, 0), _over(self.mask, 1)

    def strides(self, *which: int) -> tuple[int, ...]:
        """(batch, head, token) of some of f, g, v."""
        return tuple(s for n in which for s in self.tensors[n].stride()[:3])


def _over(x: Tensor, axis: int) -> int:
    return 0 if x.shape[axis] == 1 else x.stride(axis)


def _call(f: Tensor, g: Tensor, v: Tensor | None, r: Tensor, masks: list[Tensor], coupling: str,
          causal: bool, shifted: bool) -> _Call:  # fmt: skip
    (batch, heads, queries, d_h), keys, d_osc = f.shape, g.shape[2], r.shape[-1]
    block = tiles("forward", f, d_osc).block
    offset = (keys - queries) % block if causal else 0
    tensors = tuple(_rows_together(x) for x in (f, g, g if v is None else v))
    strict = f.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    d_v = tensors[2].shape[-1]
    constants = {
        "COUPLING": coupling,
        "CAUSAL": causal,
        "MASKED": bool(masks),
        "SHIFTED": shifted,
        "FAST": f.dtype != torch.float32,
        "PRECISION": "tf32x3" if strict else "tf32",
        "D_OSC": d_osc,
        "D_H": d_h,
        "D_R": max(16, triton.next_power_of_2(d_osc)),
        "DH": max(16, triton.next_power_of_2(d_h)),
    }
    r = r.contiguous()
    mask = masks[0] if masks else r.new_empty(1, 1, 1, 1, dtype=torch.bool)
    return _Call(
        batch,
        heads,
        queries,
        keys,
        offset - block if offset else 0,
        block,
        tensors,
        r,
        mask,
        constants,
        {"D_V": d_v, "DV": max(16, triton.next_power_of_2(d_v))},
    )


def _packed(call: _Call, x: Tensor, dtype: torch.dtype, *, anchors: bool) -> Tensor:
    """Float32 rows (batch | 1, heads, rows, d_osc) as the matrix units read them, D_R wide.

    Anchors are masked, and what rounding lost of them stands in the middle (`kernels._pack`).
    """
    heads, rows = x.shape[1:3]
    batch = call.mask.shape[0] if anchors else x.shape[0]
    out = x.new_empty(batch, heads, rows, call.constants["D_R"], dtype=dtype)
    kernels._pack[(triton.cdiv(rows, PACKED), batch * heads)](
        x, call.mask, out, _over(x, 0), x.stride(1), *call.of_mask, heads, rows,
        MASKED=anchors and bool(call.constants["MASKED"]), MIDDLE=anchors,
        D_OSC=x.shape[-1], D_R=out.shape[-1], BLOCK=PACKED, num_warps=4,
    )  # fmt: skip
    return out


def _power(call: _Call, scale: float) -> tuple[float, float]:
    """2^k and scale / 2^k. In 16 bits the couplings, about s / 8, are float16: 3 digits more than
    bfloat16, and room up to s = 5e5."""
    power = 2.0 ** (round(log2(scale)) - 3) if call.constants["FAST"] and scale > 0 else 1.0
    return power, scale / power


def _rows_together(x: Tensor) -> Tensor:
    """As it is if each token's features lie side by side, else copied."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _some(constants: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: constants[name] for name in names}


# --- forward -------------------------------------------------------------------------------------


def _launch_forward(
    call: _Call, sums: tuple[Tensor, Tensor] | None, scale: float, gain: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """o, h, the denominators of Eq. 5 and the largest scores; without sums over keys, h alone."""
    f, g, v = call.tensors
    rows = (call.batch, call.heads, call.queries)
    readout = sums is not None
    o = v.new_empty(*rows, v.shape[-1] if readout else 0)
    h = call.r.new_empty(*rows, call.r.shape[-1])
    den, top = (call.r.new_empty(*rows, 1 if on else 0) for on in (readout, _shifted(call)))
    w, n = sums if sums is not None else (h, h)
    cut = tiles("forward", f, call.r.shape[-1])
    coupled = torch.float16 if call.constants["FAST"] else torch.float32
    if call.constants["COUPLING"] == "exp" and not _shifted(call):
        coupled = f.dtype  # no bound
    packed = _packed(call, call.r[None], coupled, anchors=True)
    power, scale = _power(call, scale)
    kernels._forward[(call.query_blocks, call.batch * call.heads)](
        f, g, v, call.r, packed, call.mask, w, n, o, h, den, top,
        *call.strides(0, 1, 2), call.r.stride(0), _over(packed, 0), packed.stride(1), *call.of_mask,
        call.heads, call.queries, call.keys, call.origin, call.key_blocks, scale, power, gain,
        **call.constants, **call.readout, READOUT=readout,
        BLOCK=call.block, STEP=cut.step, TMA=cut.tma, num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return o, h, den, top


def _shifted(call: _Call) -> bool:
    return bool(call.constants["SHIFTED"])


def _sums_over_keys(call: _Call) -> tuple[Tensor, Tensor]:
    """Running sums over blocks of keys: Σ m [1; r] vᵀ and Σ m [1; r]."""
    _, _, v = call.tensors
    features, blocks = 1 + call.r.shape[-1], call.key_blocks
    w = call.r.new_empty(call.batch, call.heads, blocks * features, v.shape[-1])
    n = call.r.new_empty(call.batch, call.heads, blocks, features)
    kernels._block_sums[(blocks, call.batch * call.heads)](
        v, call.r, call.mask, w, n,
        *call.strides(2), call.r.stride(0), *call.of_mask,
        call.heads, call.keys, call.origin, blocks,
        **_some(call.constants, "D_OSC", "D_R", "MASKED", "PRECISION"), **call.readout,
        BLOCK=call.block, num_warps=4,
    )  # fmt: skip
    _running(call, w, n, blocks, reverse=False)
    return w, n


def _running(call: _Call, w: Tensor, n: Tensor, blocks: int, *, reverse: bool) -> None:
    features = 1 + call.r.shape[-1]
    kernels._scan[(call.batch * call.heads, features)](
        w, n, blocks, **call.readout, FEATURES=features, REVERSE=reverse,
        CHUNK=min(CHUNK, triton.next_power_of_2(blocks)), num_warps=4,
    )  # fmt: skip


@torch.library.custom_op("lohe::triton_attention", mutates_args=())
def attention_forward(
    f: Tensor, g: Tensor, v: Tensor, r: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, scale: float, gain: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """o; h, the denominators of Eq. 5, the largest scores, and the running sums over keys."""
    call = _call(f, g, v, r, masks, coupling, causal, coupling == "exp")
    w, n = _sums_over_keys(call)
    return (*_launch_forward(call, (w, n), scale, gain), w, n)


@attention_forward.register_fake
def _(f, g, v, r, masks, coupling, causal, scale, gain):  # pyright: ignore
    call = _call(f, g, v, r, masks, coupling, causal, coupling == "exp")
    rows, d_osc, blocks = f.shape[:3], r.shape[-1], call.key_blocks
    return (
        v.new_empty(*rows, v.shape[-1]),
        r.new_empty(*rows, d_osc),
        r.new_empty(*rows, 1),
        r.new_empty(*rows, int(coupling == "exp")),
        r.new_empty(*rows[:2], blocks * (1 + d_osc), v.shape[-1]),
        r.new_empty(*rows[:2], blocks, 1 + d_osc),
    )


@torch.library.custom_op("lohe::triton_drive", mutates_args=())
def drive_forward(
    f: Tensor, g: Tensor, r: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, shifted: bool, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """h, and the largest score of each row if an exponential coupling is shifted by it."""
    call = _call(f, g, None, r, masks, coupling, causal, shifted)
    _, h, _, top = _launch_forward(call, None, scale, 1.0)
    return h, top


@drive_forward.register_fake
def _(f, g, r, masks, coupling, causal, shifted, scale):  # pyright: ignore
    return r.new_empty(*f.shape[:3], r.shape[-1]), r.new_empty(*f.shape[:3], int(shifted))


# --- backward ------------------------------------------------------------------------------------


def _launch_backward(
    call: _Call, dh: Tensor, top: Tensor, scale: float, dr: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """df, dg, dr from dh; each sequence's part of `dr` is added to those given."""
    f, g, _ = call.tensors
    packed = _packed(call, call.r[None], f.dtype, anchors=True)
    dh = _packed(call, dh, f.dtype, anchors=False)
    d_osc = call.r.shape[-1]
    atomic = not torch.are_deterministic_algorithms_enabled()
    df = torch.zeros(f.shape, dtype=torch.float32, device=f.device) if atomic else _like(f)
    dg, add = _like(g), dr is not None
    dr = dr if add else call.r.new_empty(call.batch, call.heads, call.keys, d_osc)
    if not atomic:
        cut = tiles("queries", f, d_osc)
        kernels._queries_backward[(triton.cdiv(call.queries, cut.block), call.batch * call.heads)](
            f, g, packed, dh, top, df,
            *call.strides(0, 1), _over(packed, 0), packed.stride(1),
            call.heads, call.queries, call.keys, scale,
            **_some(call.constants, *LOOP), BLOCK=cut.block, STEP=cut.step,
            TMA=cut.tma, num_warps=cut.warps, num_stages=cut.stages,
        )  # fmt: skip
    cut = tiles("keys", f, d_osc)
    kernels._keys_backward[(triton.cdiv(call.keys, cut.block), call.batch * call.heads)](
        f, g, packed, call.mask, dh, top, dg, dr, df,
        *call.strides(0, 1), _over(packed, 0), packed.stride(1), *call.of_mask,
        call.heads, call.queries, call.keys, scale,
        **call.constants, ADD=add, ATOMIC=atomic,
        BLOCK=cut.block, STEP=cut.step, TMA=cut.tma, num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return df.to(f.dtype), dg, dr.sum(dim=0)


def _like(x: Tensor) -> Tensor:
    """Uninitialised, of its shape and dtype, in the order of its axes."""
    return x.new_empty(x.shape)


@torch.library.custom_op("lohe::triton_attention_backward", mutates_args=())
def attention_backward(
    do: Tensor, f: Tensor, g: Tensor, v: Tensor, r: Tensor,
    o: Tensor, h: Tensor, den: Tensor, top: Tensor, w: Tensor, n: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, scale: float, gain: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    call = _call(f, g, v, r, masks, coupling, causal, coupling == "exp")
    features, blocks = 1 + r.shape[-1], call.query_blocks
    dh, c = torch.empty_like(h), torch.empty_like(den)
    s = r.new_empty(call.batch, call.heads, blocks * features, v.shape[-1])
    t = r.new_empty(call.batch, call.heads, blocks, features)
    kernels._before[(blocks, call.batch * call.heads)](
        do, o, call.tensors[2], call.r, call.mask, w, n, h, den, dh, c, s, t,
        *call.strides(2), call.r.stride(0), *call.of_mask,
        call.heads, call.queries, call.keys, call.origin, call.key_blocks, gain,
        **_some(call.constants, "CAUSAL", "MASKED", "PRECISION", "D_OSC", "D_R"), **call.readout,
        BLOCK=call.block, num_warps=8, num_stages=1,
    )  # fmt: skip
    _running(call, s, t, blocks, reverse=True)
    dv, dr = _like(v), r.new_empty(call.batch, *r.shape)
    kernels._after[(call.key_blocks, call.batch * call.heads)](
        do, call.tensors[2], call.r, call.mask, h, den, c, s, t, dr, dv,
        *call.strides(2), call.r.stride(0), *call.of_mask,
        call.heads, call.queries, call.keys, call.origin, blocks, gain,
        **_some(call.constants, "CAUSAL", "MASKED", "PRECISION", "D_OSC", "D_R"), **call.readout,
        BLOCK=call.block, num_warps=8, num_stages=1,
    )  # fmt: skip
    df, dg, dr = _launch_backward(call, dh, top, scale, dr)
    return df, dg, dv, dr


@attention_backward.register_fake
def _(do, f, g, v, r, o, h, den, top, w, n, masks, coupling, causal, scale, gain):  # pyright: ignore
    return tuple(x.new_empty(x.shape) for x in (f, g, v, r))


@torch.library.custom_op("lohe::triton_drive_backward", mutates_args=())
def drive_backward(
    dh: Tensor, f: Tensor, g: Tensor, r: Tensor, _h: Tensor, top: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, shifted: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    call = _call(f, g, None, r, masks, coupling, causal, shifted)
    return _launch_backward(call, dh, top, scale)


@drive_backward.register_fake
def _(dh, f, g, r, _h, top, masks, coupling, causal, shifted, scale):  # pyright: ignore
    return tuple(x.new_empty(x.shape) for x in (f, g, r))


_apply_drive = register("triton_drive", Pair(drive_forward, drive_backward, inputs=3, outputs=2))
_apply_attention = register(
    "triton_attention", Pair(attention_forward, attention_backward, inputs=4, outputs=6)
)
