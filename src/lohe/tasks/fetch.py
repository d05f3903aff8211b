"""Fetching a corpus from its official address: resumed where it broke off, checked, unpacked."""

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path

from lohe.tasks import manifest
from lohe.tasks.archives import finish, unpack
from lohe.tasks.atomic import room_for, write_text
from lohe.tasks.progress import Progress, silent
from lohe.tasks.root import data_root
from lohe.tasks.sources import Download, Source, find_source
from lohe.tasks.textfile import sha256_of
from lohe.tasks.verify import verify_corpus

ATTEMPTS = 4  # connections, each going on where the one before broke off
TIMEOUT = 30.0  # s without a byte
BLOCK = 1 << 18

BROKEN = (http.client.HTTPException, ConnectionError, TimeoutError)


def fetch_corpus(
    source: Source | str, root: Path | None = None, progress: Progress = silent
) -> list[Path]:
    """Downloads and unpacks a corpus, unless it is already there, whole and as it arrived."""
    source = find_source(source) if isinstance(source, str) else source
    root = data_root(root)
    archives = [root / "downloads" / download.name for download in source.downloads]
    # an archive that is still there was not unpacked to its end
    whole = not source.missing(root) and not any(archive.exists() for archive in archives)
    if whole and all(check.state in ("ok", "new") for check in verify_corpus(source, root)):
        return source.items(root)
    for download, archive in zip(source.downloads, archives, strict=True):
        fetch_file(download, archive, source.name, progress)
        _check_arrival(source, root, download, archive, progress)
    for archive in archives:
        unpack(source, archive, root, progress)
        archive.unlink()
    return finish(source, root, origin=source.downloads[0].url, progress=progress)


def fetch_file(download: Download, target: Path, corpus: str, progress: Progress = silent) -> None:
    """Downloads one file; what an interrupted call left behind is taken up again.

    The part so far is kept only with a validator (ETag or date) by which the server can tell
    whether it still belongs to the same file.
    """
    if target.is_file():
        return
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            if _continue(download.url, part, progress):
                part.replace(target)
                _note(part).unlink(missing_ok=True)
                return
            reason: object = "the connection closed early"
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            error.close()
            if error.code < 500:
                raise _unreachable(download, corpus, reason) from None
        except urllib.error.URLError as error:
            raise _unreachable(download, corpus, error.reason) from None
        except BROKEN as error:
            reason = f"{type(error).__name__}: {error}"
        if attempt == ATTEMPTS:
            raise _unreachable(download, corpus, reason)


def _continue(url: str, part: Path, progress: Progress) -> bool:
    """One connection: appends to `part` whatever comes; True once the file is whole."""
    start, validator = _resumable(url, part)
    headers = {"User-Agent": "lohe", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": validator}
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            # nothing is left to send, or the file has shrunk: only a fresh start can tell
            error.close()
            part.unlink()
            return False
        raise
    with response:
        if response.status != http.client.PARTIAL_CONTENT:
            start = 0  # the file has changed, or the server sends whole files only
        size = response.headers.get("Content-Length")
        whole = start + int(size) if size is not None else None
        note = {"url": url, "validator": _validator(response.headers)}
        needed = None if whole is None else whole - start
        done = start
        with room_for(part, needed):
            write_text(_note(part), json.dumps(note) + "\n")
            with part.open("ab" if start else "wb") as file:
                while block := response.read(BLOCK):
                    file.write(block)
                    done += len(block)
                    progress(f"fetching {part.name.removesuffix('.part')}", done, whole)
    return whole is None or done == whole


def _resumable(url: str, part: Path) -> tuple[int, str]:
    """How much of the same file is there already, and the validator that it was sent with."""
    try:
        note = json.loads(_note(part).read_text(encoding="utf-8"))
        if note["url"] == url and note["validator"]:
            return part.stat().st_size, note["validator"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0, ""


def _validator(headers: http.client.HTTPMessage) -> str | None:
    tag = headers.get("ETag", "")
    # weak tags may stand for files that differ in their bytes
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _check_arrival(
    source: Source, root: Path, download: Download, archive: Path, progress: Progress
) -> None:
    """Against the pinned checksum, else against what came from there the first time."""
    with archive.open("rb") as file:
        size = archive.stat().st_size
        found = sha256_of(file.read, f"checking {archive.name}", size, progress)
    first = manifest.read(root / source.folder).get(download.name, {"sha256": found})
    expected = download.sha256 or first["sha256"]
    if found != expected:
        archive.unlink()
        raise ValueError(
            f"{download.url} sent a file with the wrong checksum: sha256 {found}, but {expected} "
            f"{'is pinned' if download.sha256 else 'came the first time'}. It was deleted: fetch "
            f"again, and if that does not help, import a copy that you trust with "
            f"`lohe data import {source.name} PATH`."
        )
    manifest.note(root / source.folder, download.name, found, download.url)


def _unreachable(download: Download, corpus: str, reason: object) -> ConnectionError:
    return ConnectionError(
        f"Could not fetch {download.url}: {reason}. What has arrived is kept, and the same command "
        f"goes on from there. Without a network: download that file on another machine, bring it "
        f"here, and run `lohe data import {corpus} PATH`."
    )
