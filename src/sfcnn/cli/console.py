"""Progress output: a live bar in a terminal, a few plain lines in a log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def make_console(*, quiet: bool = False) -> Console:
    """A console for the terminal, or for a file, with lines of any length."""
    plain = partial(Console, quiet=quiet, soft_wrap=True, highlight=False, markup=False)
    console = plain()
    return console if console.is_terminal else plain(width=120)


#: Called with the name of the work and the fraction that is done.
Report = Callable[[str, float], None]


@contextmanager
def progress(console: Console) -> Iterator[Report]:
    """Yield a function that shows the progress of each named piece of work."""
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done: float) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=1.0)
            bars.update(tasks[name], completed=done)

        yield report


def _lines(console: Console) -> Report:
    """Print one line at each quarter of the work."""
    quarters: dict[str, int] = {}

    def report(name: str, done: float) -> None:
        quarter = int(4 * done)
        if quarter > quarters.get(name, 0):
            quarters[name] = quarter
            console.print(f"{name}: {25 * quarter} %")

    return report
