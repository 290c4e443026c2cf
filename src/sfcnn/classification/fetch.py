"""Download MNIST and the original mnist-rot from the public mirrors, checked by checksum."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sfcnn.classification.digits import ROT_ARCHIVE, search_places
from sfcnn.io.files import new_file

_TIMEOUT = 30.0  # seconds without a byte

#: Called with the file that is being downloaded and which fraction of it has arrived.
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Source:
    """Where the files of a data set come from."""

    mirrors: tuple[str, ...]  #: addresses to which a file's name is added, tried in order
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
    """A file that is there and right."""

    path: Path
    downloaded: bool  #: now; otherwise it was there before


def fetch(dataset: str, directory: Path, progress: Progress) -> list[Fetched]:
    """Download what is missing of `dataset` ("mnist" or "mnist-rot") into its folder below `directory`.

    A file gets its name only once it is whole and its checksum right. A file that is there is kept if it is right, and
    never replaced if it is wrong.
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
    """Where a file is already, if it is; a wrong one is a mistake that shows before any download."""
    for path in (place / name for place in search_places(dataset, directory)):
        if path.exists():
            if not _is_right(path, checksum):
                raise ValueError(
                    f"{path} is not the published file, whose checksum is {checksum}; "
                    "it is left as it is, move it away to download the right one"
                )
            return path
    return None


def _is_right(path: Path, checksum: str) -> bool:
    import pooch

    algorithm, _, expected = checksum.partition(":")
    return bool(pooch.file_hash(str(path), algorithm) == expected)


class _Report:
    """What pooch expects of a progress bar."""

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
                    raise ValueError("its file is not the published one: wrong checksum")
        except (RequestException, ValueError) as error:
            reasons.append(f"{urlsplit(mirror).netloc}: {_reason(error)}")
        else:
            return target
    raise ValueError(f"could not download {name} ({'; '.join(reasons)})")


def _reason(error: BaseException) -> str:
    """What happened first: requests wraps it several times."""
    while error.__context__ is not None:
        error = error.__context__
    return " ".join(str(error).split())[:200]
