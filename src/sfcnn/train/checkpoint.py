"""Checkpoints of a run: everything needed to resume it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sfcnn.io.state import DamagedStateError, read_state, write_state


class Checkpoints:
    """The newest checkpoints of a run, in a directory, numbered by steps since its start."""

    def __init__(self, directory: Path, keep: int = 2) -> None:
        self.directory = directory
        self.keep = keep

    def paths(self) -> list[Path]:
        """All checkpoints, the newest first."""
        return sorted(self.directory.glob("[0-9]*.safetensors"), reverse=True)

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write one, then remove those that are no longer needed."""
        write_state(self.directory / f"{step:09d}.safetensors", state)
        for path in self.paths()[self.keep :]:
            path.unlink(missing_ok=True)

    def newest(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest intact checkpoint, or None; `warn` is called for each damaged one that is skipped."""
        paths = self.paths()
        for path in paths:
            try:
                return read_state(path)
            except DamagedStateError as error:
                warn(f"{error}; {'starting from scratch' if path is paths[-1] else 'using the one before it'}")
        return None
