"""A person sees a line per epoch in a log, and a bar besides in a terminal."""

import io

import pytest
from rich.console import Console

from sfcnn.train.display import RunDisplay, _duration
from sfcnn.train.loop import EpochRecord, Progress


def shown(*, terminal: bool, title: str = "") -> str:
    """What two epochs of three steps look like."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=120, color_system=None, soft_wrap=True, markup=False)
    display = RunDisplay(console, 2, title).open()
    progress = Progress()
    for epoch in range(2):
        for step in range(3):
            progress.step, progress.sums = step + 1, (2.5 * (step + 1), 1.0, step + 1)
            display.step(progress, 3, 2.5)
        progress.history.append(EpochRecord(epoch + 1, 0.01, 1.25, 0.0, 12.5, 0.75, 6.25, 90.0))
        progress.epoch, progress.step, progress.sums = epoch + 1, 0, (0.0, 0.0, 0.0)
        display.epoch(progress)
    display.close()
    return file.getvalue()


def line(epoch: int, left: str, title: str = "") -> str:
    return (
        f"{title}epoch {epoch}/2  loss 1.2500  error 12.50 %  validation loss 0.7500  error 6.25 %  "
        f"90 s, about {left} left\n"
    )


@pytest.mark.parametrize("title", ["", "cell [1]"])
def test_a_log_gets_a_line_per_epoch(title: str) -> None:
    start = f"{title}  " if title else ""
    assert shown(terminal=False, title=title) == line(1, "1 min 30 s", start) + line(2, "0 s", start)


def test_a_terminal_gets_a_bar_besides() -> None:
    output = shown(terminal=True)
    for part in ("loss 1.2500  error 12.50 %", "about 1 min 30 s left", "about 0 s left"):
        assert part in output
    for part in ("epoch 2/2", "6/6", "steps/s", "loss 2.500", "validation 6.25 %"):  # how it ends
        assert part in output
    assert "\x1b[?25l" in output  # the cursor is hidden while the bar is there …
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")  # … and comes back


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min"), (90061, "25 h 1 min")],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
