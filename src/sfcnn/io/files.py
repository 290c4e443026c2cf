"""Safe writing of files: writes are atomic and never overwrite a file unless asked to."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class OutputExistsError(ValueError):
    """The output file exists and may not be overwritten."""


def data_directory(option: Path | None = None) -> Path | None:
    """The data directory: `option`, else the environment variable SFCNN_DATA, else None."""
    if option is not None:
        return option
    variable = os.environ.get("SFCNN_DATA")
    return Path(variable) if variable else None


def is_zarr(path: Path) -> bool:
    """Whether a path is a Zarr volume, judged by its suffix or by the files in the directory.

    >>> is_zarr(Path("volume.zarr")), is_zarr(Path("stack.tif"))
    (True, False)
    """
    return path.suffix.lower() == ".zarr" or any(
        (path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray")
    )


def check_output(path: Path, *, overwrite: bool) -> None:
    """Raise if `path` cannot be written: it is a directory, a special file, or an existing file without `overwrite`."""
    if path.is_dir():
        raise OutputExistsError(f"output {path} is a directory, expected a file name")
    if path.exists() and not path.is_file():  # a device or a pipe, which must not be replaced
        raise OutputExistsError(f"output {path} is a special file, expected a file name")
    if path.exists() and not overwrite:
        raise OutputExistsError(f"output {path} exists: choose another name or pass --overwrite")


@contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path next to `path` and rename it to `path` if the block ends without an error.

    The rename is atomic: a reader sees either the old file or the complete new one.
    """
    check_output(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=f".part{path.suffix}")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())  # otherwise a power cut could leave an empty file under the new name
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp creates private files; outputs get the usual permissions
        if overwrite:
            temporary.replace(path)
        else:
            _move_to_new(temporary, path)
    except FileExistsError:
        raise OutputExistsError(f"output {path} exists: choose another name or pass --overwrite") from None
    finally:
        temporary.unlink(missing_ok=True)


def _move_to_new(temporary: Path, path: Path) -> None:
    """Rename a file, unless another one of this name has been created in the meantime."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # exFAT, SMB and many FUSE mounts have no hard links: claim the name, then replace it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        temporary.replace(path)


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files of `new_file`, in a directory and below, whose process was killed."""
    for path in directory.rglob(".*-*.part*"):
        path.unlink(missing_ok=True)


def write_json(path: Path, values: Any, *, overwrite: bool = False) -> None:
    """Write values atomically as indented JSON."""
    with new_file(path, overwrite=overwrite) as temporary:
        temporary.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
