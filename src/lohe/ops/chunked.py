"""Drive and readout in tiles: memory linear in tokens, on any device, in plain PyTorch.

Neither the couplings w nor the weights a ever exist as a whole: the forward pass adds tile after
tile, the backward pass computes each tile again. A tile is written once, by a matrix product, and
changed in place until it is used up, so that on a CPU it does not leave the cache. The four loops
below are registered as `torch.library` ops, so that torch.compile and torch.export see one node
each; `register` pairs them up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lohe.ops.autograd import Pair, op, register
from lohe.ops.coupling import RELU_FLOOR
from lohe.ops.masks import Allowed

# On a CPU: 256 KiB of float32 for a head, a quarter of a core's L2. A call of PyTorch costs some
# 10 µs, and its threads wait for each other, so each of them gets several heads at once.
ROWS, COLUMNS, HEADS_A_THREAD = 256, 256, 4
CUDA_ROWS, CUDA_COLUMNS, CUDA_ELEMENTS = 1024, 4096, 2**26


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
    """h_i = Σ_j w_ij r_j of Eqs. 2 and 3; O(T) memory, O(T²) time."""
    f, g, anchors = f.contiguous(), g.contiguous(), anchors.contiguous()
    options = (coupling, scale, allowed.causal, shifted and coupling == "exp")
    return apply_drive((f, g, anchors), allowed.parts, options)


def readout(
    oscillators: Float[Tensor, "batch heads i d_osc"],
    anchors: Float[Tensor, "heads j d_osc"],
    values: Float[Tensor, "batch heads j d_v"],
    allowed: Allowed,
    *,
    sharpness: float | Float[Tensor, " heads"],
    gain: float | Float[Tensor, " heads"] | None,
) -> Float[Tensor, "batch heads i d_v"]:
    """o_i = Σ_j a_ij v_j of Eqs. 5 and 6, for any sharpness, gain and mask; O(T) memory."""
    z, r, v = oscillators.contiguous(), anchors.contiguous(), values.contiguous()
    fixed = sharpness if not isinstance(sharpness, Tensor) else 0.0  # 0: read the tensor instead
    p = sharpness.to(z) if isinstance(sharpness, Tensor) else z.new_empty(z.shape[1])
    # full, not a tensor from the CPU: a graph that is being captured cannot copy one
    number = 1.0 if gain is None else gain
    gamma = number.to(z) if isinstance(number, Tensor) else z.new_full(z.shape[1:2], number)
    return apply_readout((z, r, v, gamma, p), allowed.parts, (float(fixed), allowed.causal))


# --- tiles --------------------------------------------------------------------------------------


def _spans(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    return [(at, min(at + size, stop)) for at in range(start, stop, size)]


@dataclass(frozen=True)
class _Group:
    """Some heads of some sequences, as one axis n: all heads, or those of one sequence only."""

    batch: slice
    heads: slice

    def of(
        self, x: Float[Tensor, "batch heads tokens features"]
    ) -> Float[Tensor, "n tokens features"]:
        """A view."""
        return x[self.batch, self.heads].flatten(0, 1)

    def each(self, x: Float[Tensor, "heads *shape"]) -> Float[Tensor, "n *shape"]:
        """What belongs to a head, once for each sequence."""
        sequences = self.batch.stop - self.batch.start
        return x[self.heads].expand(sequences, *[-1] * x.ndim).flatten(0, 1)

    def add(self, total: Float[Tensor, "heads *shape"], x: Float[Tensor, "n *shape"]) -> None:
        """The sum over the sequences, added to what belongs to a head."""
        heads = self.heads.stop - self.heads.start
        total[self.heads] += x.unflatten(0, (-1, heads)).sum(dim=0)


class _Tiles:
    """The tiles of a (batch, heads, queries, keys) problem, with their masks and their memory."""

    def __init__(self, like: Tensor, queries: int, keys: int, causal: bool, parts: list[Tensor]):
        self.like, self.causal = like, causal
        self.queries, self.keys = queries, keys
        self.shown = Allowed(queries, keys, like.device, parts=tuple(parts))
        cpu = like.device.type == "cpu"
        rows, columns = (ROWS, COLUMNS) if cpu else (CUDA_ROWS, CUDA_COLUMNS)
        height, self.width = max(1, min(rows, queries)), max(1, min(columns, keys))
        self.rows = [slice(*span) for span in _spans(0, queries, height)]
        heads = HEADS_A_THREAD * torch.get_num_threads()
        elements = heads * rows * columns if cpu else CUDA_ELEMENTS
        self.groups = self._groups(max(1, elements // (height * self.width)))
        self.triangles: dict[tuple[int, int, int], Tensor] = {}
        self.memory: dict[str, Tensor] = {}

    def _groups(self, most: int) -> list[_Group]:
        batch, heads = self.like.shape[:2]
        h = max(1, min(most, heads))
        b = max(1, most // h) if h >= heads else 1
        return [
            _Group(slice(*sequences), slice(*some))
            for sequences in _spans(0, batch, b)
            for some in _spans(0, heads, h)
        ]

    def along(self, group: _Group, i: slice) -> Iterator[tuple[slice, Tensor | None]]:
        """The key blocks that queries i can see, and 1 where allowed (None: everywhere).

        In the causal case the blocks end where the last query does, and the diagonal is one of its
        own, so that only it needs a triangular mask.
        """
        own = max(0, i.start + self.keys - self.queries)  # of the first query, if it has a key
        end = max(0, i.stop + self.keys - self.queries)
        for start, stop in [(0, own), (own, end)] if self.causal else [(0, self.keys)]:
            for j0, j1 in _spans(start, stop, self.width):
                ok = self._shown(group, i, j0, j1)
                if self.causal and j1 > own:
                    diagonal = i.start + self.keys - self.queries - j0
                    triangle = self._triangle(i.stop - i.start, j1 - j0, diagonal)
                    ok = triangle if ok is None else ok * triangle
                yield slice(j0, j1), ok

    def _shown(self, group: _Group, i: slice, j0: int, j1: int) -> Tensor | None:
        ok = self.shown.tile(group.batch, group.heads, i.start, i.stop, j0, j1)
        if ok is None:
            return None
        n = [s.stop - s.start for s in (group.batch, group.heads)]
        ok = ok if ok.shape[:2] == (1, 1) else ok.expand(*n, -1, -1)
        return ok.flatten(0, 1).to(self.like.dtype)

    def _triangle(self, rows: int, columns: int, diagonal: int) -> Tensor:
        key = (rows, columns, diagonal)
        if key not in self.triangles:
            self.triangles[key] = self.like.new_ones(rows, columns).tril_(diagonal)
        return self.triangles[key]

    def product(
        self, name: str, x: Float[Tensor, "n i k"], y: Float[Tensor, "n k j"]
    ) -> Float[Tensor, "n i j"]:
        """x y, in the memory of that name."""
        return torch.bmm(x, y, out=self.room(name, (*x.shape[:2], y.shape[2])))

    def room(self, name: str, shape: Sequence[int]) -> Tensor:
        """Memory for a tile, which the next of this name overwrites."""
        size = prod(shape)
        if name not in self.memory or self.memory[name].numel() < size:
            self.memory[name] = self.like.new_empty(size)
        return self.memory[name][:size].view(shape)


def _zeroed(x: Tensor, ok: Tensor | None) -> Tensor:
    """x where allowed, else 0, in place. A product: masked_fill takes 40 times longer on a CPU."""
    return x if ok is None else x.mul_(ok)


# --- drive --------------------------------------------------------------------------------------


class _Coupling(NamedTuple):
    """`lohe.ops.coupling` without memory of its own: σ(s) into `out`, which may be s, and
    σ′(s) in place of s."""

    value: Callable[[Tensor, Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


TILED: dict[str, _Coupling] = {
    "softplus": _Coupling(
        lambda s, out: F.softplus(s, out=out),  # pyright: ignore[reportCallIssue]; a stub lacks it
        torch.sigmoid_,
    ),
    "relu": _Coupling(
        lambda s, out: torch.clamp(s, min=0, out=out).add_(RELU_FLOOR),
        lambda s: s.relu_().sign_(),
    ),
    "elu": _Coupling(
        lambda s, out: torch.add(s.relu(), s.clamp(max=0).exp_(), out=out),
        lambda s: s.clamp_(max=0).exp_(),
    ),
    "exp": _Coupling(lambda s, out: torch.exp(s, out=out), torch.exp_),
}


@op("chunked_drive")
def drive_forward(
    f: Tensor,
    g: Tensor,
    r: Tensor,
    parts: list[Tensor],
    coupling: str,
    scale: float,
    causal: bool,
    shifted: bool,
) -> tuple[Tensor, Tensor]:
    """h, and the row maxima of the scores by which an exponential coupling is shifted (else 0)."""
    (batch, heads, queries, _), keys = f.shape, g.shape[2]
    tiles = _Tiles(f, queries, keys, causal, parts)
    sigma = TILED[coupling].value
    # with r and h transposed the narrow product w·r runs 5-8 times faster on a CPU than row by row
    r_t, h_t = r.mT.contiguous(), f.new_zeros(batch, heads, r.shape[-1], queries)
    top = f.new_zeros(batch, heads, queries, 1)
    for group in tiles.groups:
        f_n, g_n, h_n, top_n = (group.of(x) for x in (f, g, h_t, top))
        r_n = group.each(r_t)
        for i in tiles.rows:
            f_i, h_i, top_i = scale * f_n[:, i], torch.zeros_like(h_n[:, :, i]), top_n[:, i]
            if shifted:
                top_i.copy_(_peak(tiles, group, i, f_i, g_n))
            for j, ok in tiles.along(group, i):
                s = _shift(tiles.product("s", f_i, g_n[:, j].mT), top_i, shifted, ok)
                h_i.baddbmm_(r_n[:, :, j], _zeroed(sigma(s, s), ok).mT)
            h_n[:, :, i] = h_i
    return h_t.mT.contiguous(), top


def _peak(tiles: _Tiles, group: _Group, i: slice, f_i: Tensor, g: Tensor) -> Tensor:
    """The largest score of each query that is allowed; 0 where none is."""
    peak = f_i.new_full((*f_i.shape[:2], 1), -torch.inf)
    for j, ok in tiles.along(group, i):
        s = tiles.product("s", f_i, g[:, j].mT)
        s = s if ok is None else s.masked_fill_(ok == 0, -torch.inf)
        peak = torch.maximum(peak, s.amax(dim=-1, keepdim=True))
    return torch.where(peak.isfinite(), peak, 0)


def _shift(scores: Tensor, top: Tensor, shifted: bool, ok: Tensor | None) -> Tensor:
    """Scores below the largest of the row; a masked one may lie above it, hence the clamp.

    Where nothing is shifted a masked score is 0: its exponential may be infinite.
    """
    return scores.sub_(top).clamp_(max=0) if shifted else _zeroed(scores, ok)


@drive_forward.register_fake
def _(f, g, r, parts, coupling, scale, causal, shifted):  # pyright: ignore
    return f.new_empty(*f.shape[:3], r.shape[-1]), f.new_empty(*f.shape[:3], 1)


@op("chunked_drive_backward")
def drive_backward(
    dh: Tensor,
    f: Tensor,
    g: Tensor,
    r: Tensor,
    _h: Tensor,
    top: Tensor,
    parts: list[Tensor],
    coupling: str,
    scale: float,
    causal: bool,
    shifted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of h = Σ_j σ(scale f·g_j) r_j: dw = dh·r, ds = dw σ′(s)."""
    tiles = _Tiles(f, f.shape[2], g.shape[2], causal, parts)
    sigma, slope = TILED[coupling]
    r_t = r.mT.contiguous()
    df, dg, dr_t = torch.zeros_like(f), torch.zeros_like(g), torch.zeros_like(r_t)
    for group in tiles.groups:
        f_n, g_n, dh_n, top_n, df_n, dg_n = (group.of(x) for x in (f, g, dh, top, df, dg))
        r_n = group.each(r_t)
        dr_n = torch.zeros_like(r_n)
        for i in tiles.rows:
            f_i, dh_i, top_i, df_i = (x[:, i] for x in (f_n, dh_n, top_n, df_n))
            f_i = scale * f_i
            for j, ok in tiles.along(group, i):
                g_j, r_j = g_n[:, j], r_n[:, :, j]
                s = _shift(tiles.product("s", f_i, g_j.mT), top_i, shifted, ok)
                w = _zeroed(sigma(s, tiles.room("w", s.shape)), ok)
                dr_n[:, :, j] += dh_i.mT @ w
                dw = tiles.product("w", dh_i, r_j)
                ds = _zeroed(slope(s).mul_(dw), ok)
                df_i.baddbmm_(ds, g_j, alpha=scale)
                dg_n[:, j].baddbmm_(ds.mT, f_i)
        group.add(dr_t, dr_n)
    return df, dg, dr_t.mT.contiguous()


@drive_backward.register_fake
def _(dh, f, g, r, _h, top, parts, coupling, scale, causal, shifted):  # pyright: ignore
    return torch.empty_like(f), torch.empty_like(g), r.new_empty(r.shape)


apply_drive = register("chunked_drive", Pair(drive_forward, drive_backward, inputs=3, outputs=2))


# --- readout ------------------------------------------------------------------------------------


def _power(c: Tensor, sharpness: float, p: Tensor) -> Tensor:
    """c^p: one exponent for all, in place, or (sharpness = 0) one for each head."""
    if sharpness == 0:
        return c ** p[:, None, None]
    if sharpness % 2 == 0:  # a general power takes ten times as long
        return _power(c.square_(), sharpness / 2, p)
    return c if sharpness == 1 else c.pow_(sharpness)


@op("chunked_readout")
def readout_forward(
    z: Tensor,
    r: Tensor,
    v: Tensor,
    gain: Tensor,
    p: Tensor,
    parts: list[Tensor],
    sharpness: float,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """o, the largest x = max(0, 1 + γ z·r) of each row, and the row sums of (x / largest)^p."""
    tiles = _Tiles(z, z.shape[2], v.shape[2], causal, parts)
    z, r_t = z * gain[:, None, None], r.mT.contiguous()
    out = v.new_zeros(*z.shape[:3], v.shape[-1])
    top, total = (z.new_zeros(*z.shape[:3], 1) for _ in range(2))
    for group in tiles.groups:
        z_n, v_n, out_n, top_n, total_n = (group.of(x) for x in (z, v, out, top, total))
        r_n, p_n = group.each(r_t), group.each(p)
        for i in tiles.rows:
            for j, ok in tiles.along(group, i):
                x = _zeroed(_unclamped(tiles, z_n[:, i], r_n[:, :, j]), ok)  # < 0: top starts at 0
                top_n[:, i] = torch.maximum(top_n[:, i], x.amax(dim=-1, keepdim=True))
            inverse, dead = _row_scale(top_n[:, i])
            for j, ok in tiles.along(group, i):
                x = _unclamped(tiles, z_n[:, i], r_n[:, :, j]).clamp_(min=0)
                c = _at_most_one(x.mul_(inverse).add_(dead), ok)
                a = _zeroed(_power(c, sharpness, p_n), ok)
                total_n[:, i] += a.sum(dim=-1, keepdim=True)
                out_n[:, i].baddbmm_(a, v_n[:, j])
            out_n[:, i] /= torch.where(total_n[:, i] > 0, total_n[:, i], 1)
    return out, top, total


def _unclamped(tiles: _Tiles, z: Tensor, r_t: Tensor) -> Tensor:
    """1 + z·r, where z carries the gain already."""
    return tiles.product("x", z, r_t).add_(1)


def _row_scale(top: Tensor) -> tuple[Tensor, Tensor]:
    """(1 / largest, 0), or (0, 1) in a row that vanishes: c = x · first + second is 1 there."""
    alive = top > 0
    return torch.where(alive, 1 / top, 0), (~alive).to(top.dtype)


def _at_most_one(c: Tensor, ok: Tensor | None) -> Tensor:
    """c as it is where it counts; that of a masked key may be large, and its power infinite."""
    return c if ok is None else c.clamp_(max=1)


@readout_forward.register_fake
def _(z, r, v, gain, p, parts, sharpness, causal):  # pyright: ignore
    row = z.new_empty(*z.shape[:3], 1)
    return v.new_empty(*z.shape[:3], v.shape[-1]), row, torch.empty_like(row)


@op("chunked_readout_backward")
def readout_backward(
    do: Tensor,
    z: Tensor,
    r: Tensor,
    v: Tensor,
    gain: Tensor,
    p: Tensor,
    o: Tensor,
    top: Tensor,
    total: Tensor,
    parts: list[Tensor],
    sharpness: float,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of o_i = Σ_j c_ij^p v_j / Σ_j c_ij^p, c = max(0, 1 + γ z·r) / largest.

    da = (do·v - do·o) / Σ c^p, dx = da p c^(p-1) / largest where x > 0; a vanished row moves only
    v.
    """
    tiles = _Tiles(z, z.shape[2], v.shape[2], causal, parts)
    scaled, r_t = z * gain[:, None, None], r.mT.contiguous()
    along_o = (do * o).sum(dim=-1, keepdim=True)
    inverse, dead = _row_scale(top)
    total = torch.where(total > 0, total, 1)
    dz, dr, dv = torch.zeros_like(z), torch.zeros_like(r), torch.zeros_like(v)
    dp = torch.zeros_like(p)
    for group in tiles.groups:
        z_n, zs_n, v_n, do_n, dz_n, dv_n = (group.of(t) for t in (z, scaled, v, do, dz, dv))
        rows = [group.of(t) for t in (inverse, dead, total, along_o)]
        r_n, rt_n, p_n = group.each(r), group.each(r_t), group.each(p)
        dr_n, dp_n = torch.zeros_like(r_n), torch.zeros_like(p_n)
        for i in tiles.rows:
            inverse_i, dead_i, total_i, along_i = (t[:, i] for t in rows)
            for j, ok in tiles.along(group, i):
                x = _unclamped(tiles, zs_n[:, i], rt_n[:, :, j]).clamp_(min=0)
                c = _at_most_one((x * inverse_i).add_(dead_i), ok)
                a = _zeroed(_power(c, sharpness, p_n) / total_i, ok)
                dv_n[:, j].baddbmm_(a.mT, do_n[:, i])
                # with respect to log a: a vanished row passes nothing on
                da = tiles.product("a", do_n[:, i], v_n[:, j].mT).sub_(along_i)
                da.mul_(a).mul_(1 - dead_i)
                exponent = sharpness
                if sharpness == 0:
                    exponent = p_n[:, None, None]
                    dp_n += torch.xlogy(da, c).nan_to_num_(0).sum(dim=(1, 2))
                # d log a / dx = p / x; the clamp lets nothing through at x = 0, where a = 0
                dx = da.mul_(exponent).div_(x.clamp_(min=torch.finfo(x.dtype).tiny))
                dz_n[:, i].baddbmm_(dx, r_n[:, j])
                dr_n[:, j].baddbmm_(dx.mT, z_n[:, i])
        group.add(dr, dr_n)
        group.add(dp, dp_n)
    # dz and dr so far lack the factor γ; Σ_i dz_i·z_i is the gradient of γ itself
    dgain = (dz * z).sum(dim=(0, 2, 3))
    return dz * gain[:, None, None], dr * gain[:, None, None], dv, dgain, dp


@readout_backward.register_fake
def _(do, z, r, v, gain, p, o, top, total, parts, sharpness, causal):  # pyright: ignore
    return tuple(torch.empty_like(x) for x in (z, r, v, gain, p))


apply_readout = register(
    "chunked_readout", Pair(readout_forward, readout_backward, inputs=5, outputs=3)
)
