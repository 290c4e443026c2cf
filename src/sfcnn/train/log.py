"""Logs of a run: a CSV file with one row per epoch and, optionally, TensorBoard files."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from sfcnn.io.files import new_file
from sfcnn.train.loop import EpochRecord, Progress


def write_history(path: Path, history: Sequence[EpochRecord]) -> None:
    """Write all epochs so far at once, so that killed and resumed runs leave no partial or duplicate rows."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(EpochRecord)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(record) for record in history)
    with new_file(path, overwrite=True) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


class Log:
    """Observes a run and writes `log.csv` and `tensorboard/` into its directory."""

    def __init__(self, directory: Path, *, tensorboard: bool, start: int) -> None:
        self.path = directory / "log.csv"
        self._writer = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # Drop what an interrupted run logged after its last checkpoint.
            self._writer = SummaryWriter(str(directory / "tensorboard"), purge_step=start + 1)

    def step(self, progress: Progress, steps: int, loss: float) -> None:
        """Do nothing: there is one row per epoch."""

    def epoch(self, progress: Progress) -> None:
        """Write the history with its new row."""
        write_history(self.path, progress.history)
        if self._writer is not None:
            record = asdict(progress.history[-1])
            epoch = record.pop("epoch")
            for name, value in record.items():
                self._writer.add_scalar(name, value, epoch)
            self._writer.flush()

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._writer is not None:
            self._writer.close()
