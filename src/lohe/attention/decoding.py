"""The cache of incremental decoding: what a causal layer must remember of the tokens so far."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lohe import ops, sphere
from lohe.ops import linear, reference
from lohe.ops.available import HAS_TRITON, serves
from lohe.ops.masks import Allowed
from lohe.ops.problem import check_mask
from lohe.transforms import under_transforms


@dataclass
class Cache:
    """The g of every token, and their values: as a state where the readout is linear, else as such.

    Made by `OscillatorAttention.decode` and changed by it in place.
    """

    max_tokens: int
    tokens: int = 0
    layer: int = 0  # identity of the one that began it: no other can go on with it
    g: Float[Tensor, "batch heads max_tokens d_h"] | None = None
    v: Float[Tensor, "batch heads max_tokens d_h"] | None = None
    state: linear.State | None = None
    key_mask: Bool[Tensor, "batch max_tokens"] | None = None
    anchors: Float[Tensor, "heads max_tokens d_osc"] | None = None  # on the sphere, for the kernel

    @property
    def nbytes(self) -> int:
        """Memory held."""
        held = (self.g, self.v, self.key_mask, self.anchors, *(self.state or ()))
        return sum(x.numel() * x.element_size() for x in held if x is not None)

    def append(
        self, g: Float[Tensor, "batch heads new d_h"], key_mask: Tensor | None
    ) -> tuple[Float[Tensor, "batch heads seen d_h"], Bool[Tensor, "batch seen"] | None]:
        """Remember the keys of new tokens; all keys so far and which of them may be used."""
        start, stop = self.tokens, self.tokens + g.shape[2]
        if stop > self.max_tokens:
            raise ValueError(
                f"The cache holds {start} tokens of at most {self.max_tokens}; {g.shape[2]} more "
                "do not fit. Anchors are learned per position: build the layer with a larger "
                "max_tokens."
            )
        if self.g is not None and self.g.shape[0] != g.shape[0]:
            raise ValueError(
                f"The cache was started with a batch of {self.g.shape[0]}, got {g.shape[0]} "
                "sequences."
            )
        self.g = _write(self.g, g, start, self.max_tokens)
        if key_mask is not None:
            batch, heads, new, _ = g.shape
            check_mask("key_mask", key_mask, (batch, heads, new, new))
            if self.key_mask is None:
                every = torch.ones(batch, self.max_tokens, dtype=torch.bool, device=g.device)
                self.key_mask = every
            self.key_mask[:, start:stop] = key_mask
        self.tokens = stop
        return self.g[:, :, :stop], None if self.key_mask is None else self.key_mask[:, :stop]

    def attend(
        self,
        f: Float[Tensor, "batch heads new d_h"],
        g: Float[Tensor, "batch heads seen d_h"],
        v: Float[Tensor, "batch heads new d_h"],
        key_mask: Bool[Tensor, "batch seen"] | None,
        anchors: Float[Tensor, "heads max_tokens d_osc"],
        coupling: str | Callable[[Tensor], Tensor],
        sharpness: float | Tensor,
        gain: float | Tensor | None,
        unit_anchors: bool,
    ) -> Float[Tensor, "batch heads new d_h"] | None:
        """Eqs. 2-6 for the new tokens in one kernel; None where it does not apply."""
        gain = 1.0 if gain is None else gain
        begun = self.state is not None or self.tokens == f.shape[2]
        if isinstance(sharpness, Tensor) or sharpness != 1 or not (unit_anchors and begun):
            return None
        if not (f.is_cuda and HAS_TRITON and serves(f.device)) or under_transforms():
            return None
        if not isinstance(coupling, str) or isinstance(gain, Tensor) or gain > 1:
            return None
        if torch.float64 in (f.dtype, g.dtype, anchors.dtype):
            return None
        from lohe.ops.triton import decode

        if f.shape[2] > decode.MOST_QUERIES:
            return None
        if self.anchors is None:
            self.anchors = sphere.normalize(anchors.float())
        out, self.state = decode.decode(
            f, g, v, self.anchors[:, : self.tokens], self.state, key_mask,
            coupling=coupling, scale=f.shape[-1] ** -0.5, gain=gain,
        )  # fmt: skip
        return out

    def readout(
        self,
        p: ops.Problem,
        oscillators: Float[Tensor, "batch heads new d_osc"],
        v: Float[Tensor, "batch heads new d_h"],
        backend: str,
        *,
        at_rest: bool,
    ) -> Float[Tensor, "batch heads new d_h"]:
        """Eqs. 5 and 6 for the new tokens, over all tokens so far; `at_rest` as in `ops.readout`.

        What it began with, a state or values, it goes on with, also on another device.
        """
        new = v.shape[2]
        begun = self.state is not None or (at_rest and self.v is None)
        if not (begun and ops.takes_state(p, self.max_tokens)):
            self.v = _write(self.v, v, self.tokens - new, self.max_tokens)
            values = self.v[:, :, : self.tokens]  # as they are: kernels read 16 bits
            if p.anchors.dtype == torch.float64:
                values = values.double()
            whole = replace(p, v=values)
            return ops.readout(whole, oscillators, backend, at_rest=at_rest)
        parts = tuple(x if x.shape[-1] == 1 else x[..., -new:] for x in p.reads.parts)
        allowed = Allowed(new, new, v.device, causal=True, parts=parts)
        z, r, v = oscillators, p.anchors[:, -new:], v.to(p.anchors.dtype)
        power, gain = int(p.sharpness), 1.0 if p.gain is None else float(p.gain)
        with reference.as_typed(v):
            out = linear.readout(z, r, v, allowed, sharpness=power, gain=gain, state=self.state)
            phi = linear.key_features(r, allowed, power, gain)
            self.state = linear.after(self.state, phi, v)
        return out


def _write(buffer: Tensor | None, x: Tensor, start: int, max_tokens: int) -> Tensor:
    """`x` into the buffer from token `start` on; the buffer is made at the first call."""
    if buffer is None:
        buffer = x.new_zeros(*x.shape[:2], max_tokens, x.shape[3])
    buffer[:, :, start : start + x.shape[2]] = x
    return buffer
