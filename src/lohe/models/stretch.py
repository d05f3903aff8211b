"""A trained model on longer sequences: its positions spread over more tokens."""

import copy
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lohe import sphere
from lohe.attention import (
    AlibiAttention,
    CouplingAmplification,
    DirectAttention,
    OscillatorAttention,
    PositionedAttention,
    PositionOffsetAttention,
    RotaryAttention,
)
from lohe.models.positions import PositionTable, sinusoids_at

Model = TypeVar("Model", bound=nn.Module)


@torch.no_grad()
def stretched(model: Model, max_tokens: int, *, trained: int) -> Model:
    """A copy of the model, or of a layer, whose first `trained` positions span `max_tokens`.

    Token t takes the place s = t (trained - 1) / (max_tokens - 1). Anchors between two old ones lie
    on the great circle through them, unit vectors (free ones with a length in between); learned
    tables are interpolated linearly; sinusoids, rotary positions and linear biases take s for t.
    Where s is a whole number everything is as it was. The distances of sinusoids, rotations and
    biases are not in a `state_dict`: stretch again after loading one.

    A language model has one anchor more than its inputs have tokens, and that one was never
    trained: `trained` is 49 for chunks of 50.

    >>> from lohe.models import Oscillator
    >>> layer = Oscillator(d_osc=3).build(d_model=8, heads=2, max_tokens=50)
    >>> stretched(layer, 97, trained=49).anchors.shape
    torch.Size([2, 97, 3])
    """
    if not 1 <= trained <= max_tokens:
        raise ValueError(
            f"stretched() spreads the trained positions over more tokens, got trained={trained} "
            f"and max_tokens={max_tokens}. A shorter sequence needs no stretching."
        )
    model = copy.deepcopy(model)
    for module in model.modules():
        _stretch(module, max_tokens, trained)
    return model


def _stretch(module: nn.Module, max_tokens: int, trained: int) -> None:
    """In place, whatever this module itself knows of positions."""
    if isinstance(module, OscillatorAttention | DirectAttention):
        at = places(max_tokens, trained, module.anchors)
        free = isinstance(module, OscillatorAttention) and not module.unit_anchors
        module.anchors = _like(module.anchors, at.on_sphere(module.anchors, keep_length=free))
        module.max_tokens = max_tokens
    if isinstance(module, PositionOffsetAttention):  # by distance: as far as positions are apart
        rows = module.phase_offsets[:, None]
        offsets = places(max_tokens, trained, rows).on_line(rows)
        module.phase_offsets = _like(module.phase_offsets, offsets[:, 0])
    if isinstance(module, CouplingAmplification):
        rows = module.coupling_gain[..., None].abs()  # its sign has no meaning
        gains = places(max_tokens, trained, rows).on_line(rows)
        module.coupling_gain = _like(module.coupling_gain, gains[..., 0])
    if isinstance(module, PositionedAttention):
        at = places(max_tokens, trained, module.table)
        module.table = _like(module.table, at.on_line(module.table))
    if isinstance(module, PositionTable):
        at = places(max_tokens, trained, module.table)
        if isinstance(module.table, nn.Parameter):
            module.table = _like(module.table, at.on_line(module.table))
        else:
            place = at.place * module.spacing
            module.table = sinusoids_at(place, module.table.shape[1]).to(module.table)
    if isinstance(module, RotaryAttention | AlibiAttention | PositionTable):
        module.spacing *= (trained - 1) / max(1, max_tokens - 1)


def _like(old: nn.Parameter, new: Tensor) -> nn.Parameter:
    return nn.Parameter(new, requires_grad=old.requires_grad)


@dataclass(frozen=True)
class Places:
    """Where each new token stands among the old ones: a fraction of the way from left to right."""

    left: Int[Tensor, " tokens"]
    right: Int[Tensor, " tokens"]
    fraction: Float[Tensor, " tokens"]

    @property
    def place(self) -> Float[Tensor, " tokens"]:
        return self.left + self.fraction

    def on_line(self, rows: Float[Tensor, "*batch old d"]) -> Float[Tensor, "*batch tokens d"]:
        """Between the rows, linearly."""
        left, right = rows[..., self.left, :].double(), rows[..., self.right, :].double()
        return torch.lerp(left, right, self.fraction[:, None]).to(rows.dtype)

    def on_sphere(
        self, rows: Float[Tensor, "*batch old d"], *, keep_length: bool
    ) -> Float[Tensor, "*batch tokens d"]:
        """Between the directions of the rows, along great circles; of unit length if not kept."""
        unit = sphere.normalize(rows)
        points = sphere.between(unit[..., self.left, :], unit[..., self.right, :], self.fraction)
        if not keep_length:
            return points
        longer = points * self.on_line(rows.norm(dim=-1, keepdim=True))
        return torch.where(self.fraction[:, None] == 0, rows[..., self.left, :], longer)


def places(max_tokens: int, trained: int, rows: Float[Tensor, "*batch old d"]) -> Places:
    """Where `max_tokens` tokens stand among the first rows, by whole numbers as far as they go.

    >>> places(5, 3, torch.zeros(3, 1)).place
    tensor([0.0000, 0.5000, 1.0000, 1.5000, 2.0000], dtype=torch.float64)
    """
    if trained > rows.shape[-2]:
        raise ValueError(
            f"trained={trained}, but the model has {rows.shape[-2]} positions: give how many of "
            "them were trained."
        )
    t = torch.arange(max_tokens, device=rows.device) * (trained - 1)
    steps = max(1, max_tokens - 1)
    left = t // steps
    return Places(left, (left + 1).clamp(max=trained - 1), (t % steps).double() / steps)
