"""Bringing a copy that the user has, folder or archive, into the official layout."""

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from lohe.tasks import manifest
from lohe.tasks.atomic import room_for, staging
from lohe.tasks.clips import UNFINISHED
from lohe.tasks.progress import Progress, adding, silent
from lohe.tasks.root import data_root
from lohe.tasks.sources import Source, find_source
from lohe.tasks.textfile import BLOCK, text_sha256

DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError)


@runtime_checkable
class Content(Protocol):
    """An open member of a folder, a .zip or a .tar."""

    def read(self, size: int = -1, /) -> bytes: ...

    def close(self) -> None: ...


Member = tuple[PurePosixPath, int, Content]  # its bytes are those it takes here


def import_corpus(
    source: Source | str, path: Path, root: Path | None = None, progress: Progress = silent
) -> list[Path]:
    """Copies what belongs to a corpus from a folder, a .zip, a .tar.* or a single file.

    Only members with expected names are taken, wherever they lie inside; checksums are recorded.
    """
    source = find_source(source) if isinstance(source, str) else source
    root = data_root(root)
    unpack(source, path, root, progress)
    return finish(source, root, origin=path.name, progress=progress)


def unpack(source: Source, path: Path, root: Path, progress: Progress) -> None:
    """Puts the members of `path` that belong to a corpus where they belong.

    All are brought and checked before the first one replaces anything.
    """
    folder = root / source.folder
    with staging(folder) as hidden:
        brought = _bring(source, path, folder, hidden, progress)
        if not brought:
            raise FileNotFoundError(
                f"{path} holds nothing that belongs to {source.name}; expected were files called "
                f"{', '.join(source.expected)}. Name the folder or the archive (.zip, .tar.gz) "
                f"that has them; if this is that archive, it is cut short: get it again."
            )
        if not source.needs_all:
            (folder / UNFINISHED).touch()
        for where in brought:
            _place(hidden / where, folder / where)


def _bring(source: Source, path: Path, folder: Path, hidden: Path, progress: Progress) -> list[str]:
    """Copies the members that belong to a corpus into `hidden`, and checks them; their places."""
    brought: dict[str, None] = {}  # a later member of the same name takes the earlier one's place
    add = adding(progress)
    try:
        for member, size, content in _members(path):
            with closing(content):
                if (where := source.place(member)) is not None:
                    with room_for(folder / where, size):
                        # texts one by one; of clips there are too many
                        text = f"importing {where}", size
                        what = text if source.needs_all else (f"importing {source.name}", None)
                        _copy(content, hidden / where, *what, add)
                    _check(source, hidden / where, folder / where, f"{path}: {member}", progress)
                    brought.pop(where, None)
                    brought[where] = None
    except DAMAGE as error:
        raise ValueError(
            f"{path} cannot be unpacked ({error}): it is cut short or damaged. Get it again."
        ) from None
    return list(brought)


def finish(source: Source, root: Path, origin: str, progress: Progress = silent) -> list[Path]:
    """Records the checksums of what has come into the folder; complains if a split is missing.

    Of Speech Commands some words will do: a task says which ones it needs.
    """
    items = source.items(root)
    with room_for(root / source.folder / manifest.NAME):
        manifest.record(root / source.folder, items, origin, progress)
    (root / source.folder / UNFINISHED).unlink(missing_ok=True)
    missing = source.missing(root)
    if missing and (source.needs_all or not items):
        raise FileNotFoundError(
            f"{root / source.folder} still lacks {', '.join(missing)} after the import of {origin}:"
            f" {source.name} is not complete. Import them too, or `lohe data fetch {source.name}`."
        )
    return items


def _copy(content: Content, to: Path, what: str, size: int | None, add: Progress) -> None:
    to.parent.mkdir(exist_ok=True)
    with to.open("wb") as file:
        while block := content.read(BLOCK):
            file.write(block)
            add(what, len(block), size)


def _check(source: Source, brought: Path, target: Path, origin: str, progress: Progress) -> None:
    """Raises unless what was brought may take its place at `target`."""
    if not brought.stat().st_size:
        raise ValueError(f"{origin} is empty (0 bytes): get it again. Nothing was replaced.")
    pinned = source.pinned.get(target.name.removesuffix(".xz"))
    found = _readable(brought, origin, progress) if pinned or target.suffix == ".xz" else None
    if pinned is not None and found != pinned:
        raise ValueError(
            f"{origin} has the wrong checksum: sha256 {found}, but the release has {pinned}. "
            f"It is another edition or damaged; get it again. To use it all the same, put it "
            f"at {target} yourself: records then name its own checksum. Nothing was replaced."
        )


def _place(brought: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    brought.replace(target)
    _twin(target).unlink(missing_ok=True)  # an older copy, which would now be the wrong one


def _readable(text: Path, origin: str, progress: Progress) -> str:
    """The checksum of a text, which has to be read to its end for it."""
    try:
        return text_sha256(text, progress)
    except ValueError:
        raise ValueError(
            f"{origin} cannot be decompressed: it is cut short or damaged. Get it again. What was "
            "there before is still there."
        ) from None


def _twin(path: Path) -> Path:
    """The same text, the other way: compressed if `path` is plain, plain if it is compressed."""
    plain = path.name.removesuffix(".xz")
    return path.with_name(f"{plain}.xz" if plain == path.name else plain)


def _members(path: Path) -> Iterator[Member]:
    if path.is_dir():
        yield from _in_folder(path)
    elif not path.is_file():
        raise FileNotFoundError(f"{path} is not there. Name a folder or an archive that you have.")
    elif zipfile.is_zipfile(path):
        yield from _in_zip(path)
    elif tarfile.is_tarfile(path):
        yield from _in_tar(path)
    else:
        size = path.stat().st_size
        yield PurePosixPath(path.parent.name, path.name), size, path.open("rb")


def _in_folder(path: Path) -> Iterator[Member]:
    for file in sorted(path.rglob("*")):
        if file.is_file():
            # the folder's own name counts: someone may point at the folder of one word
            member = PurePosixPath(path.name, file.relative_to(path).as_posix())
            yield member, file.stat().st_size, file.open("rb")


def _in_zip(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                yield PurePosixPath(entry.filename), entry.file_size, archive.open(entry)


def _in_tar(path: Path) -> Iterator[Member]:
    with tarfile.open(path) as archive:
        for entry in archive:
            # links and devices are nobody's clips or texts
            if entry.isfile() and (content := archive.extractfile(entry)) is not None:
                yield PurePosixPath(entry.name), entry.size, content
