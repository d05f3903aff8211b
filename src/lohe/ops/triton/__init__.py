"""Oscillator attention in fused Triton kernels. Importing a module of this package needs triton."""
