"""Section 3 as executable statements: stability, degenerate positions, antipodal starts."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lohe import sphere


def energy(
    z: Float[Tensor, "*#batch d_osc"], h: Float[Tensor, "*#batch d_osc"]
) -> Float[Tensor, "*batch"]:
    """V(z) = -zᵀh: lowest, -‖h‖, at the fixed point h/‖h‖ and highest, ‖h‖, opposite it."""
    return -(z * h).sum(dim=-1)


def energy_rate(
    z: Float[Tensor, "*#batch d_osc"], h: Float[Tensor, "*#batch d_osc"]
) -> Float[Tensor, "*batch"]:
    """Theorem 3: V̇ = -(‖h‖² - (zᵀh)²) <= 0, zero only at ±h/‖h‖.

    So -h/‖h‖ repels and every other start reaches h/‖h‖. Computed as -‖(I - zzᵀ)h‖², the same
    number for unit z, which rounding cannot make positive.
    """
    z, h = torch.broadcast_tensors(z, h)
    return -sphere.tangent(z, h).square().sum(dim=-1)


def expected_drive_squared(couplings: Float[Tensor, "*batch j"]) -> Float[Tensor, "*batch"]:
    """Proposition 4: E‖h_i‖² = ‖w_i‖² for h_i = Σ_j w_ij r_j and independent uniform anchors.

    A masked key has w_ij = 0 and drops out: under a causal mask the sum runs over j <= i.
    """
    return couplings.square().sum(dim=-1)


def drive_squared_variance(
    couplings: Float[Tensor, "*batch j"], d_osc: int
) -> Float[Tensor, "*batch"]:
    """Var ‖h_i‖² = (2/d_osc) (‖w_i‖⁴ - Σ_j w_ij⁴): the cross terms 2 w_j w_k r_j·r_k, j < k.

    E(r_j·r_k)² = 1/d_osc, and different pairs are uncorrelated.
    """
    square = couplings.square()
    return 2 / d_osc * (square.sum(dim=-1).square() - square.square().sum(dim=-1))


def degenerate_bound(
    couplings: Float[Tensor, "*batch j"], epsilon: float, d_osc: int
) -> Float[Tensor, "*batch"]:
    """Upper bound on Pr(‖h_i‖² <= ε‖w_i‖²) for independent uniform anchors, by Cantelli.

    v / (v + (1 - ε)²), v = Var‖h‖²/‖w‖⁴ <= 2/d_osc. It falls only as 1/d_osc; the exponential
    bound of Section 3 has an unspecified constant, so there is no number to give for it. The scale
    of w does not matter; 1 where all of it is 0.
    """
    if not 0 < epsilon < 1:
        raise ValueError(
            f"epsilon is the fraction of ‖w‖² that ‖h‖² falls below, got {epsilon}. "
            "Choose it between 0 and 1."
        )
    largest = couplings.detach().abs().amax(dim=-1, keepdim=True)
    w = couplings / torch.where(largest == 0, 1, largest)  # whose fourth power a dtype can hold
    mean = expected_drive_squared(w)
    v = drive_squared_variance(w, d_osc)
    return torch.where(mean == 0, 1, v / (v + ((1 - epsilon) * mean).square()))


def cap_probability(angle: float | Float[Tensor, "*batch"], d_osc: int) -> Float[Tensor, "*batch"]:
    """Eq. 10: Pr(∠(z(0), -z*) < α) = Γ(d/2) / (√π Γ((d-1)/2)) ∫₀^α sin^(d-2) θ dθ, 0 <= α <= π.

    Without a gradient.

    >>> cap_probability(math.pi / 4, d_osc=2)
    tensor(0.2500, dtype=torch.float64)
    """
    check_dimension(d_osc)
    check_angle(angle, math.pi)
    return sphere.cap_probability(angle, d_osc)


def cap_bound(angle: float | Float[Tensor, "*batch"], d_osc: int) -> Float[Tensor, "*batch"]:
    """Proposition 5: the cap's probability is at most prefactor(d) α sin^(d-2) α, 0 <= α <= π/2.

    It decays exponentially in d_osc, since sin α < 1 and the prefactor grows as √(d/2π).
    """
    check_angle(angle, math.pi / 2)
    alpha = torch.as_tensor(angle, dtype=torch.float64)
    return cap_prefactor(d_osc) * alpha * torch.sin(alpha) ** (d_osc - 2)


def cap_asymptote(angle: float | Float[Tensor, "*batch"], d_osc: int) -> Float[Tensor, "*batch"]:
    """C(d) α^(d-1) with C(d) = prefactor(d)/(d-1): the cap's probability as α -> 0."""
    alpha = torch.as_tensor(angle, dtype=torch.float64)
    return cap_prefactor(d_osc) / (d_osc - 1) * alpha ** (d_osc - 1)


def cap_prefactor(d_osc: int) -> float:
    """Γ(d/2) / (√π Γ((d-1)/2)), which makes sin^(d-2) θ a probability density on (0, π)."""
    check_dimension(d_osc)
    return math.exp(math.lgamma(d_osc / 2) - math.lgamma((d_osc - 1) / 2)) / math.sqrt(math.pi)


def readout_rank_bound(d_osc: int, sharpness: float) -> int:
    """Largest rank of the similarity (1 + z_i·r_j)^p for unit z, r: C(d+p-1, p) + C(d+p-2, p-1).

    The dimension of the polynomials of degree p on the sphere; d + 1 at p = 1. Sharpening does
    raise rank, until the number of tokens limits it. Masking can raise it further.

    >>> readout_rank_bound(2, 1), readout_rank_bound(2, 4)
    (3, 9)
    """
    check_dimension(d_osc)
    if not sharpness >= 1 or not float(sharpness).is_integer():
        raise ValueError(
            f"sharpness is the power of the readout, here a whole number p >= 1; got {sharpness}. "
            "For a real p there is no bound but the number of tokens."
        )
    d, p = d_osc, int(sharpness)
    return math.comb(d + p - 1, p) + math.comb(d + p - 2, p - 1)


def uniform_share(
    couplings: Float[Tensor, "*batch j"], gain: float | Float[Tensor, "*#batch"] = 1
) -> Float[Tensor, "*batch"]:
    """λ = n / (n + γ ‖w‖₁/‖w‖₂), the uniform part of attention at p = 1 and orthonormal anchors.

    There z·r_j = w_j/‖w‖₂, so that Eq. 5 over the n coupled keys (w > 0) is exactly

        a_j = λ/n + (1 - λ) w_j/Σ_k w_k.

    ‖w‖₁/‖w‖₂ lies between 1, one key, and √n, all alike: without a gain λ >= √n/(√n + 1), seven
    eighths at 48 keys. A gain takes the uniform part away; with exponential couplings softmax is
    what is left. Anchors of n keys can be orthonormal from d_osc = n on. Some w must be positive,
    and a coupling that has underflown to 0 counts as masked.

    >>> import torch
    >>> uniform_share(torch.ones(9)).item(), round(uniform_share(torch.ones(9), 27).item(), 6)
    (0.75, 0.1)
    """
    _check_not_negative(gain=gain)
    w = couplings.double()
    keys = (w > 0).sum(dim=-1)
    w = w / w.amax(dim=-1, keepdim=True)
    return keys / (keys + gain * w.sum(dim=-1) / w.norm(dim=-1))


def largest_weight(
    keys: int,
    sharpness: float | Float[Tensor, "*#batch"] = 1,
    gain: float | Float[Tensor, "*#batch"] = 1,
    lean: float | Float[Tensor, "*#batch"] = 0,
    radius: float | Float[Tensor, "*#batch"] = 1,
) -> Float[Tensor, "*batch"]:
    """The most that one of n keys can get, A / (A + (n - 1) B), whatever d_osc and σ are.

        A = (1 + γ ρ)^p,   B = max(0, 1 + γ (n μ - ρ)/(n - 1))^p,   p >= 1, γ >= 0.

    μ = z·m is the `lean` of the oscillator to m, the mean of the n anchors, and ρ, the `radius`,
    at least the norm of each of them. Eq. 5 gives a key A at most; the others share what is left
    of n μ, and as x -> max(0, 1 + γ x)^p is convex their mean is B at least. It is reached where
    all others have the same cosine, such as at a vertex of a regular simplex, where m = 0. The
    oscillator need not be at rest.

    As published on the sphere (p = 1, γ = 1) an oscillator that does not lean away from its
    anchors, μ >= 0, gives no key more than 2/n, in any dimension. Half of the attention takes p of
    about log2 n, or a gain of about n/2, or an anchor as long, or a lean away: one key whose anchor
    is opposite to all others can have everything, but not each in turn. Oscillators that stand at
    the anchors lean by r_j·m, whose mean over the keys is ‖m‖² >= 0.

    >>> [round(largest_weight(48, p).item(), 3) for p in (1, 2, 4, 8)]
    [0.042, 0.082, 0.271, 0.866]
    """
    if keys < 1:
        raise ValueError(f"keys is the number of keys that may be read, at least 1; got {keys}.")
    _check_not_negative(gain=gain, radius=radius)
    p, amplified, mean, longest = (
        torch.as_tensor(x, dtype=torch.float64) for x in (sharpness, gain, lean, radius)
    )
    if not bool((p >= 1).all()):
        raise ValueError(
            f"The bound holds for a convex readout, sharpness p >= 1; got {sharpness}."
        )
    others = 1 + amplified * (keys * mean - longest) / max(keys - 1, 1)
    ratio = others.clamp(min=0) / (1 + amplified * longest)
    return 1 / (1 + (keys - 1) * ratio**p)


def _check_not_negative(**values: float | Tensor) -> None:
    for name, value in values.items():
        if not bool((torch.as_tensor(value) >= 0).all()):
            raise ValueError(f"{name} must not be negative, got {value}.")


def weight_response(
    h: Float[Tensor, "*batch i d_osc"],
    anchors: Float[Tensor, "*#batch j d_osc"],
    allowed: Bool[Tensor, "*#batch i j"],
) -> Float[Tensor, "*batch i j"]:
    """∂a_ij/∂w_ij of Eqs. 3-6 at p = 1: raising one coupling, and the weight of its own key.

    With z = h/‖h‖, c_ij = z_i·r_j, S = max(0, 1 + c), D_i = Σ_k S_ik over the allowed keys, and
    R_i the sum of those of their anchors that have S_ik > 0:

        ((‖r_j‖² - c_ij²) [S_ij > 0] - a_ij (R_i·r_j - (R_i·z_i) c_ij)) / (‖h_i‖ D_i).

    The first term, z_i·r_j rising, is never negative; the second, all other weights rising with
    it, can be the larger one. 0 where j is not allowed; h must not be 0.
    """
    norm = h.norm(dim=-1, keepdim=True)
    z = h / norm
    cosine = z @ anchors.mT
    similarity = (1 + cosine).clamp(min=0) * allowed
    total = similarity.sum(dim=-1, keepdim=True)
    counted = (similarity > 0).to(h.dtype)
    others = counted @ anchors  # R_i
    turned = others @ anchors.mT - (others * z).sum(dim=-1, keepdim=True) * cosine
    own = (anchors.square().sum(dim=-1).unsqueeze(-2) - cosine.square()) * counted
    return (own - similarity / total * turned) * allowed / (norm * total)


def check_angle(angle: float | Float[Tensor, "*batch"], most: float) -> None:
    alpha = torch.as_tensor(angle, dtype=torch.float64).detach()
    wrong = ~((alpha >= 0) & (alpha <= most + 1e-6))  # π in float32 is above π; NaN is wrong too
    if bool(wrong.any()):
        raise ValueError(
            f"A cap's angle is in radians, 0 <= angle <= {most:.2f}; got {alpha[wrong][0]}. "
            "For degrees, math.radians converts."
        )


def check_dimension(d_osc: int) -> None:
    if d_osc < 2:
        raise ValueError(f"Oscillators live on a sphere in d_osc >= 2 dimensions, got {d_osc}.")
