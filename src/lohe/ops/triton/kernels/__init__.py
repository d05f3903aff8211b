"""Kernels of the drive (Eqs. 2 and 3) and, at p = 1, of the whole of Eqs. 2-6.

Notation: i counts queries, j keys; a program works on BLOCK of either and goes through the other in
tiles of STEP. Query i sees the keys j <= i + offset in the causal case, offset = keys - queries.
At p = 1 the readout is linear attention (`ops.linear`): with the sums

    N_i = Σ_j m_j,   P_i = Σ_j m_j r_j,   V_i = Σ_j m_j v_j,   W_i = Σ_j m_j r_j v_jᵀ

over the keys that query i sees (m masks keys), o_i = (V_i + γ z_i W_i) / (N_i + γ z_i·P_i).
N and P are made for every key (`_counts`). Blocks of keys end where blocks of queries do, so V and
W are those of all earlier blocks (`_block_sums`, `scan`) and a triangle.

Products with anchors go through the matrix units in the dtype of f, padded to D_R >= 16 columns.
In 16 bits those columns hold, where there is room (3 d_osc <= D_R), what rounding lost: a product
a·b is taken of [a, a, a - rounded a] and [b, b - rounded b, b] (`pack`). Where there is none, dh·r
of the tiles at the diagonal is made of float32: dh is orthogonal to z, and in a row of few keys z
is almost one of the anchors, so that the product is small beside its rounding.

The gradient takes two passes over the tiles, one for df and one for dg and dr, each product twice:
one pass that adds df with atomics does 3 large products instead of 4 and took longer (H200: 11.0
against 9.1 ms at 32 x 16,384 tokens), so the fastest way is the deterministic one.

Padding needs no mask in the tiles: where r_j = 0 (behind the last key, masked keys) nothing is
added to h, and where dh_i = 0 (behind the last query) nothing to a gradient.
"""

from lohe.ops.triton.kernels.drive_backward import drive_keys, drive_queries
from lohe.ops.triton.kernels.forward import drive_and_readout
from lohe.ops.triton.kernels.readout_backward import readout_keys, readout_queries
from lohe.ops.triton.kernels.rows import FEW
from lohe.ops.triton.kernels.sums import pack, prepare, scan

__all__ = [
    "FEW",
    "drive_and_readout",
    "drive_keys",
    "drive_queries",
    "pack",
    "prepare",
    "readout_keys",
    "readout_queries",
    "scan",
]
