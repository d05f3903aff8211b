"""Pictures: arrays in, axes out. Nothing here computes."""
