"""The version, in a place that everything may import, and a name for the code itself."""

import hashlib
from functools import cache
from pathlib import Path

__version__ = "0.1.0"


@cache
def code_version() -> str:
    """The version and twelve digits of `digest()`: two records that say the same were made by the
    same code, wherever it was installed."""
    return f"{__version__}+{digest()[:12]}"


def digest(*parts: str) -> str:
    """The sha256 of the package's source files, or of some of its modules and folders."""
    package = Path(__file__).parent
    found = hashlib.sha256()
    for path in sorted(path for part in parts or (".",) for path in _sources(package / part)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{content}  {path.relative_to(package).as_posix()}\n".encode())
    return found.hexdigest()


def _sources(part: Path) -> list[Path]:
    if part.is_dir():
        return list(part.rglob("*.py"))
    if not part.is_file():
        raise FileNotFoundError(f"{part} is neither a module nor a folder of the package.")
    return [part]
