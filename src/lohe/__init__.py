"""Attention by synchronization: oscillators settle on a sphere, their positions are the weights.

Parts are imported when they are first asked for: torch alone takes a second, and the command `lohe`
listens to Ctrl-C before that.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lohe.version import __version__

if TYPE_CHECKING:
    from lohe import attention, cost, dynamics, ops, sphere, substrates, theory
    from lohe.attention import OscillatorAttention, SoftmaxAttention
    from lohe.ops import attention_weights, checks, oscillator_attention

__all__ = [
    "OscillatorAttention",
    "SoftmaxAttention",
    "__version__",
    "attention",
    "attention_weights",
    "checks",
    "cost",
    "dynamics",
    "ops",
    "oscillator_attention",
    "sphere",
    "substrates",
    "theory",
]
_HOME = {
    "OscillatorAttention": "lohe.attention",
    "SoftmaxAttention": "lohe.attention",
    "attention_weights": "lohe.ops",
    "checks": "lohe.ops",
    "oscillator_attention": "lohe.ops",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lohe' has no attribute {name!r}")
    home = _HOME.get(name)
    found = getattr(import_module(home), name) if home else import_module(f"lohe.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
