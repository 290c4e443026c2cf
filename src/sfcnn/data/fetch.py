"""Download MNIST and the original mnist-rot: from the public mirrors, checked by checksum, continued after a break."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sfcnn.data.mnist import ROT_ARCHIVE, search_places

_TIMEOUT = 30.0  # seconds without a byte
_ATTEMPTS = 3  # on one mirror, if the connection breaks in the middle
_BLOCK = 1 << 16

#: Called with the file that is being downloaded and which fraction of it has come.
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class RemoteFile:
    """A file to download and how to tell that it is the right one."""

    name: str
    algorithm: str  #: of the checksum, as `hashlib` calls it
    checksum: str  #: in hexadecimal
    limit: int  #: bytes after which a download is given up: it is something else


@dataclass(frozen=True)
class Source:
    """Where the files of a data set come from and where they go."""

    folder: str  #: below the data directory
    mirrors: tuple[str, ...]  #: addresses to which a file's name is added, tried in order
    files: tuple[RemoteFile, ...]


SOURCES: Mapping[str, Source] = {
    "mnist": Source(
        "mnist",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        tuple(
            RemoteFile(f"{name}-ubyte.gz", "sha256", checksum, size)
            for name, size, checksum in (
                ("train-images-idx3", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
                ("train-labels-idx1", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
                ("t10k-images-idx3", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
                ("t10k-labels-idx1", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
            )
        ),
    ),
    "mnist-rot": Source(
        "mnist-rot",
        ("http://www.iro.umontreal.ca/~lisa/icml2007data/",),
        (RemoteFile(ROT_ARCHIVE, "md5", "0f9a947ff3d30e95cd685462cbf3b847", 300_000_000),),
    ),
}


@dataclass(frozen=True)
class Fetched:
    """A file that is there and right."""

    path: Path
    downloaded: bool  #: now; otherwise it was there before


class _MirrorError(Exception):
    """A mirror did not give the file."""


class _BrokenError(_MirrorError):
    """The connection broke in the middle; a part of the file is there."""


def fetch(
    dataset: str, directory: Path, progress: Progress, *, sources: Mapping[str, Source] | None = None
) -> list[Fetched]:
    """Download what is missing of `dataset` ("mnist" or "mnist-rot") into its folder below `directory`.

    A file gets its name only once it is whole and its checksum right; until then it is NAME.part, from which a later
    call goes on. A file that is there is kept if it is right, and never replaced if it is wrong.
    """
    known = SOURCES if sources is None else sources
    if dataset not in known:
        raise ValueError(f"data set {dataset!r} cannot be downloaded, choose one of {list(known)}")
    source = known[dataset]
    present = [_present(dataset, directory, file) for file in source.files]  # wrong ones show before any download
    fetched = []
    for file, path in zip(source.files, present, strict=True):
        target = path or directory / source.folder / file.name
        if path is None:
            _download(file, target, source.mirrors, progress)
        fetched.append(Fetched(target, downloaded=path is None))
    return fetched


def _present(dataset: str, directory: Path, file: RemoteFile) -> Path | None:
    for place in search_places(dataset, directory):
        path = place / file.name
        if path.exists():
            if not _is_right(path, file):
                raise ValueError(
                    f"{path} is not the published file: its {file.algorithm} is not {file.checksum}; "
                    "it is left as it is, move it away to download the right one"
                )
            return path
    return None


def _is_right(path: Path, file: RemoteFile) -> bool:
    digest = hashlib.new(file.algorithm, usedforsecurity=False)
    with path.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest() == file.checksum


def _download(file: RemoteFile, target: Path, mirrors: tuple[str, ...], progress: Progress) -> None:
    part = target.with_name(f"{target.name}.part")
    reasons = []
    for mirror in mirrors:
        try:
            _from_mirror(file, mirror + file.name, part, progress)
        except _MirrorError as error:
            reasons.append(f"{urlsplit(mirror).netloc}: {error}")
        else:
            os.replace(part, target)
            progress(file.name, 1.0)
            return
    kept = ""
    if part.exists():
        kept = f"; {part.stat().st_size:,} bytes are kept in {part}, and the same command goes on from there"
    raise ValueError(f"could not download {file.name} ({'; '.join(reasons)}){kept}")


def _from_mirror(file: RemoteFile, url: str, part: Path, progress: Progress) -> None:
    """Fill `part` with the right file, in a few attempts that each go on where the one before broke."""
    for attempt in range(1, _ATTEMPTS + 1):
        start = part.stat().st_size if part.exists() else 0
        if start and _is_right(part, file):  # whole, but an earlier call was stopped before it could rename it
            return
        try:
            _receive(file, url, part, start, progress)
        except _BrokenError:
            if attempt == _ATTEMPTS:
                raise
            continue
        if _is_right(part, file):
            return
        part.unlink()
        # What was there before may have been something else; a file that came in one piece is wrong on this mirror.
        if not start:
            raise _MirrorError(f"its file is not the published one: wrong {file.algorithm}")
    raise _MirrorError(f"no right file in {_ATTEMPTS} attempts")


def _receive(file: RemoteFile, url: str, part: Path, start: int, progress: Progress) -> None:
    """Add to `part`, which has `start` bytes, what comes from there to the end; or start again if that is refused."""
    with _open(url, start) as response:
        partial = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if partial and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            part.unlink(missing_ok=True)  # ask for all of it next time
            raise _BrokenError("it answers with another part of the file than was asked for")
        resumable = partial or response.headers.get("Accept-Ranges", "") == "bytes"
        received = start if partial else 0
        length = response.headers.get("Content-Length", "")
        total = received + int(length) if length.isdecimal() else None
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("ab" if partial else "wb") as content:
                while block := _read(response):
                    content.write(block)
                    received += len(block)
                    if received > file.limit:
                        raise _MirrorError(f"it sends more than the {file.limit:,} bytes of the file")
                    progress(file.name, received / (total or file.limit))
            if total is not None and received < total:
                raise _BrokenError(f"the connection broke after {received:,} of {total:,} bytes")
        except _MirrorError as error:
            if not (resumable and received and isinstance(error, _BrokenError)):
                part.unlink()
            raise


def _open(url: str, start: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "sfcnn", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=_TIMEOUT
        )
        return response
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0)  # what is there is longer than the file; the answer without a range replaces it
        raise _MirrorError(f"HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _MirrorError(_reason(error)) from error


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)  # what has come: a block that is waited for is lost when the connection breaks
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(f"the connection broke: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What happened, in the system's words, on one line."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return " ".join(text.split()) or type(error).__name__
