"""Measurements: pure functions of arrays."""
