"""JSON that gives back exactly what it was given.

Finite floats need nothing: Python writes the shortest digits that read back as the same number.
JSON has no NaN and no infinity, so they are written as an object with the one key "float":

    {"float": "nan"}    {"float": "inf"}    {"float": "-inf"}

A dict that looks like one of these three is refused. Tuples come back as lists.
"""

import json
import math
from typing import Any

NON_FINITE = ("nan", "inf", "-inf")


def dumps(value: Any, where: str = "value") -> str:
    """One line of ASCII.

    >>> dumps({"loss": [0.1, float("inf")]})
    '{"loss":[0.1,{"float":"inf"}]}'
    """
    return json.dumps(_tag(plain(value, where)), separators=(",", ":"), allow_nan=False)


def loads(text: str | bytes) -> Any:
    """Inverse of `dumps`; any text that is not such JSON raises ValueError."""
    try:
        return json.loads(text, object_hook=_untag, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply to be one of our files") from None


def plain(value: Any, where: str = "value") -> Any:
    """A copy of `value` as dict, list, str, int, float, bool, None; ValueError names the rest."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)  # an enum's text, not its name
        case int():
            return int(value)
        case float():
            return float(value)
        case list() | tuple():
            return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
        case dict():
            return _plain_dict(value, where)
    raise ValueError(
        f"{where} must be JSON (dict, list, str, int, float, bool, None), got "
        f"{type(value).__name__}. Convert it first: x.item() or x.tolist() for arrays and tensors, "
        "dataclasses.asdict(x) for a dataclass."
    )


def _plain_dict(value: dict[Any, Any], where: str) -> dict[str, Any]:
    for name in value:
        if not isinstance(name, str):
            raise ValueError(
                f"{where} must have str keys, got {name!r}. JSON would make it a str for good; "
                "write str(key) and convert back when reading, or use a list of pairs."
            )
    if _is_tag(value):
        raise ValueError(f"{where} is {value!r}, which is how NaN and inf are stored: rename it.")
    return {str.__str__(name): plain(item, f"{where}[{name!r}]") for name, item in value.items()}


def _is_tag(value: dict[Any, Any]) -> bool:
    return value.keys() == {"float"} and value["float"] in NON_FINITE


def _tag(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return {"float": repr(value)}
        case list():
            return [_tag(item) for item in value]
        case dict():
            return {name: _tag(item) for name, item in value.items()}
    return value


def _untag(value: dict[str, Any]) -> Any:
    return float(value["float"]) if _is_tag(value) else value


def _refuse_constant(name: str) -> float:
    raise ValueError(f'a bare {name}, which is not JSON; ours reads {{"float": ...}}')
