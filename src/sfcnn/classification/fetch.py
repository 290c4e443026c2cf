"""Download MNIST and the original mnist-rot from public mirrors and verify their checksums."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sfcnn.classification.digits import ROT_ARCHIVE, search_places
from sfcnn.io.files import new_file

_TIMEOUT = 30.0  # seconds without data

#: Called with the name of the file that is being downloaded and the fraction received.
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Source:
    """Where the files of a data set come from."""

    mirrors: tuple[str, ...]  #: base URLs, tried in order
    files: Mapping[str, str]  #: names, and checksums as "algorithm:hexadecimal"


SOURCES: Mapping[str, Source] = {
    "mnist": Source(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        {
            f"{name}-ubyte.gz": f"sha256:{checksum}"
            for name, checksum in (
                ("train-images-idx3", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
                ("train-labels-idx1", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
                ("t10k-images-idx3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
                ("t10k-labels-idx1", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
            )
        },
    ),
    "mnist-rot": Source(
        ("http://www.iro.umontreal.ca/~lisa/icml2007data/",), {ROT_ARCHIVE: "md5:0f9a947ff3d30e95cd685462cbf3b847"}
    ),
}


@dataclass(frozen=True)
class Fetched:
    """A verified file."""

    path: Path
    downloaded: bool  #: False if it already existed


def fetch(dataset: str, directory: Path, progress: Progress) -> list[Fetched]:
    """Download the missing files of `dataset` ("mnist" or "mnist-rot") to its folder in `directory`.

    A file gets its name only once it is complete and its checksum is correct. Existing files are never replaced; one
    with a wrong checksum raises an error.
    """
    if dataset not in SOURCES:
        raise ValueError(f"data set {dataset!r} cannot be downloaded, choose one of {list(SOURCES)}")
    source = SOURCES[dataset]
    present = {name: _present(dataset, directory, name, source.files[name]) for name in source.files}
    return [
        Fetched(path, downloaded=False)
        if path
        else Fetched(_download(source, name, directory / dataset / name, progress), downloaded=True)
        for name, path in present.items()
    ]


def _present(dataset: str, directory: Path, name: str, checksum: str) -> Path | None:
    """The path of an existing file, or None; a wrong checksum raises an error before any download."""
    for path in (place / name for place in search_places(dataset, directory)):
        if path.exists():
            if not _is_right(path, checksum):
                raise ValueError(
                    f"{path} is not the published file, whose checksum is {checksum}; "
                    "it was not changed: move it away to download the published one"
                )
            return path
    return None


def _is_right(path: Path, checksum: str) -> bool:
    import pooch

    algorithm, _, expected = checksum.partition(":")
    return bool(pooch.file_hash(str(path), algorithm) == expected)


class _Report:
    """A progress bar with the interface that pooch expects."""

    total = 0

    def __init__(self, name: str, progress: Progress) -> None:
        self.name, self.progress, self.received = name, progress, 0

    def update(self, received: int) -> None:
        self.received += received
        self.progress(self.name, min(1.0, self.received / self.total) if self.total else 0.0)

    def reset(self) -> None:
        self.received = 0

    def close(self) -> None:
        self.progress(self.name, 1.0)


def _download(source: Source, name: str, target: Path, progress: Progress) -> Path:
    import pooch
    from requests import RequestException

    reasons = []
    for mirror in source.mirrors:
        load = pooch.HTTPDownloader(progressbar=_Report(name, progress), timeout=_TIMEOUT, chunk_size=1 << 16)
        try:
            with new_file(target) as temporary:
                load(mirror + name, str(temporary), None)
                if not _is_right(temporary, source.files[name]):
                    raise ValueError("wrong checksum")
        except (RequestException, ValueError) as error:
            reasons.append(f"{urlsplit(mirror).netloc}: {_reason(error)}")
        else:
            return target
    raise ValueError(f"could not download {name} ({'; '.join(reasons)})")


def _reason(error: BaseException) -> str:
    """The original cause, which requests wraps several times."""
    while error.__context__ is not None:
        error = error.__context__
    return " ".join(str(error).split())[:200]
