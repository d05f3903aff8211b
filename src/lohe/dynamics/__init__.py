"""The physics in time: fields, their exact solution, settling, locking, noise, ODE solvers."""

from lohe.dynamics.fields import fixed_query, kuramoto, lohe
from lohe.dynamics.flow import flow
from lohe.dynamics.langevin import langevin
from lohe.dynamics.locking import locking_margin, locking_rate, locks
from lohe.dynamics.settling import (
    Cause,
    Convergence,
    convergence,
    failure_cause,
    settling_error,
    settling_time,
    unsettled_probability,
)
from lohe.dynamics.solution import Field, Solution, Status
from lohe.dynamics.solve import solve
from lohe.dynamics.solvers import Euler, Scipy, Solver, Torchode

__all__ = [
    "Cause",
    "Convergence",
    "Euler",
    "Field",
    "Scipy",
    "Solution",
    "Solver",
    "Status",
    "Torchode",
    "convergence",
    "failure_cause",
    "fixed_query",
    "flow",
    "kuramoto",
    "langevin",
    "locking_margin",
    "locking_rate",
    "locks",
    "lohe",
    "settling_error",
    "settling_time",
    "solve",
    "unsettled_probability",
]
