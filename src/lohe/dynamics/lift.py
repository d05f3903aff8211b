"""Natural frequencies, exactly: the flow on the sphere is a linear one, seen in perspective."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lohe import sphere

# Numbers in the matrices that are exponentiated at once, in a dozen tensors of that size: in the
# caches of a CPU, or enough to keep a GPU busy
ENTRIES, ENTRIES_GPU = 2**18, 2**26


class Motion(NamedTuple):
    """A conformal map of the sphere, z -> a ⊕ Rz: turned by R, then drawn towards a.

    a lies in the ball, and a ⊕ y = (‖m‖² a + δ m) / ‖m‖² with m = a + y and δ = 1 - ‖a‖². This
    slack is kept beside a: where a has all but reached the sphere, its digits have lost it.
    """

    towards: Float[Tensor, "*batch d_osc"]
    slack: Float[Tensor, "*batch 1"]
    turn: Float[Tensor, "*batch d_osc d_osc"]


def lifted_flow(
    z0: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    t: float | Float[Tensor, "*#batch"],
    frequency: Float[Tensor, "*#batch d_osc d_osc"],
) -> Float[Tensor, "*batch d_osc"]:
    """The flow with frequency: z = y/s where d/dt [y; s] = A [y; s], A = [[Ω, h], [hᵀ, 0]].

    exp(Aτ) is taken for the t/2^k = τ with ‖h‖τ <= 1, and time then doubles, t = τ + τ + 2τ + 4τ
    + .... What doubles is the `Motion` that exp(Aτ) is on the sphere, not the matrix: in its square
    the leading terms cancel near |ω| = ‖h‖, which costs t² rounding errors, and the physics only t.
    Taking the steps as they double keeps what a start close to the unstable point knows: one step
    of t would blur z0 by e^(2λt) rounding errors, this by the e^(λt) that the physics amplifies
    them with. Locked or not makes no difference.

    Float64 whatever the input, on the CPU where the device has none (MPS). Every oscillator has a
    matrix of its own, (d_osc + 1)² numbers: many are taken one part after the other.
    """
    check_skew_symmetric(frequency)
    x, drive, omega = (double(a) for a in (z0, h, frequency))
    time = torch.as_tensor(t, dtype=drive.dtype, device=drive.device)
    return in_parts(x, drive, time, omega).to(dtype=h.dtype, device=h.device)


def in_parts(
    z: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    t: Float[Tensor, "*#batch"],
    frequency: Float[Tensor, "*#batch d_osc d_osc"],
) -> Float[Tensor, "*batch d_osc"]:
    """`doubled`, of halves as long as the matrices have more numbers in all than are allowed."""
    matrices = torch.broadcast_shapes(h.shape[:-1], t.shape, frequency.shape[:-2])
    most = ENTRIES if h.device.type == "cpu" else ENTRIES_GPU
    if matrices.numel() * (h.shape[-1] + 1) ** 2 <= most or max(matrices, default=1) == 1:
        return doubled(z, h, t, frequency)
    axis = max(range(-len(matrices), 0), key=lambda n: matrices[n])  # the longest, from the right
    parts = (halves(a, axis - n) for a, n in ((z, 1), (h, 1), (t, 0), (frequency, 2)))
    return torch.cat([in_parts(*part) for part in zip(*parts, strict=True)], dim=axis - 1)


def halves(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    """Both halves along an axis counted from the right, or x twice where it is broadcast there."""
    whole = x.ndim < -dim or x.shape[dim] == 1
    return (x, x) if whole else x.tensor_split(2, dim)


def doubled(
    z: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    t: Float[Tensor, "*#batch"],
    frequency: Float[Tensor, "*#batch d_osc d_osc"],
) -> Float[Tensor, "*batch d_osc"]:
    """The state at t by steps that double, each a motion of the sphere."""
    e_folds = (h.norm(dim=-1) * t).detach().nan_to_num(posinf=1)
    doublings = e_folds.clamp(min=1).log2().ceil()
    step = motion(matrix_exp(lift(h, frequency) * (t / 2**doublings)[..., None, None]))

    z = advance(step, sphere.normalize(z))  # float32 is off the sphere by more than we resolve
    for n in range(int(doublings.max()) if doublings.numel() else 0):
        running = (n < doublings)[..., None]
        z = torch.where(running, advance(step, z), z)
        towards, slack, turn = twice(step)
        step = Motion(
            torch.where(running, towards, step.towards),
            torch.where(running, slack, step.slack),
            torch.where(running[..., None], turn, step.turn),
        )
    return z


def lift(
    h: Float[Tensor, "*#batch d_osc"], frequency: Float[Tensor, "*#batch d_osc d_osc"]
) -> Float[Tensor, "*batch lifted lifted"]:
    """A = [[Ω, h], [hᵀ, 0]], an infinitesimal Lorentz transformation: ‖y‖² - s² is constant."""
    batch = torch.broadcast_shapes(h.shape[:-1], frequency.shape[:-2])
    h, omega = h.expand(*batch, -1), frequency.expand(*batch, -1, -1)
    top = torch.cat([omega, h[..., None]], dim=-1)
    bottom = torch.cat([h, torch.zeros_like(h[..., :1])], dim=-1)
    return torch.cat([top, bottom[..., None, :]], dim=-2)


def motion(step: Float[Tensor, "*batch lifted lifted"]) -> Motion:
    """A Lorentz transformation [[·, s], [rowᵀ, c]] on the sphere: a boost after a rotation."""
    s, row, c = step[..., :-1, -1], step[..., -1:, :-1], step[..., -1:, -1]
    towards = s / (1 + c)
    return Motion(towards, 2 / (1 + c), step[..., :-1, :-1] - towards[..., None] * row)


def advance(step: Motion, z: Float[Tensor, "*#batch d_osc"]) -> Float[Tensor, "*batch d_osc"]:
    """a ⊕ Rz; where Rz = -a, on the sphere both, it stays."""
    turned = torch.einsum("...de,...e->...d", step.turn, z)
    m = step.towards + turned
    square = m.square().sum(dim=-1, keepdim=True)
    there = sphere.normalize(square * step.towards + step.slack * m)
    return torch.where(square == 0, turned, there)


def twice(step: Motion) -> Motion:
    """The motion of twice the time, z -> (a ⊕ b) ⊕ G R²z with b = Ra.

    With m = a + b, both of slack δ, a ⊕ b = (‖m‖² a + δ m) / (‖m‖² + δ²) has the slack
    δ² / (‖m‖² + δ²), and G is the rotation of the plane of a and b that keeps ⊕ from associating,

        G = I + 2 (cK + K²) / (c² + k²),  K = amᵀ - maᵀ,  k² = ½ Σ K²,  c = ½‖m‖² + δ.
    """
    a, slack, turn = step
    m = a + torch.einsum("...de,...e->...d", turn, a)
    square = m.square().sum(dim=-1, keepdim=True)
    whole = nonzero(square + slack**2)
    pair = torch.stack([a, m], dim=-1)
    outer = a[..., :, None] * m[..., None, :]
    area = (outer - outer.mT).square().sum(dim=(-2, -1), keepdim=True) / 2
    c = (square / 2 + slack)[..., None]

    def k(x: Tensor) -> Tensor:
        """K x, of rank two: a (m·x) - m (a·x)."""
        on_a, on_m = (pair.mT @ x).split(1, dim=-2)
        return a[..., None] * on_m - m[..., None] * on_a

    turn = turn @ turn
    once = k(turn)
    turn = turn + 2 * (c * once + k(once)) / nonzero(c**2 + area)
    # a step of Newton's: the rounding that leaves the rotations would double with them
    turn = 1.5 * turn - 0.5 * turn @ turn.mT @ turn
    return Motion((square * a + slack * m) / whole, slack**2 / whole, turn)


def nonzero(x: Tensor) -> Tensor:
    """x, or 1 where it is 0."""
    return torch.where(x == 0, 1, x)


def matrix_exp(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """exp(X). A lone matrix goes in twice: in a batch of one, torch 2.13 cuts the series too early
    for norms around 0.01 to 0.04 and leaves errors up to 1e-11."""
    if x.shape[:-2].numel() == 1:
        return torch.linalg.matrix_exp(x.expand(2, *x.shape))[0]
    return torch.linalg.matrix_exp(x)


def double(x: Tensor) -> Tensor:
    """x in float64, on the CPU if its device has no float64."""
    return x.to(dtype=torch.float64, device="cpu" if x.device.type == "mps" else x.device)


def as_float(x: Tensor) -> Tensor:
    """x, in float32 where it holds whole numbers."""
    return x if x.is_floating_point() else x.to(torch.float32)


def check_skew_symmetric(frequency: Float[Tensor, "*batch d_osc d_osc"]) -> None:
    if frequency.numel() == 0:
        return
    largest = frequency.detach().abs().amax(dim=(-2, -1))
    asymmetry = (frequency + frequency.mT).detach().abs().amax(dim=(-2, -1))
    wrong = ~(asymmetry <= 8 * torch.finfo(frequency.dtype).eps * largest)  # NaN too
    if bool(wrong.any()):
        raise ValueError(
            "frequency must be skew-symmetric, Ω = -Ωᵀ, for its rotation to stay on the sphere "
            f"(Eq. 1); got |Ω + Ωᵀ| up to {asymmetry[wrong].max():.3g} with |Ω| up to "
            f"{largest[wrong].max():.3g}. From any square M, (M - Mᵀ) / 2 is skew-symmetric."
        )
