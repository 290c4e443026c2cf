"""What all commands that train have in common: settings as options, a directory, going on, a bar, a clean stop."""

import argparse
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.training.runs import RunResult
    from sfcnn.training.settings import SettingsParser


def training_parser(prog: str, config: type, description: str, examples: Sequence[str]) -> "SettingsParser":
    """A parser with an option for every field of the dataclass `config`, and those of a run."""
    from sfcnn.training.settings import SettingsParser

    parser = SettingsParser(
        prog,
        f"{description}\n"
        f"On several processes or machines: torchrun --nproc-per-node=2 -m {prog} …, or accelerate launch.",
        examples,
    )
    parser.add_settings(config, first=_resumed_settings)
    parser.add_argument("--out", type=Path, help="directory of the run")
    parser.add_argument("--data", type=Path, help="directory of the data files (default: SFCNN_DATA)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, if there is one")
    return parser


def _resumed_settings(words: Sequence[str]) -> list[Path]:
    """The settings of the run that is to go on, if the words ask for one and it is there."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    peek.add_argument("--out", type=Path)
    peek.add_argument("--resume", action="store_true")
    try:
        found, _ = peek.parse_known_args(words)
    except argparse.ArgumentError:
        return []  # the real parser will say what is wrong
    kept = [found.out / "config.yaml"] if found.resume and found.out else []
    return [path for path in kept if path.is_file()]


@contextmanager
def _stoppable(say: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C: schedulers send it, and torchrun when another process was lost."""
    came = False

    def stop(number: int, frame: object) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (ValueError, OSError):  # says itself what went wrong
        raise
    except BaseException as error:
        # An interrupt inside of compiled code may come out of it as another exception.
        if not came and not isinstance(error, KeyboardInterrupt):
            raise
        say()
        raise KeyboardInterrupt from error
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:
            signal.signal(signal.SIGTERM, before)


def run_training(
    prog: str, arguments: Any, config: type, start: Callable[[Any, Path | None], Callable[..., "RunResult"]]
) -> None:
    """Train, or go on. `start` reads the data that settings name, and returns what trains on them."""
    from sfcnn.console import make_console
    from sfcnn.training.display import RunDisplay
    from sfcnn.training.distributed import is_first_process
    from sfcnn.training.runs import check_run
    from sfcnn.training.settings import make_settings

    values = arguments.as_dict()
    out, data, resume, _ = (values.pop(name) for name in ("out", "data", "resume", "config"))
    if out is None:
        raise ValueError("where to? Name a directory for the run with --out")
    settings: Any = make_settings(config, values)
    check_run(out, settings, resume=resume)
    train = start(settings, data)
    console = make_console(quiet=not is_first_process())
    display = RunDisplay(console, settings.optimization.epochs)
    with (
        _stoppable(lambda: console.print(f"stopped; to go on: {prog} --out {out} --resume")),
        closing(display.open()),
    ):
        result = train(out, resume=resume, observers=[display], warn=lambda text: console.print(text))
    console.print(
        f"best validation error {result.validation_error:.2f} % at epoch {result.best_epoch} "
        f"({result.validation_images:,} images of {result.dataset}); {result.parameters:,} parameters",
    )
    console.print(f"wrote {out}")
