"""Triton kernels of the mechanism; triton is imported where they are used."""
