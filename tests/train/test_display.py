"""A person sees a line per epoch, and within long epochs a bar in a terminal, or lines in a log."""

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


class Clock:
    """A time that passes when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def long_run(step_seconds: float, *, terminal: bool = False, stop: int = 8) -> str:
    """What the first 8 of 12 steps, or fewer, look like; an epoch has 4, and validation takes 30 s."""
    file, clock = io.StringIO(), Clock()
    console = Console(file=file, force_terminal=terminal, width=120, color_system=None, soft_wrap=True, markup=False)
    display = RunDisplay(console, 3, clock=clock).open()
    progress = Progress()
    for number in range(stop):
        step = number % 4
        clock.now += step_seconds
        progress.step, progress.sums = step + 1, (2.5 * (step + 1), 1.0, step + 1)
        display.step(progress, 4, 2.5)
        if number == 3 and stop > 4:
            clock.now += 30
            progress.history.append(EpochRecord(1, 0.01, 1.25, 0.0, 12.5, 0.75, 6.25, 4 * step_seconds + 30))
            progress.epoch, progress.step, progress.sums = 1, 0, (0.0, 0.0, 0.0)
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
    for part in ("epoch 2/2", "6/6"):  # how it ends
        assert part in output
    assert "\x1b[?25l" in output  # the cursor is hidden while the bar is there …
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")  # … and comes back


def test_a_log_shows_how_far_a_long_epoch_is() -> None:
    assert long_run(25).splitlines() == [
        "epoch 1/3  step 1/4  loss 2.500",  # ten seconds after the start
        "epoch 1/3  step 4/4  loss 2.500  validating",  # a minute later
        "epoch 1/3  loss 1.2500  error 12.50 %  validation loss 0.7500  error 6.25 %  130 s, about 4 min 20 s left",
        "epoch 2/3  step 3/4  loss 2.500  about 2 min 5 s left",  # a minute after the epoch
    ]
    assert len(long_run(2.4).splitlines()) == 1  # a short epoch has only its own line


@pytest.mark.parametrize(("seconds", "part"), [(25, "1/12"), (25, "25.0 s/step"), (0.1, "10.0 steps/s")])
def test_a_terminal_shows_each_step(seconds: float, part: str) -> None:
    assert part in long_run(seconds, terminal=True, stop=1)
    assert "first step" in long_run(seconds, terminal=True, stop=0)
    assert "validating" in long_run(seconds, terminal=True, stop=4)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min"), (90061, "25 h 1 min")],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
