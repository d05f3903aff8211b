"""Natural frequencies, exactly: the flow on the sphere is a linear one, seen in perspective."""

import torch
from jaxtyping import Float
from torch import Tensor

from lohe import sphere

# Numbers in the matrices that are exponentiated at once, in a dozen tensors of that size: in the
# caches of a CPU, or enough to keep a GPU busy
ENTRIES, ENTRIES_GPU = 2**18, 2**26


def lifted_flow(
    z0: Float[Tensor, "*#batch d_osc"],
    h: Float[Tensor, "*#batch d_osc"],
    t: float | Float[Tensor, "*#batch"],
    frequency: Float[Tensor, "*#batch d_osc d_osc"],
) -> Float[Tensor, "*batch d_osc"]:
    """The flow with frequency: z = y/s where d/dt [y; s] = A [y; s], A = [[Ω, h], [hᵀ, 0]].

    Only the direction of [y; s] matters, so nothing needs to overflow: exp(Aτ) is taken for the
    t/2^k = τ with ‖h‖τ <= 1, and time then doubles, t = τ + τ + 2τ + 4τ + ..., rescaling after
    each product. Taking the steps as they double also keeps what a start close to the unstable
    point knows: one product with exp(At) would blur z0 by e^(2λt) rounding errors, this by the
    e^(λt) that the physics amplifies them with. Locked or not makes no difference.

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
    """The state at t by steps that double."""
    e_folds = (h.norm(dim=-1) * t).detach().nan_to_num(posinf=1)
    doublings = e_folds.clamp(min=1).log2().ceil()
    step = matrix_exp(lift(h, frequency) * (t / 2**doublings)[..., None, None])

    z = advance(step, z)
    for n in range(int(doublings.max()) if doublings.numel() else 0):
        running = (n < doublings)[..., None]
        z = torch.where(running, advance(step, z), z)
        step = torch.where(running[..., None], rescale(step @ step), step)
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


def advance(
    step: Float[Tensor, "*#batch lifted lifted"], z: Float[Tensor, "*#batch d_osc"]
) -> Float[Tensor, "*batch d_osc"]:
    """Lift z to [z; 1], apply the step, and return to the sphere: there s = ‖y‖."""
    y = torch.einsum("...de,...e->...d", step[..., :-1, :-1], z) + step[..., :-1, -1]
    return sphere.normalize(y)


def matrix_exp(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """exp(X). A lone matrix goes in twice: in a batch of one, torch 2.13 cuts the series too early
    for norms around 0.01 to 0.04 and leaves errors up to 1e-11."""
    if x.shape[:-2].numel() == 1:
        return torch.linalg.matrix_exp(x.expand(2, *x.shape))[0]
    return torch.linalg.matrix_exp(x)


def rescale(step: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """The same projective map with entries of at most 1; the factor is a constant to autograd."""
    return step / step.detach().abs().amax(dim=(-2, -1), keepdim=True)


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
