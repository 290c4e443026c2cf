"""Progress output of a run: a line per epoch, and within long epochs a live bar in a terminal or lines in a log."""

import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sfcnn.train import loop

_FIRST, _EVERY = 10.0, 60.0  # seconds without output after which a log gets a line: at the start of a run, and later


class RunDisplay:
    """Shows the progress of a run: epoch, step, remaining time, losses.

    Every epoch ends with a line. Before that, a terminal shows a bar that moves with each step; a file gets a line
    about the step that was reached, ten seconds after the start and then whenever a minute has passed without a line.

    Args:
        console: where to write
        epochs: of the whole run
        title: prefix of all lines
        clock: the time in seconds
    """

    def __init__(
        self, console: Console, epochs: int, title: str = "", clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.console, self.epochs, self.clock = console, epochs, clock
        self.title = f"{title}  " if title else ""
        self._last = clock()
        self._pace = 0.0  # seconds per step, a moving average
        self._steps = 0  # seen here
        self._due = self._last + _FIRST  # when a log gets its next line
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn()
            self._bar = Progress(
                *columns,
                TextColumn("{task.fields[numbers]}"),
                console=console,
                transient=True,
                speed_estimate_period=600,  # seconds; a step may take more than the 30 that rich looks back by default
            )
            self._task = self._bar.add_task(f"{self.title}first step", total=None, numbers="")

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
        now = self.clock()
        pace, self._last, self._steps = max(now - self._last, 1e-9), now, self._steps + 1
        # The first step also reads images and prepares the layers, so it does not count.
        self._pace = pace if self._steps <= 2 else 0.9 * self._pace + 0.1 * pace
        mean = f"loss {progress.sums[0] / progress.sums[2]:.3f}"
        epoch = f"{self.title}epoch {progress.epoch + 1}/{self.epochs}"
        if self._bar is None:
            if now >= self._due:
                left = ((self.epochs - progress.epoch) * steps - progress.step) * self._pace
                remaining = f"  about {_duration(left)} left" if self._steps > 1 else ""
                follows = "  validating" if progress.step == steps else remaining
                self._line(f"{epoch}  step {progress.step}/{steps}  {mean}{follows}")
            return
        numbers = "validating" if progress.step == steps else f"{_speed(self._pace)}  {mean}"
        if progress.history:
            numbers += f"  validation {progress.history[-1].validation_error:.2f} %"
        self._bar.update(
            self._task,
            description=epoch,
            completed=progress.epoch * steps + progress.step,
            total=self.epochs * steps,
            numbers=numbers,
        )

    def epoch(self, progress: loop.Progress) -> None:
        """Print a line."""
        record = progress.history[-1]
        left = (self.epochs - record.epoch) * record.seconds
        self._line(
            f"{self.title}epoch {record.epoch}/{self.epochs}  loss {record.loss:.4f}  error {record.error:.2f} %  "
            f"validation loss {record.validation_loss:.4f}  error {record.validation_error:.2f} %  "
            f"{record.seconds:.0f} s, about {_duration(left)} left",
        )
        self._last = self.clock()  # the next step does not include the validation
        if self._bar is not None:
            self._bar.update(self._task, numbers="")

    def _line(self, text: str) -> None:
        self._due = self.clock() + _EVERY
        self.console.print(text)


def _speed(pace: float) -> str:
    """Steps per second, or seconds per step.

    >>> _speed(0.08), _speed(20)
    ('12.5 steps/s', '20.0 s/step')
    """
    return f"{1 / pace:.1f} steps/s" if pace <= 1 else f"{pace:.1f} s/step"


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(75), _duration(7300)
    ('1 min 15 s', '2 h 1 min')
    """
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {int(seconds % 60)} s" if minutes else f"{int(seconds)} s"
