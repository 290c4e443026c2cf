"""Progress output of a run: a live bar in a terminal, a line per epoch in a log."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sfcnn.train import loop


class RunDisplay:
    """Shows the progress of a run: epoch, step rate, remaining time, losses.

    Args:
        console: where to write
        epochs: of the whole run
        title: prefix of all lines
    """

    def __init__(self, console: Console, epochs: int, title: str = "") -> None:
        self.console, self.epochs = console, epochs
        self.title = f"{title}  " if title else ""
        self._last = time.perf_counter()
        self._rate = 0.0
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn()
            self._bar = Progress(*columns, TextColumn("{task.fields[numbers]}"), console=console, transient=True)
            self._task = self._bar.add_task(title, total=None, numbers="")

    def open(self) -> Self:
        """Show the bar."""
        if self._bar is not None:
            self._bar.start()
        return self

    def close(self) -> None:
        """Remove the bar; the lines stay."""
        if self._bar is not None:
            self._bar.stop()

    def step(self, progress: loop.Progress, steps: int, loss: float) -> None:
        """Update the bar, which spans all epochs, so that the remaining time is that of the run."""
        now = time.perf_counter()
        rate, self._last = 1 / max(now - self._last, 1e-9), now
        self._rate = rate if self._rate == 0 else 0.9 * self._rate + 0.1 * rate
        if self._bar is None:
            return
        numbers = f"{self._rate:.1f} steps/s  loss {progress.sums[0] / progress.sums[2]:.3f}"
        if progress.history:
            numbers += f"  validation {progress.history[-1].validation_error:.2f} %"
        self._bar.update(
            self._task,
            description=f"{self.title}epoch {progress.epoch + 1}/{self.epochs}",
            completed=progress.epoch * steps + progress.step,
            total=self.epochs * steps,
            numbers=numbers,
        )

    def epoch(self, progress: loop.Progress) -> None:
        """Print a line."""
        record = progress.history[-1]
        left = (self.epochs - record.epoch) * record.seconds
        self.console.print(
            f"{self.title}epoch {record.epoch}/{self.epochs}  loss {record.loss:.4f}  error {record.error:.2f} %  "
            f"validation loss {record.validation_loss:.4f}  error {record.validation_error:.2f} %  "
            f"{record.seconds:.0f} s, about {_duration(left)} left",
        )


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(75), _duration(7300)
    ('1 min 15 s', '2 h 1 min')
    """
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {int(seconds % 60)} s" if minutes else f"{int(seconds)} s"
