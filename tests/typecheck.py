"""beartype as the tests use it: an int is welcome where a float is asked for (PEP 484)."""

import inspect
from typing import Any

import jaxtyping
from beartype import BeartypeConf
from beartype import beartype as _beartype
from jaxtyping import _decorator

beartype = _beartype(conf=BeartypeConf(is_pep484_tower=True))

_of_shapes = _decorator.jaxtyped


def _jaxtyped(fn: Any = _decorator._sentinel, *, typechecker: Any = _decorator._sentinel) -> Any:
    """jaxtyping's decorator, but a function that names no shape is given to the checker directly.

    The types are checked as before. What is saved is binding its arguments to nothing, and checking
    them twice: half the time of tests that make many recipes.
    """
    if inspect.isfunction(fn) and callable(typechecker) and not _names_shapes(fn):
        return typechecker(fn)
    return _of_shapes(fn, typechecker=typechecker)


def _names_shapes(fn: Any) -> bool:
    """Also where that is not known: an annotation in quotes, and what a generator yields."""
    named = fn.__annotations__.values()
    return inspect.isgeneratorfunction(fn) or any(
        isinstance(annotation, str) or "jaxtyping" in str(annotation) for annotation in named
    )


jaxtyping.jaxtyped = _decorator.jaxtyped = _jaxtyped
