"""Figure 1: the attention layer. Digital front-end, oscillator network, digital back-end.

The middle box is two replaceable callables of a layer, `drive(couplings, anchors) -> h` and
`settle(h) -> oscillators`; `lohe.substrates` has imperfect ones, and anything with these signatures
will do.
"""

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from lohe import ops, sphere
from lohe.attention.decoding import Cache
from lohe.attention.projections import check_input, check_width, linear, merge_heads, split_heads
from lohe.ops import reference
from lohe.ops.checks import require_not_overflown
from lohe.ops.coupling import COUPLINGS

ANCHORS = ("sphere", "free")
PADS = ("masked", "as-published")


class OscillatorAttention(nn.Module):
    """Fixed-query oscillator attention (Sec. 2), multi-head, with a learned anchor per position.

    `anchors`: "sphere" keeps them on the unit sphere, as the paper defines them; "free" only starts
    them there, as the published code does. `pads`: a key that `key_mask` rules out is neither
    coupled nor read ("masked"), or still read ("as-published"). `gain`: None, a number, or
    "learned", one positive γ for each head. `learn_sharpness` makes p = 1 + e^s learned too, one
    for each head, from `sharpness` > 1 on. `freeze_values` keeps W_V at its random start.

    The physics can be replaced: `layer.settle = FiniteHorizon(30.0, generator=rng)`,
    `layer.drive = Mismatch(layer.drive, scale=0.5, generator=rng)` (see `lohe.substrates`).

    >>> import torch, lohe
    >>> layer = lohe.OscillatorAttention(d_model=32, heads=4, max_tokens=50, d_osc=2)
    >>> output, weights = layer(torch.randn(8, 10, 32), need_weights=True)
    >>> output.shape, weights.shape
    (torch.Size([8, 10, 32]), torch.Size([8, 4, 10, 10]))
    """

    to_f: nn.Module  # may be wrapped, as Appendix E's amplification does
    drive: Callable[[Tensor, Tensor], Tensor]
    settle: Callable[[Tensor], Tensor]

    def __init__(
        self,
        d_model: int,
        heads: int,
        max_tokens: int,
        d_osc: int = 2,
        *,
        coupling: str | Callable[[Tensor], Tensor] = "softplus",
        sharpness: float = 1,
        learn_sharpness: bool = False,
        gain: float | str | None = None,
        anchors: str = "sphere",
        pads: str = "masked",
        causal: bool = False,
        freeze_values: bool = False,
        bias: bool = False,
        backend: str = "auto",
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        check_width(d_model, heads)
        check_options(max_tokens, d_osc, sharpness, gain, coupling, anchors, pads)
        if learn_sharpness and not sharpness > 1:
            raise ValueError(
                f"learn_sharpness needs a start above 1, got sharpness={sharpness}: p = 1 + e^s "
                "has no other way to 1 than s -> -inf. Start at 2 or more."
            )
        self.d_model, self.heads, self.max_tokens, self.d_osc = d_model, heads, max_tokens, d_osc
        self.coupling, self.causal, self.backend = coupling, causal, backend
        self.unit_anchors, self.read_pads = anchors == "sphere", pads == "as-published"
        self.to_f = linear(d_model, d_model, bias=bias, generator=generator)
        self.to_g = linear(d_model, d_model, bias=bias, generator=generator)
        self.to_v = linear(d_model, d_model, bias=bias, generator=generator)
        self.to_out = linear(d_model, d_model, bias=True, generator=generator)
        self.to_v.requires_grad_(not freeze_values)
        self.anchors = nn.Parameter(sphere.uniform(heads, max_tokens, d_osc, generator=generator))
        self.fixed_sharpness = sharpness
        start = torch.full((heads,), sharpness - 1.0).log() if learn_sharpness else None
        self.log_excess = None if start is None else nn.Parameter(start)
        self.fixed_gain = None if isinstance(gain, str) else gain
        self.log_gain = nn.Parameter(torch.zeros(heads)) if gain == "learned" else None
        self.drive = reference.drive
        self.settle = ops.fixed_point

    @property
    def sharpness(self) -> float | Tensor:
        """p of the readout: a number, or a learned one for each head."""
        return self.fixed_sharpness if self.log_excess is None else 1 + self.log_excess.exp()

    @property
    def gain(self) -> float | Tensor | None:
        """γ of the readout: None (1), a number, or a learned one for each head."""
        return self.fixed_gain if self.log_gain is None else self.log_gain.exp()

    @property
    def ideal(self) -> bool:
        """Whether the network adds and settles exactly: no device stands in between."""
        return self.drive is reference.drive and self.settle is ops.fixed_point

    @property
    def _counts_positions(self) -> bool:
        """Whether F was wrapped by something that takes its first token for the first of all."""
        return getattr(self.to_f, "by_position", False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("drive", "settle"):
            self._modules.pop(name, None)  # where a module was, only a module could be
        super().__setattr__(name, value)

    def forward(
        self,
        x: Tensor,  # (batch, tokens, d_model)
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Output (batch, tokens, d_model); with `need_weights` also (batch, heads, tokens, tokens).

        Masks are boolean, True = may attend: `mask` (tokens, tokens) or more axes, `key_mask`
        (batch, tokens).
        """
        return self.attend(x, x, x, mask=mask, key_mask=key_mask, need_weights=need_weights)

    def attend(
        self,
        queries: Tensor,  # (batch, queries, d_model)
        keys: Tensor,  # (batch, keys, d_model)
        values: Tensor,  # (batch, keys, d_model)
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
        causal: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Cross-attention: as `forward`, with keys and values of their own.

        `causal` overrides the layer's, and aligns the last query with the last key.
        """
        f, g, v = self.front_end(queries, keys, values)
        if self._counts_positions and f.shape[2] != g.shape[2]:
            raise ValueError(
                f"{type(self.to_f).__name__} knows the queries by their places, and which places "
                f"{f.shape[2]} queries have among {g.shape[2]} keys is not said. Give as many."
            )
        p = self.problem(f, g, v, mask=mask, key_mask=key_mask, causal=causal)
        if self.ideal and not need_weights:
            return self.to_out(merge_heads(ops.attend(p, self.backend).to(v.dtype)))
        z = self.oscillators(p)
        out = ops.readout(p, z, self.backend, at_rest=self.ideal)
        out = self.to_out(merge_heads(out.to(v.dtype)))
        return (out, ops.weights(p, z)) if need_weights else out

    def front_end(
        self, queries: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """f = F e, g = G e, v = W_V e, each (batch, heads, tokens, d_h)."""
        for name, x in (("queries", queries), ("keys", keys), ("values", values)):
            check_input(name, x, self.d_model)
        return (
            split_heads(self.to_f(queries), self.heads),
            split_heads(self.to_g(keys), self.heads),
            split_heads(self.to_v(values), self.heads),
        )

    def problem(
        self,
        f: Tensor,
        g: Tensor,
        v: Tensor | None,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        causal: bool | None = None,
    ) -> ops.Problem:
        """What is asked of the oscillators, with the anchors of these keys."""
        tokens = g.shape[2]
        if tokens > self.max_tokens:
            raise ValueError(
                f"OscillatorAttention has anchors for {self.max_tokens} positions, got {tokens} "
                "tokens. Anchors are learned per absolute position (Sec. 2); build the layer with "
                f"max_tokens >= {tokens}."
            )
        readout_mask = None
        if self.read_pads:
            everything = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=g.device)
            readout_mask = everything if mask is None else mask
        return ops.problem(
            f,
            g,
            v,
            self.anchors[:, :tokens],
            coupling=self.coupling,
            sharpness=self.sharpness,
            gain=self.gain,
            causal=self.causal if causal is None else causal,
            mask=mask,
            key_mask=key_mask,
            readout_mask=readout_mask,
            normalize_anchors=self.unit_anchors,
        )

    def oscillators(self, p: ops.Problem) -> Tensor:
        """Where the network settles, (batch, heads, queries, d_osc): the analog part."""
        with reference.as_typed(p.f):
            if self.drive is reference.drive:  # an ideal sum: no coupling needs to exist by itself
                h = ops.drive(p, self.backend, shifted=self.settle is ops.fixed_point)
            else:
                h = self.drive(ops.couplings(p, self.backend), p.anchors)
            return self.settled(h)

    def settled(self, h: Tensor) -> Tensor:
        """Where the drive h leads; an overflow of exponential couplings is refused."""
        if self.coupling == "exp" and not self.ideal:
            require_not_overflown(h)
        return self.settle(h)

    def decode(
        self, x: Tensor, cache: Cache | None = None, *, key_mask: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        """The next tokens of a causal sequence: x (batch, new, d_model) -> output of the same
        shape.

        Step by step this equals `forward` over the whole sequence. The cache holds the g of every
        token; at p = 1 on the sphere a state of (d_osc + 1) x (d_h + 1) numbers a head replaces the
        values.

        >>> import torch, lohe
        >>> layer = lohe.OscillatorAttention(32, 4, max_tokens=50, causal=True)
        >>> out, cache = layer.decode(torch.randn(1, 8, 32))  # the prompt
        >>> out, cache = layer.decode(torch.randn(1, 1, 32), cache)
        >>> cache.tokens
        9
        """
        if not self.causal:
            raise ValueError(
                "decode() needs a causal layer: build OscillatorAttention(causal=True)."
            )
        if type(self).attend is not OscillatorAttention.attend:
            raise ValueError(
                f"{type(self).__name__} attends in a way of its own, which decode() does not know: "
                "call it on the whole sequence."
            )
        if self._counts_positions or getattr(self.settle, "within_sequence", False):
            what = self.to_f if self._counts_positions else self.settle
            raise ValueError(
                f"{type(what).__name__} takes the first token that it is given for the first of "
                "the sequence, and decode() gives new tokens only: call the layer on the whole "
                "sequence."
            )
        cache = Cache(self.max_tokens) if cache is None else cache
        if not cache.tokens:
            cache.layer = id(self)
        elif cache.layer != id(self):
            raise ValueError(
                f"The cache holds {cache.tokens} tokens as another layer sees them. Every "
                "layer decodes with a cache of its own, the one that its decode() returned."
            )
        before = cache.tokens, cache.state
        try:
            with torch.no_grad():
                return self._decode(x, cache, key_mask), cache
        except BaseException:  # so that the same tokens can be tried again
            cache.tokens, cache.state = before
            if cache.key_mask is not None:
                cache.key_mask[:, cache.tokens :] = True
            raise

    def _decode(self, x: Tensor, cache: Cache, key_mask: Tensor | None) -> Tensor:
        f, g, v = self.front_end(x, x, x)
        keys, key_mask = cache.append(g, key_mask)
        if self.ideal and self.backend in ("auto", "triton"):
            options = (self.coupling, self.sharpness, self.gain, self.unit_anchors)
            out = cache.attend(f, keys, v, key_mask, self.anchors, *options)
            if out is not None:
                return self.to_out(merge_heads(out))
        p = self.problem(f, keys, None, key_mask=key_mask)
        out = cache.readout(p, self.oscillators(p), v, self.backend, at_rest=self.ideal)
        return self.to_out(merge_heads(out.to(v.dtype)))

    def extra_repr(self) -> str:
        said = [
            f"d_model={self.d_model}, heads={self.heads}, max_tokens={self.max_tokens}",
            f"d_osc={self.d_osc}, coupling={self.coupling!r}, "
            f"sharpness={'learned' if self.log_excess is not None else self.fixed_sharpness}",
            f"anchors={ANCHORS[not self.unit_anchors]!r}, pads={PADS[self.read_pads]!r}",
            f"gain={'learned' if self.log_gain is not None else self.fixed_gain}, "
            f"causal={self.causal}",
        ]
        if self.drive is not reference.drive:
            said.append(f"drive={self.drive!r}")
        if self.settle is not ops.fixed_point:
            said.append(f"settle={self.settle!r}")
        return ", ".join(said)


def check_options(
    max_tokens: int,
    d_osc: int,
    sharpness: float,
    gain: float | str | None,
    coupling: str | Callable[[Tensor], Tensor] = "softplus",
    anchors: str = "sphere",
    pads: str = "masked",
) -> None:
    for name, count in (("max_tokens", max_tokens), ("d_osc", d_osc)):
        if not isinstance(count, Integral):
            raise ValueError(f"{name} is a number of things, an int, got {count!r}.")
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}.")
    if d_osc < 2:
        raise ValueError(
            f"d_osc must be at least 2, got {d_osc}: an oscillator is a point on a circle (d_osc = "
            "2, Kuramoto) or on a sphere above it."
        )
    choices = {"anchors": (anchors, ANCHORS), "pads": (pads, PADS)}
    if isinstance(coupling, str):
        choices["coupling"] = (coupling, tuple(COUPLINGS))
    for name, (given, known) in choices.items():
        if given not in known:
            raise ValueError(f"{name}={given!r} is not known. Choose from {', '.join(known)}.")
    if not isinstance(sharpness, Real) or not 1 <= sharpness < math.inf:
        raise ValueError(
            f"sharpness must be a number >= 1 (p of Eq. 5), got {sharpness!r}. A learned one is "
            "`learn_sharpness=True`, from this number on."
        )
    if gain is None or gain == "learned":
        return
    if isinstance(gain, str) or not 0 < gain < math.inf:
        raise ValueError(f'gain must be a number > 0, "learned" or None, got {gain!r}.')
