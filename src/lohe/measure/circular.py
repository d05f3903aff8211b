"""Directions on the circle: do they have a preferred one?"""

import math
from collections.abc import Sequence

Angles = Sequence[float]  # radians


def resultant(angles: Angles) -> float:
    """Length of the mean direction: 1 where all angles are one, 0 where they balance.

    >>> resultant([0.0, 0.0]), round(resultant([0.0, math.pi]), 9)
    (1.0, 0.0)
    """
    n = len(angles)
    return math.hypot(sum(map(math.cos, angles)) / n, sum(map(math.sin, angles)) / n)


def rayleigh(angles: Angles) -> float:
    """p-value of Rayleigh's test that the directions are uniform, against a preferred one.

    The approximation of Greenwood and Durand, in the form given by Zar, with R = n resultant:

        p = exp(sqrt(1 + 4n + 4(n² - R²)) - (1 + 2n)).

    Directions that balance, such as two opposite clusters, pass it.
    """
    n = len(angles)
    r = n * resultant(angles)
    p = math.exp(math.sqrt(1 + 4 * n + 4 * (n**2 - r**2)) - (1 + 2 * n))
    return min(p, 1.0)  # in this order NaN stays NaN
