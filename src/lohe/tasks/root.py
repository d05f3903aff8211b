"""Where corpora live: $LOHE_DATA, else a folder `lohe` in the platform's cache folder."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "LOHE_DATA"


def data_root(root: Path | None = None) -> Path:
    """`root` where one is given, else $LOHE_DATA, else a folder in the platform's cache folder."""
    return root if root is not None else default_root(os.environ, sys.platform, home_folder())


def home_folder() -> Path:
    """The user's; for one who has none, as in some containers and batch jobs, that of all."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir())


def default_root(environ: Mapping[str, str], platform: str, home: Path) -> Path:
    """The rule itself, as a function of what it depends on.

    >>> default_root({"LOHE_DATA": "/data/corpora"}, "linux", Path("/home/ada")).as_posix()
    '/data/corpora'
    >>> default_root({}, "linux", Path("/home/ada")).as_posix()
    '/home/ada/.cache/lohe'
    """
    # an empty variable counts as unset, as the XDG specification has it
    if chosen := environ.get(VARIABLE):
        return Path(chosen).expanduser()
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "lohe"
    if platform == "darwin":
        return home / "Library" / "Caches" / "lohe"
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "lohe"
