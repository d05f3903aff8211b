"""What both mechanisms share: linear maps in and out, and heads."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lohe.ops.affine import affine


class Linear(nn.Linear):
    """nn.Linear whose products also suit a pack of models on a GPU."""

    def forward(self, input: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        return affine(input, self.weight, self.bias)


def linear(
    d_in: int, d_out: int, *, bias: bool, generator: torch.Generator | None = None
) -> Linear:
    """A linear map with nn.Linear's initialisation, drawn from `generator` and on its device."""
    device = torch.get_default_device() if generator is None else generator.device
    layer = Linear(d_in, d_out, bias=bias, device="meta").to_empty(device=device)
    bound = d_in**-0.5  # what kaiming_uniform_(a=sqrt(5)), PyTorch's default, comes to
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def split_heads(
    x: Float[Tensor, "batch tokens d_model"], heads: int
) -> Float[Tensor, "batch heads tokens d_h"]:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(
    x: Float[Tensor, "batch heads tokens d_h"],
) -> Float[Tensor, "batch tokens d_model"]:
    return x.transpose(1, 2).flatten(2)


def check_width(d_model: int, heads: int) -> None:
    if heads < 1 or d_model < 1 or d_model % heads:
        raise ValueError(
            f"d_model={d_model} does not divide into heads={heads}. Each head gets d_model / heads "
            "features: choose a number of heads that divides d_model."
        )


def check_input(name: str, x: Tensor, d_model: int) -> None:
    if x.ndim != 3 or x.shape[-1] != d_model:
        raise ValueError(
            f"`{name}` must be (batch, tokens, d_model = {d_model}), got {tuple(x.shape)}."
        )
