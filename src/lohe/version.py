"""The version, in a place that everything may import, and a name for the code itself."""

import hashlib
from functools import cache
from pathlib import Path

__version__ = "0.1.0"


@cache
def code_version() -> str:
    """The version and twelve digits of the sha256 of the package's source files: two records that
    say the same were made by the same code, wherever it was installed."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{content}  {path.relative_to(folder).as_posix()}\n".encode())
    return f"{__version__}+{digest.hexdigest()[:12]}"
