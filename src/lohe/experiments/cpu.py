"""What a process that trains on a CPU does first."""

from lohe.experiments.memory import keep_memory
from lohe.experiments.products import quick_products


def get_ready() -> None:
    """Settings of this process by which steps are faster; what they cost, each one says."""
    keep_memory()
    quick_products()
