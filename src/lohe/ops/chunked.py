"""Drive and readout in tiles: memory linear in tokens, on any device, in plain PyTorch.

Neither the couplings w nor the weights a ever exist as a whole: the forward pass adds tile after
tile, the backward pass computes each tile again. The four loops below are registered as
`torch.library` ops, so that torch.compile and torch.export see one node each; `differentiable`
pairs them up.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lohe.ops.autograd import Pair, register
from lohe.ops.coupling import COUPLINGS
from lohe.ops.masks import Allowed

ROWS, COLUMNS = (
    256,
    512,
)  # of a CPU tile: 512 KiB of float32, so that two of them stay in a core's L2
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
    f, g, anchors = (f * scale).contiguous(), g.contiguous(), anchors.contiguous()
    shifted = shifted and coupling == "exp"
    return apply_drive((f, g, anchors), allowed.parts, (coupling, allowed.causal, shifted))


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


def _groups(x: Tensor, rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """(batch, heads) in groups whose tile of rows x columns fits the budget."""
    batch, heads = x.shape[:2]
    cpu = x.device.type == "cpu"
    budget = ROWS * COLUMNS * torch.get_num_threads() if cpu else CUDA_ELEMENTS
    n = max(1, budget // (rows * columns))
    h = min(n, heads)
    b = max(1, n // heads) if h == heads else 1
    for b0 in range(0, batch, b):
        for h0 in range(0, heads, h):
            yield slice(b0, b0 + b), slice(h0, h0 + h)


def _size(x: Tensor, queries: int, keys: int) -> tuple[int, int]:
    rows, columns = (ROWS, COLUMNS) if x.device.type == "cpu" else (CUDA_ROWS, CUDA_COLUMNS)
    return max(1, min(rows, queries)), max(1, min(columns, keys))


def _spans(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    return [(at, min(at + size, stop)) for at in range(start, stop, size)]


class _Tiles:
    """The tiles of a (batch, heads, queries, keys) problem, with their masks."""

    def __init__(self, like: Tensor, queries: int, keys: int, causal: bool, parts: list[Tensor]):
        self.like, self.causal = like, causal
        self.queries, self.keys = queries, keys
        self.shown = Allowed(queries, keys, like.device, parts=tuple(parts))
        height, self.width = _size(like, queries, keys)
        self.groups = list(_groups(like, height, self.width))
        self.rows = _spans(0, queries, height)
        self.triangles: dict[tuple[int, int, int], Tensor] = {}

    def along(self, b: slice, h: slice, i0: int, i1: int) -> Iterator[tuple[slice, Tensor | None]]:
        """The key blocks that queries i0:i1 can see, and 1 where allowed (None: everywhere).

        In the causal case the blocks end where the last query does, and the diagonal is one of its
        own, so that only it needs a triangular mask.
        """
        own = max(0, i0 + self.keys - self.queries)  # the key of the first query, if it has one
        end = max(0, i1 + self.keys - self.queries)
        for start, stop in [(0, own), (own, end)] if self.causal else [(0, self.keys)]:
            for j0, j1 in _spans(start, stop, self.width):
                ok = self.shown.tile(b, h, i0, i1, j0, j1)
                ok = None if ok is None else ok.to(self.like.dtype)
                if self.causal and j1 > own:
                    triangle = self._triangle(i1 - i0, j1 - j0, i0 + self.keys - self.queries - j0)
                    ok = triangle if ok is None else ok * triangle
                yield slice(j0, j1), ok

    def _triangle(self, rows: int, columns: int, diagonal: int) -> Tensor:
        key = (rows, columns, diagonal)
        if key not in self.triangles:
            self.triangles[key] = self.like.new_ones(rows, columns).tril_(diagonal)
        return self.triangles[key]


def _zeroed(x: Tensor, ok: Tensor | None) -> Tensor:
    """x where allowed, else 0, in place. A product: masked_fill takes 40 times longer on a CPU."""
    return x if ok is None else x.mul_(ok)


# --- drive --------------------------------------------------------------------------------------


@torch.library.custom_op("lohe::chunked_drive", mutates_args=())
def drive_forward(
    f: Tensor, g: Tensor, r: Tensor, parts: list[Tensor], coupling: str, causal: bool, shifted: bool
) -> tuple[Tensor, Tensor]:
    """h, and the row maxima of the scores by which an exponential coupling is shifted (else 0)."""
    (batch, heads, queries, _), keys = f.shape, g.shape[2]
    tiles = _Tiles(f, queries, keys, causal, parts)
    sigma = COUPLINGS[coupling].value
    # with r and h transposed the narrow product w·r runs 5-8 times faster on a CPU than row by row
    r_t, h_t = r.mT.contiguous(), f.new_zeros(batch, heads, r.shape[-1], queries)
    top = f.new_zeros(batch, heads, queries, 1)
    for b, h in tiles.groups:
        for i0, i1 in tiles.rows:
            i = slice(i0, i1)
            if shifted:
                peak = f.new_full((*f[b, h, i].shape[:-1], 1), -torch.inf)
                for j, ok in tiles.along(b, h, i0, i1):
                    s = f[b, h, i] @ g[b, h, j].mT
                    s = s if ok is None else s.masked_fill_(ok == 0, -torch.inf)
                    peak = torch.maximum(peak, s.amax(dim=-1, keepdim=True))
                top[b, h, i] = torch.where(peak.isfinite(), peak, 0)
            for j, ok in tiles.along(b, h, i0, i1):
                s = _shift(f[b, h, i] @ g[b, h, j].mT, top[b, h, i], shifted)
                h_t[b, h, :, i] += r_t[h, :, j] @ _zeroed(sigma(s), ok).mT
    return h_t.mT.contiguous(), top


def _shift(scores: Tensor, top: Tensor, shifted: bool) -> Tensor:
    """Scores below the largest of the row; a masked one may lie above it, hence the clamp."""
    return scores.sub_(top).clamp_(max=0) if shifted else scores


@drive_forward.register_fake
def _(f, g, r, parts, coupling, causal, shifted):  # pyright: ignore
    return f.new_empty(*f.shape[:3], r.shape[-1]), f.new_empty(*f.shape[:3], 1)


@torch.library.custom_op("lohe::chunked_drive_backward", mutates_args=())
def drive_backward(
    dh: Tensor,
    f: Tensor,
    g: Tensor,
    r: Tensor,
    _h: Tensor,
    top: Tensor,
    parts: list[Tensor],
    coupling: str,
    causal: bool,
    shifted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of h = Σ_j σ(f·g_j) r_j: dw = dh·r, ds = dw σ′(s)."""
    tiles = _Tiles(f, f.shape[2], g.shape[2], causal, parts)
    sigma, slope = COUPLINGS[coupling]
    df, dg, dr_t = torch.zeros_like(f), torch.zeros_like(g), torch.zeros_like(r.mT.contiguous())
    for b, h in tiles.groups:
        for i0, i1 in tiles.rows:
            i = slice(i0, i1)
            for j, ok in tiles.along(b, h, i0, i1):
                s = _shift(f[b, h, i] @ g[b, h, j].mT, top[b, h, i], shifted)
                dr_t[h, :, j] += (dh[b, h, i].mT @ _zeroed(sigma(s), ok)).sum(dim=0)
                ds = _zeroed(slope(s), ok).mul_(dh[b, h, i] @ r[h, j].mT)
                df[b, h, i] += ds @ g[b, h, j]
                dg[b, h, j] += ds.mT @ f[b, h, i]
    return df, dg, dr_t.mT.contiguous()


@drive_backward.register_fake
def _(dh, f, g, r, _h, top, parts, coupling, causal, shifted):  # pyright: ignore
    return torch.empty_like(f), torch.empty_like(g), torch.empty_like(r)


apply_drive = register("chunked_drive", Pair(drive_forward, drive_backward, inputs=3, outputs=2))


# --- readout ------------------------------------------------------------------------------------


def _power(c: Tensor, sharpness: float, p: Tensor) -> Tensor:
    """c^p: one exponent for all, or (sharpness = 0) one for each head."""
    if sharpness == 0:
        return c ** p[:, None, None]
    return c if sharpness == 1 else c**sharpness


@torch.library.custom_op("lohe::chunked_readout", mutates_args=())
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
    z = z * gain[:, None, None]
    out = v.new_zeros(*z.shape[:3], v.shape[-1])
    top, total = (z.new_zeros(*z.shape[:3], 1) for _ in range(2))
    for b, h in tiles.groups:
        for i0, i1 in tiles.rows:
            i = slice(i0, i1)
            for j, ok in tiles.along(b, h, i0, i1):
                x = _zeroed(_unclamped(z[b, h, i], r[h, j]), ok)  # may be < 0: top starts at 0
                top[b, h, i] = torch.maximum(top[b, h, i], x.amax(dim=-1, keepdim=True))
            inverse, dead = _row_scale(top[b, h, i])
            for j, ok in tiles.along(b, h, i0, i1):
                c = _unclamped(z[b, h, i], r[h, j]).clamp_(min=0).mul_(inverse).add_(dead)
                a = _zeroed(_power(c, sharpness, p[h]), ok)
                total[b, h, i] += a.sum(dim=-1, keepdim=True)
                out[b, h, i] += a @ v[b, h, j]
            out[b, h, i] /= torch.where(total[b, h, i] > 0, total[b, h, i], 1)
    return out, top, total


def _unclamped(z: Tensor, r: Tensor) -> Tensor:
    """1 + z·r, where z carries the gain already."""
    return (z @ r.mT).add_(1)


def _row_scale(top: Tensor) -> tuple[Tensor, Tensor]:
    """(1 / largest, 0), or (0, 1) in a row that vanishes: c = x · first + second is 1 there."""
    alive = top > 0
    return torch.where(alive, 1 / top, 0), (~alive).to(top.dtype)


@readout_forward.register_fake
def _(z, r, v, gain, p, parts, sharpness, causal):  # pyright: ignore
    row = z.new_empty(*z.shape[:3], 1)
    return v.new_empty(*z.shape[:3], v.shape[-1]), row, torch.empty_like(row)


@torch.library.custom_op("lohe::chunked_readout_backward", mutates_args=())
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
    scaled = z * gain[:, None, None]
    along_o = (do * o).sum(dim=-1, keepdim=True)
    inverse, dead = _row_scale(top)
    total = torch.where(total > 0, total, 1)
    dz, dr, dv = torch.zeros_like(z), torch.zeros_like(r), torch.zeros_like(v)
    dp = torch.zeros_like(p)
    for b, h in tiles.groups:
        for i0, i1 in tiles.rows:
            i = slice(i0, i1)
            for j, ok in tiles.along(b, h, i0, i1):
                x = _unclamped(scaled[b, h, i], r[h, j]).clamp_(min=0)
                c = (x * inverse[b, h, i]).add_(dead[b, h, i])
                a = _zeroed(_power(c, sharpness, p[h]) / total[b, h, i], ok)
                dv[b, h, j] += a.mT @ do[b, h, i]
                # with respect to log a: a vanished row passes nothing on
                da = (do[b, h, i] @ v[b, h, j].mT).sub_(along_o[b, h, i])
                da.mul_(a).mul_(1 - dead[b, h, i])
                exponent = sharpness
                if sharpness == 0:
                    exponent = p[h][:, None, None]
                    dp[h] += torch.xlogy(da, c).nan_to_num_(0).sum(dim=(0, 2, 3))
                # d log a / dx = p / x; the clamp lets nothing through at x = 0, where a = 0
                dx = da.mul_(exponent).div_(x.clamp_(min=torch.finfo(x.dtype).tiny))
                dz[b, h, i] += dx @ r[h, j]
                dr[h, j] += (dx.mT @ z[b, h, i]).sum(dim=0)
    # dz and dr so far lack the factor γ; Σ_i dz_i·z_i is the gradient of γ itself
    dgain = (dz * z).sum(dim=(0, 2, 3))
    return dz * gain[:, None, None], dr * gain[:, None, None], dv, dgain, dp


@readout_backward.register_fake
def _(do, z, r, v, gain, p, o, top, total, parts, sharpness, causal):  # pyright: ignore
    return tuple(torch.empty_like(x) for x in (z, r, v, gain, p))


apply_readout = register(
    "chunked_readout", Pair(readout_forward, readout_backward, inputs=5, outputs=3)
)
