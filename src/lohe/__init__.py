"""Attention by synchronization: oscillators settle on a sphere, their positions are the weights."""

__version__ = "0.1.0"
