"""Writing files so that nothing is lost: whole or not at all, and never over a file that was not meant."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class OutputExistsError(ValueError):
    """A file is in the way of an output and was not meant to be replaced."""


def data_directory(option: Path | None = None) -> Path | None:
    """The directory with the data files: `option`, else the environment's SFCNN_DATA, else none."""
    if option is not None:
        return option
    variable = os.environ.get("SFCNN_DATA")
    return Path(variable) if variable else None


def is_zarr(path: Path) -> bool:
    """Whether a path is that of a Zarr volume: by its ending, or by what is in the directory.

    >>> is_zarr(Path("volume.zarr")), is_zarr(Path("stack.tif"))
    (True, False)
    """
    return path.suffix.lower() == ".zarr" or any(
        (path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray")
    )


def check_output(path: Path, *, overwrite: bool) -> None:
    """Raise if `path` cannot become an output file: a directory, an existing file, or no place to put it."""
    if path.is_dir():
        raise OutputExistsError(f"output {path} is a directory, expected a file name")
    if path.exists() and not path.is_file():  # a device or a pipe, which a new file must not take the place of
        raise OutputExistsError(f"output {path} is a special file, expected the name of a file")
    if path.exists() and not overwrite:
        raise OutputExistsError(f"output {path} exists: choose another name or pass --overwrite")


@contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which takes its place once the block has ended without an error.

    The file system's rename makes the change at once: a reader sees the old file or the whole new one.
    """
    check_output(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=f".part{path.suffix}")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())  # else a power cut could leave the new name on an empty file
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes private files; outputs get the user's usual permissions
        if overwrite:
            temporary.replace(path)
        else:
            _move_to_new(temporary, path)
    except FileExistsError:
        raise OutputExistsError(f"output {path} exists: choose another name or pass --overwrite") from None
    finally:
        temporary.unlink(missing_ok=True)


def _move_to_new(temporary: Path, path: Path) -> None:
    """Give a file its name, unless somebody made another one of this name meanwhile."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # exFAT, SMB and many FUSE mounts have no hard links: claim the name, then take its place
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        temporary.replace(path)


def remove_leftovers(directory: Path) -> None:
    """Remove the temporary files that `new_file` left in a directory and below when its process was killed."""
    for path in directory.rglob(".*-*.part*"):
        path.unlink(missing_ok=True)


def write_json(path: Path, values: Any, *, overwrite: bool = False) -> None:
    """Write values as readable JSON, whole or not at all."""
    with new_file(path, overwrite=overwrite) as temporary:
        temporary.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
