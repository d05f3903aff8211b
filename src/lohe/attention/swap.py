"""Oscillator attention inside models that were written for `nn.MultiheadAttention`."""

import torch
from torch import Tensor, nn

from lohe.attention.oscillator import OscillatorAttention
from lohe.ops.checks import active


def swap_attention(
    model: nn.Module,
    max_tokens: int,
    d_osc: int = 2,
    *,
    generator: torch.Generator | None = None,
    **options,
) -> nn.Module:
    """Replace every `nn.MultiheadAttention` in `model` by oscillator attention, in place.

    W_Q, W_K, W_V, W_O and their biases are carried over as F, G, W_V, W_O; the anchors are new,
    drawn from `generator`. Dropout on attention weights has no counterpart and is left out; all
    other dropout of the model stays. `options` are those of `OscillatorAttention`. Returns the
    model; one that is itself an `nn.MultiheadAttention` cannot be replaced in place, and what is
    returned is to be used instead.

    >>> import torch, lohe
    >>> layer = torch.nn.TransformerEncoderLayer(32, 4, batch_first=True)
    >>> model = lohe.attention.swap_attention(torch.nn.TransformerEncoder(layer, 2), max_tokens=50)
    >>> model(torch.randn(8, 10, 32)).shape
    torch.Size([8, 10, 32])
    """
    if isinstance(model, nn.MultiheadAttention):
        return MultiheadOscillatorAttention(
            model, max_tokens, d_osc, generator=generator, **options
        )
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent._modules.items()  # named_children() has a module once
        if isinstance(child, nn.MultiheadAttention)
    ]
    if not found:
        raise ValueError(
            f"{type(model).__name__} holds no nn.MultiheadAttention to swap (any more, if it was "
            "swapped before). A model with attention of its own takes lohe.OscillatorAttention in "
            "place of that module."
        )
    swapped: dict[nn.Module, nn.Module] = {}  # a module used twice stays one module
    for parent, name, child in found:
        if child not in swapped:
            swapped[child] = MultiheadOscillatorAttention(
                child, max_tokens, d_osc, generator=generator, **options
            )
        setattr(parent, name, swapped[child])
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # its eval path for padded batches is softmax only
    return model


class MultiheadOscillatorAttention(nn.Module):
    """`OscillatorAttention` with the call, and the masks, of `nn.MultiheadAttention`."""

    # nn.TransformerEncoderLayer reads these to choose its fused softmax path; they rule it out
    _qkv_same_embed_dim = False
    in_proj_bias = None

    def __init__(
        self,
        original: nn.MultiheadAttention,
        max_tokens: int,
        d_osc: int = 2,
        *,
        generator: torch.Generator | None = None,
        **options,
    ):
        super().__init__()
        _check_swappable(original)
        self.batch_first, self.num_heads = original.batch_first, original.num_heads
        self.embed_dim = original.embed_dim
        self.layer = OscillatorAttention(
            original.embed_dim,
            original.num_heads,
            max_tokens,
            d_osc,
            bias=original.in_proj_bias is not None,
            generator=generator,
            **options,
        ).to(original.out_proj.weight)
        _carry_over(original, self.layer)
        self.train(original.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.is_nested:
            raise ValueError(
                "Nested tensors are not supported; pass a padded batch with a key_padding_mask."
            )
        batched = query.ndim == 3
        query, key, value = (self._batch_first(x) for x in (query, key, value))
        if is_causal and attn_mask is None:
            raise ValueError("is_causal=True needs the attn_mask that it describes, as in PyTorch.")
        # the hint spares a mask, where PyTorch's (top left) is ours (bottom right)
        is_causal = is_causal and query.shape[1] == key.shape[1]
        mask = None if is_causal else _allowed(attn_mask, "attn_mask")
        key_mask = _allowed(key_padding_mask, "key_padding_mask")
        if mask is not None and mask.ndim == 3:  # (batch * heads, queries, keys)
            mask = mask.unflatten(0, (-1, self.num_heads))
        if key_mask is not None and key_mask.ndim == 1:
            key_mask = key_mask[None]
        result = self.layer.attend(
            query,
            key,
            value,
            mask=mask,
            key_mask=key_mask,
            need_weights=need_weights,
            causal=is_causal or None,
        )
        out, weights = result if isinstance(result, tuple) else (result, None)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    def _batch_first(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            return x[None]
        return x if self.batch_first else x.transpose(0, 1)


def _check_swappable(original: nn.MultiheadAttention) -> None:
    refused = {
        "kdim or vdim different from embed_dim": not original._qkv_same_embed_dim,
        "add_bias_kv=True": original.bias_k is not None,
        "add_zero_attn=True": original.add_zero_attn,
    }
    for what, present in refused.items():
        if present:
            raise ValueError(
                f"This nn.MultiheadAttention was built with {what}, which has no counterpart in "
                "oscillator attention. Rebuild it without, or leave it as it is."
            )


def _carry_over(original: nn.MultiheadAttention, layer: OscillatorAttention) -> None:
    assert original.in_proj_weight is not None
    for name, joint in (("weight", original.in_proj_weight), ("bias", original.in_proj_bias)):
        if joint is not None:
            for to, part in zip((layer.to_f, layer.to_g, layer.to_v), joint.chunk(3), strict=True):
                _copy(to.get_parameter(name), part)
    _copy(layer.to_out.weight, original.out_proj.weight)
    nn.init.zeros_(layer.to_out.bias)
    if original.out_proj.bias is not None:
        _copy(layer.to_out.bias, original.out_proj.bias)


def _copy(into: Tensor, source: Tensor) -> None:
    """What was frozen stays frozen."""
    into.data.copy_(source.detach())
    into.requires_grad_(into.requires_grad and source.requires_grad)


def _allowed(ignored: Tensor | None, name: str) -> Tensor | None:
    """PyTorch's mask (True or -inf = ignore) as ours (True = may attend)."""
    if ignored is None:
        return None
    if ignored.dtype == torch.bool:
        return ~ignored
    allowed = ignored == 0
    if active(default=True) and not bool((allowed | (ignored == -torch.inf)).all()):
        raise ValueError(
            f"{name} adds finite biases to the scores, which have no meaning for couplings. Only "
            "boolean masks, or masks of 0 and -inf, can be used."
        )
    return allowed
