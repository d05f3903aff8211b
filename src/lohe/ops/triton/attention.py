"""Launches the kernels: the drive alone, and Eqs. 2-6 as one op where the readout is linear.

Both are `torch.library` ops with fake kernels, paired with their gradients by `ops.autograd`.
"""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from math import log2
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.ops.autograd import Pair, op, register
from lohe.ops.available import tf32_allowed
from lohe.ops.masks import Allowed, met
from lohe.ops.triton import decode, fitting, kernels
from lohe.ops.triton.sizes import cdiv, next_power_of_2, rows_together

BLOCK = 64  # queries or keys of a program, and keys that share a running sum
SCANNED = 64 * 64  # numbers that a scan adds at a time: what the registers of a warp hold
PACKED = 128  # rows that a program packs
READ = ("CAUSAL", "MASKED", "PRECISION", "D_OSC", "D_R", "D_V", "DV")
LOOP = ("COUPLING", "CAUSAL", "MASKED", "SHIFTED", "FAST", "PRECISION", "D_OSC", "D_H", "D_R", "DH")


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
    masks = _key_masks(allowed)
    if masks and coupling == "exp" and not shifted:
        g = g * masks[0].mT  # the exponential of a masked score may be infinite
    return _apply_drive((f, g, anchors.float()), masks, options)


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
    mask = met(allowed.parts)
    return () if mask is None else (mask.expand(-1, -1, -1, allowed.keys).contiguous(),)


# --- what every kernel of a call is told ---------------------------------------------------------


class _Call(NamedTuple):
    batch: int
    heads: int
    queries: int
    keys: int
    origin: int  # where the first block of keys starts, <= 0, so that blocks end at the diagonal
    tensors: tuple[Tensor, ...]  # f, g, v, as the kernels read them
    r: Tensor  # (heads, keys, d_osc), float32
    mask: Tensor  # (batch | 1, heads | 1, 1, keys), or nothing
    constants: dict[str, Any]

    @property
    def key_blocks(self) -> int:
        return cdiv(self.keys - self.origin, BLOCK)

    @property
    def query_blocks(self) -> int:
        return cdiv(self.queries, BLOCK)

    @property
    def pairs(self) -> int:
        return self.batch * self.heads * self.queries * self.keys

    @property
    def of_mask(self) -> tuple[int, int]:
        """Strides of the mask over batch and heads."""
        return _over(self.mask, 0), _over(self.mask, 1)

    def strides(self, *which: int) -> tuple[int, ...]:
        """(batch, head, token) of some of f, g, v."""
        return tuple(s for n in which for s in self.tensors[n].stride()[:3])

    def only(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: self.constants[name] for name in names}


def _over(x: Tensor, axis: int) -> int:
    """Stride of an axis, 0 where it broadcasts."""
    return 0 if x.shape[axis] == 1 else x.stride(axis)


def _call(
    f: Tensor, g: Tensor, v: Tensor | None, r: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, shifted: bool,
) -> _Call:  # fmt: skip
    (batch, heads, queries, d_h), keys, d_osc = f.shape, g.shape[2], r.shape[-1]
    tensors = tuple(rows_together(x) for x in (f, g, g if v is None else v))
    d_v = tensors[2].shape[-1]
    exact = f.dtype == torch.float32 and not tf32_allowed()
    offset = (keys - queries) % BLOCK if causal else 0
    constants = {
        "COUPLING": coupling,
        "CAUSAL": causal,
        "MASKED": bool(masks),
        "SHIFTED": shifted,
        "FAST": f.dtype != torch.float32,
        "PRECISION": "tf32x3" if exact else "tf32",
        "D_OSC": d_osc,
        "D_H": d_h,
        "D_V": d_v,
        "D_R": max(16, next_power_of_2(d_osc)),
        "DH": max(16, next_power_of_2(d_h)),
        "DV": max(16, next_power_of_2(d_v)),
    }
    mask = masks[0] if masks else r.new_empty(1, 1, 1, 1, dtype=torch.bool)
    origin = offset - BLOCK if offset else 0
    return _Call(batch, heads, queries, keys, origin, tensors, r.contiguous(), mask, constants)


# --- how it is cut -------------------------------------------------------------------------------


class Tiles(NamedTuple):
    """Rows that a program goes through at a time, and how it is compiled."""

    step: int
    warps: int
    stages: int
    registers: int | None = None  # at most so many for a thread: more programs share a processor


def tiles(kind: str, f: Tensor, causal: bool) -> tuple[Tiles, ...]:
    """For forward, queries (df) and keys (dg, dr): the fastest seen on an H200, then smaller ones,
    of which other devices take the fastest that they have room for (`fitting`).
    """
    if f.element_size() == 4:  # three TF32 products for one
        first = Tiles(32, 4, 2)  # with 8 warps Triton 3.6 writes past its shared memory
    elif f.shape[-1] <= 64:
        first = {
            "forward": Tiles(64, 4, 3, 128) if causal else Tiles(64, 4, 4),
            "queries": Tiles(64, 4, 3, 128 if causal else None),
            "keys": Tiles(64, 4, 3, 168),
        }[kind]
    elif f.shape[-1] <= 128:
        first = Tiles(64, 4, 3)
        if kind == "forward":
            first = Tiles(64, 4, 4, 168) if causal else Tiles(64, 4, 3, 168)
    else:
        first = Tiles(32, 4, 2)
    smaller = Tiles(64, 4, 2), Tiles(32, 4, 2), Tiles(16, 4, 1)
    return first, *(tile for tile in smaller if tile.step <= first.step and tile != first)


def _launch(
    kind: str,
    call: _Call,
    rows: int,
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    adds_to: Tensor | None = None,
) -> None:
    """Run a kernel over blocks of rows."""
    kernel = {
        "forward": kernels.drive_and_readout,
        "queries": kernels.drive_queries,
        "keys": kernels.drive_keys,
    }[kind]
    f = call.tensors[0]
    grid = (cdiv(rows, BLOCK), call.batch * call.heads)

    def go(tile: Tiles) -> None:
        kernel[grid](
            *arguments, **constants, BLOCK=BLOCK, STEP=tile.step,
            num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.registers,
        )  # fmt: skip

    key = (kind, f.dtype, f.device, *constants.values())
    cuts = tiles(kind, f, bool(call.constants["CAUSAL"]))
    fitting.launch(key, cuts, go, f.device, call.pairs, adds_to)


def _registers(call: _Call, most: int, up_to: int = 64) -> int | None:
    """At most so many for a thread, so that more programs share a processor; where it was measured:
    for values up to so wide."""
    return most if call.constants["DV"] <= up_to else None


def _packed(call: _Call, x: Tensor, dtype: torch.dtype, *, anchors: bool) -> Tensor:
    """Float32 rows (batch | 1, heads, rows, d_osc) as the matrix units read them, D_R wide.

    Anchors are masked, and what rounding lost of them stands in the middle (`kernels.pack`).
    """
    heads, rows = x.shape[1:3]
    batch = call.mask.shape[0] if anchors else x.shape[0]
    out = _room_for_packed(call, batch, rows, dtype)
    kernels.pack[(cdiv(rows, PACKED), batch * heads)](
        x, call.mask, out, _over(x, 0), x.stride(1), *call.of_mask, heads, rows,
        MASKED=anchors and bool(call.constants["MASKED"]), MIDDLE=anchors,
        D_OSC=x.shape[-1], D_R=out.shape[-1], BLOCK=PACKED, num_warps=4,
    )  # fmt: skip
    return out


def _room_for_packed(call: _Call, batch: int, rows: int, dtype: torch.dtype) -> Tensor:
    return call.r.new_empty(batch, call.heads, rows, call.constants["D_R"], dtype=dtype)


def _power(call: _Call, scale: float) -> tuple[float, float]:
    """2^k and scale / 2^k, for f to be multiplied with the one and products with the other.

    In 16 bits the couplings, about s / 8, are float16: three digits more than bfloat16, and room
    up to s = 5e5.
    """
    power = 2.0 ** (round(log2(abs(scale))) - 3) if call.constants["FAST"] and scale else 1.0
    return power, scale / power


# --- forward -------------------------------------------------------------------------------------


def _launch_forward(
    call: _Call, packed: Tensor, sums: tuple[Tensor, Tensor] | None, scale: float, gain: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """o, h, the denominators of Eq. 5 and the largest scores; without sums over keys, h alone."""
    f, g, v = call.tensors
    rows = (call.batch, call.heads, call.queries)
    readout, shifted = sums is not None, bool(call.constants["SHIFTED"])
    o = v.new_empty(*rows, v.shape[-1] if readout else 0)
    h = call.r.new_empty(*rows, call.r.shape[-1])
    den, top = (call.r.new_empty(*rows, int(on)) for on in (readout, shifted))
    power, scale = _power(call, scale)
    arguments = (
        f, g, v, call.r, packed, call.mask, *(sums or (h, h)), o, h, den, top,
        *call.strides(0, 1, 2), call.r.stride(0), _over(packed, 0), packed.stride(1), *call.of_mask,
        _over(sums[1], 0) if sums else 0,
        call.heads, call.queries, call.keys, call.origin, call.key_blocks, scale, power, gain,
    )  # fmt: skip
    _launch("forward", call, call.queries, arguments, {**call.constants, "READOUT": readout})
    return o, h, den, top


def _coupled(call: _Call) -> torch.dtype:
    """Of couplings, when they meet anchors."""
    if call.constants["COUPLING"] == "exp" and not call.constants["SHIFTED"]:
        return call.tensors[0].dtype  # there is no bound on them
    return torch.float16 if call.constants["FAST"] else torch.float32


def _prepared(call: _Call) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Packed anchors; Σ m [1; r] vᵀ up to each block of keys and Σ m [1; r] up to each key."""
    v, blocks, features = call.tensors[2], call.key_blocks, 1 + call.r.shape[-1]
    w, n = _room_for_sums(call, blocks), _room_for_counts(call)
    sequences = n.shape[0] * call.heads
    packed = _room_for_packed(call, n.shape[0], call.keys, _coupled(call))
    # four components side by side are read as one (eight would take more registers than the sums of
    # blocks), and few of them one by one with longer chunks
    at_once, chunk = (1, 1024) if features <= kernels.FEW.value else (4, 256)
    rows = PACKED * 16 // packed.shape[-1]
    counts, packs = sequences * cdiv(features, at_once), sequences * cdiv(call.keys, rows)
    kernels.prepare[(counts + packs + blocks * call.batch * call.heads,)](
        v, call.r, call.mask, w, n, packed,
        *call.strides(2), call.r.stride(0), *call.of_mask,
        call.heads, call.keys, call.origin, blocks, counts, packs,
        **call.only(("D_OSC", "D_V", "D_R", "DV", "MASKED", "PRECISION")), BLOCK=BLOCK,
        FEATURES=at_once, CHUNK=min(chunk, next_power_of_2(call.keys)), ROWS=rows,
        num_warps=1 if call.r.shape[-1] <= kernels.FEW.value else 2,
    )  # fmt: skip
    _run(call, w, None, blocks)
    return packed, (w, n)


def _room_for_sums(call: _Call, blocks: int) -> Tensor:
    """For each block (1 + d_osc) rows of d_v numbers."""
    rows = blocks * (1 + call.r.shape[-1])
    return call.r.new_empty(call.batch, call.heads, rows, call.constants["D_V"])


def _room_for_counts(call: _Call) -> Tensor:
    """(1 + d_osc) numbers for each key, and for each sequence if their masks differ."""
    return call.r.new_empty(call.mask.shape[0], call.heads, 1 + call.r.shape[-1], call.keys)


def _run(call: _Call, w: Tensor, n: Tensor | None, blocks: int, *, reverse: bool = False) -> None:
    """Sums of blocks become running sums, in place."""
    features = 1 + call.r.shape[-1]
    kernels.scan[(call.batch * call.heads, features)](
        w, w if n is None else n, blocks, **call.only(("D_V", "DV")), FEATURES=features,
        COUNTS=n is not None, REVERSE=reverse, num_warps=1,
        CHUNK=min(SCANNED // call.constants["DV"], next_power_of_2(blocks)),
    )  # fmt: skip


@op("triton_attention")
def attention_forward(
    f: Tensor, g: Tensor, v: Tensor, r: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, scale: float, gain: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """o; h, the denominators of Eq. 5, the largest scores, and the running sums over keys."""
    call = _call(f, g, v, r, masks, coupling, causal, coupling == "exp")
    with torch.cuda.device_of(f):
        packed, sums = _prepared(call)
        return (*_launch_forward(call, packed, sums, scale, gain), *sums)


@attention_forward.register_fake
def _(f, g, v, r, masks, coupling, causal, scale, gain):  # pyright: ignore
    call = _call(f, g, v, r, masks, coupling, causal, coupling == "exp")
    rows = f.shape[:3]
    return (
        v.new_empty(*rows, v.shape[-1]),
        r.new_empty(*rows, r.shape[-1]),
        r.new_empty(*rows, 1),
        r.new_empty(*rows, int(coupling == "exp")),
        _room_for_sums(call, call.key_blocks),
        _room_for_counts(call),
    )


@op("triton_drive")
def drive_forward(
    f: Tensor, g: Tensor, r: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, shifted: bool, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """h, and the largest score of each row if an exponential coupling is shifted by it."""
    if decode.pays(f.shape[2], g.shape[2]):
        options = {"coupling": coupling, "causal": causal, "scale": scale, "shifted": shifted}
        return decode.drive(f, g, r, masks, **options)
    call = _call(f, g, None, r, masks, coupling, causal, shifted)
    with torch.cuda.device_of(f):
        packed = _packed(call, call.r[None], _coupled(call), anchors=True)
        _, h, _, top = _launch_forward(call, packed, None, scale, 1.0)
    return h, top


@drive_forward.register_fake
def _(f, g, r, masks, coupling, causal, shifted, scale):  # pyright: ignore
    return r.new_empty(*f.shape[:3], r.shape[-1]), r.new_empty(*f.shape[:3], int(shifted))


# --- backward ------------------------------------------------------------------------------------


def _launch_backward(
    call: _Call, dh: Tensor, top: Tensor, scale: float, dr: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """df, dg, dr from dh (contiguous); each sequence's part of `dr` is added to those given."""
    f, g, _ = call.tensors
    packed = _packed(call, call.r[None], f.dtype, anchors=True)
    packed_dh = _packed(call, dh, f.dtype, anchors=False)
    df, dg, add = f.new_empty(f.shape), g.new_empty(g.shape), dr is not None
    parts = call.r.new_empty(call.batch, *call.r.shape) if dr is None else dr
    inputs = (f, g, call.r, packed, call.mask, dh, packed_dh, top)
    sizes = (
        *call.strides(0, 1), call.r.stride(0), _over(packed, 0), packed.stride(1), *call.of_mask,
        call.heads, call.queries, call.keys, scale,
    )  # fmt: skip
    _launch("queries", call, call.queries, (*inputs, df, *sizes), call.only(LOOP))
    constants = {**call.only(LOOP), "ADD": add}
    _launch("keys", call, call.keys, (*inputs, dg, parts, *sizes), constants, dr)
    return df, dg, parts.sum(dim=0)


@op("triton_attention_backward")
def attention_backward(
    do: Tensor, f: Tensor, g: Tensor, v: Tensor, r: Tensor,
    o: Tensor, h: Tensor, den: Tensor, top: Tensor, w: Tensor, n: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, scale: float, gain: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """df, dg, dv, dr."""
    call = _call(f, g, v, r, masks, coupling, causal, coupling == "exp")
    blocks, programs = call.query_blocks, call.batch * call.heads
    dh, c = torch.empty_like(h), h.new_empty(*h.shape[:3], 2)
    s, t = _room_for_sums(call, blocks), call.r.new_empty(*h.shape[:2], blocks, 1 + r.shape[-1])
    constants = call.only(READ)
    few = r.shape[-1] <= kernels.FEW.value
    if few and not causal:  # nothing is left to the matrix units
        constants["D_R"] = next_power_of_2(r.shape[-1])
    strides = (*call.strides(2), call.r.stride(0), *call.of_mask)
    with torch.cuda.device_of(f):
        kernels.readout_queries[(blocks, programs)](
            do, o, call.tensors[2], call.r, call.mask, w, n, h, den, dh, c, s, t, *strides,
            _over(n, 0), call.heads, call.queries, call.keys, call.origin, call.key_blocks, gain,
            **constants, BLOCK=BLOCK, num_warps=4, num_stages=1,
            maxnreg=_registers(call, 128 if few else 168),
        )  # fmt: skip
        _run(call, s, t, blocks, reverse=True)
        dv, dr = v.new_empty(v.shape), r.new_empty(call.batch, *r.shape)
        kernels.readout_keys[(call.key_blocks, programs)](
            do, call.tensors[2], call.r, call.mask, h, c, s, t, dr, dv, *strides,
            call.heads, call.queries, call.keys, call.origin, blocks, gain,
            **constants, BLOCK=BLOCK, num_warps=4, num_stages=1,
            maxnreg=_registers(call, 168 if few else 128, 128 if few and causal else 64),
        )  # fmt: skip
        df, dg, dr = _launch_backward(call, dh, top, scale, dr)
    return df, dg, dv, dr


@attention_backward.register_fake
def _(do, f, g, v, r, o, h, den, top, w, n, masks, coupling, causal, scale, gain):  # pyright: ignore
    return tuple(x.new_empty(x.shape) for x in (f, g, v, r))


@op("triton_drive_backward")
def drive_backward(
    dh: Tensor, f: Tensor, g: Tensor, r: Tensor, _h: Tensor, top: Tensor,
    masks: list[Tensor], coupling: str, causal: bool, shifted: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """df, dg, dr."""
    call = _call(f, g, None, r, masks, coupling, causal, shifted)
    with torch.cuda.device_of(f):
        return _launch_backward(call, dh.contiguous(), top, scale)


@drive_backward.register_fake
def _(dh, f, g, r, _h, top, masks, coupling, causal, shifted, scale):  # pyright: ignore
    return tuple(x.new_empty(x.shape) for x in (f, g, r))


_apply_drive = register("triton_drive", Pair(drive_forward, drive_backward, inputs=3, outputs=2))
_apply_attention = register(
    "triton_attention", Pair(attention_forward, attention_backward, inputs=4, outputs=6)
)
