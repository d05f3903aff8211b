"""σ of Eq. 2 and its derivative inside a kernel, on a tile of raw products x = f·g.

With s = scale · x, a kernel wants few operations an element. So σ(s) = factor · w(x), and the sums
over keys are multiplied by the factor: for relu it is the scale itself, and w(x) = max(x, 0), which
costs nothing on the way to 16 bits. `FAST` (16-bit inputs on a GPU) replaces log1p by a polynomial
whose relative error, 6e-5, is far below the rounding of the inputs, and the sigmoid by the
hardware's tanh.
"""
# Triton is not installed everywhere, and its decorator does not tell how a kernel is launched
# pyright: reportMissingImports=false

from typing import no_type_check

import triton
import triton.language as tl

from lohe.ops import coupling

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
RELU_FLOOR = tl.constexpr(coupling.RELU_FLOOR)


@triton.jit
@no_type_check
def factor(scale, COUPLING: tl.constexpr):
    """σ(scale · x) / w(x)."""
    if COUPLING == "relu" or COUPLING == "softplus":
        return scale
    return 1.0


@triton.jit
@no_type_check
def coupled(x, scale, COUPLING: tl.constexpr, FAST: tl.constexpr, DTYPE: tl.constexpr):
    """w(x) in DTYPE; a NaN stays one.

    relu lacks its floor, which belongs to the sum: 1e-3 / factor a key.
    """
    if COUPLING == "relu":
        if FAST:
            return _rectified(x, DTYPE)
        return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL).to(DTYPE)
    if COUPLING == "softplus":
        if FAST and DTYPE == tl.float16:  # noqa: SIM300
            return _softplus_in_half(x, -scale * LOG2E, 1.0 / scale)
        t = tl.exp2(tl.abs(x) * (-scale * LOG2E))
        return (tl.maximum(x, 0.0) + _log1p(t, 1.0 / scale, FAST)).to(DTYPE)
    s = x * scale
    if COUPLING == "elu":
        above, below = tl.maximum(s, 0.0, propagate_nan=tl.PropagateNan.ALL), tl.minimum(s, 0.0)
        return (above + tl.exp2(below * LOG2E)).to(DTYPE)
    return tl.exp2(s * LOG2E).to(DTYPE)


@triton.jit
@no_type_check
def through(dw, x, scale, COUPLING: tl.constexpr, FAST: tl.constexpr):
    """dw · σ′(scale · x)."""
    if COUPLING == "relu":
        return tl.where(x > 0.0, dw, 0.0)
    if COUPLING == "softplus":
        if FAST:
            half = 0.5 * dw
            return half + half * _tanh(x * (0.5 * scale))
        return dw / (1.0 + tl.exp2(x * (-scale * LOG2E)))
    if COUPLING == "elu":
        return dw * tl.exp2(tl.minimum(x * scale, 0.0) * LOG2E)
    return dw * tl.exp2(x * (scale * LOG2E))


@triton.jit
@no_type_check
def _log1p(t, unit, FAST: tl.constexpr):
    """unit · log(1 + t) for t in [0, 1]."""
    if FAST:  # minimax in the relative error, degree 4 for log1p(t) / t
        q = (0.04134731 * unit) * t - 0.15742724 * unit
        q = q * t + 0.30630097 * unit
        q = q * t - 0.49697782 * unit
        q = q * t + 0.99994328 * unit
        return t * q
    small = t * (1.0 - t * (0.5 - t * (1.0 / 3.0)))  # 1 + t would round t away
    return unit * tl.where(t < 1e-3, small, tl.log(1.0 + t))


@triton.jit
@no_type_check
def _softplus_in_half(x, rate, unit):
    """max(x, 0) + unit log(1 + t) with t = 2^(rate |x|), two elements at a time in float16.

    t is made in float32, t q(t) with 11 bits, which is what the result has; q is the polynomial of
    `_log1p`. Two thirds of the instructions of float32.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .f32 a, b;
        .reg .b32 t, q, u, c;
        abs.f32 a, $1;
        abs.f32 b, $2;
        mul.f32 a, a, $3;
        mul.f32 b, b, $4;
        ex2.approx.ftz.f32 a, a;
        ex2.approx.ftz.f32 b, b;
        cvt.rn.f16x2.f32 t, b, a;
        mov.b32 q, 0x294B294B;
        mov.b32 c, 0xB10AB10A;
        fma.rn.f16x2 q, q, t, c;
        mov.b32 c, 0x34E734E7;
        fma.rn.f16x2 q, q, t, c;
        mov.b32 c, 0xB7F4B7F4;
        fma.rn.f16x2 q, q, t, c;
        mov.b32 c, 0x3C003C00;
        fma.rn.f16x2 q, q, t, c;
        mul.rn.f16x2 q, q, t;
        cvt.rn.f16x2.f32 u, $6, $5;
        cvt.rn.relu.f16x2.f32 c, $2, $1;
        fma.rn.f16x2 $0, q, u, c;
        }""",
        "=r,r,r,r,r,r,r", [x, rate, unit], dtype=tl.float16, is_pure=True, pack=2,
    )  # fmt: skip


@triton.jit
@no_type_check
def _tanh(x):
    """The hardware's tanh, right to about 2^-11."""
    return tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
@no_type_check
def _rectified(x, DTYPE: tl.constexpr):
    """max(x, 0), rounded to 16 bits: one instruction for two elements."""
    if DTYPE == tl.bfloat16:  # noqa: SIM300
        return tl.inline_asm_elementwise(
            "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x],
            dtype=tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
    else:  # noqa: RET505
        return tl.inline_asm_elementwise(
            "cvt.rn.relu.f16x2.f32 $0, $2, $1;", "=r,r,r", [x],
            dtype=tl.float16, is_pure=True, pack=2,
        )  # fmt: skip
