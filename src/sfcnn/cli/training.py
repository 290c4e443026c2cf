"""Shared by all training commands: settings as options, run directory, resuming, progress bar, clean interruption."""

import argparse
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.parser import add_data, add_device

if TYPE_CHECKING:
    from sfcnn.cli.settings_parser import SettingsParser
    from sfcnn.train.run import RunResult


def training_parser(prog: str, config: type, description: str, examples: Sequence[str]) -> "SettingsParser":
    """A parser with an option for every field of the dataclass `config`, and the options of a run."""
    from sfcnn.cli.settings_parser import SettingsParser

    parser = SettingsParser(
        prog,
        config,
        f"{description}\n"
        f"To train on several processes or machines: torchrun --nproc-per-node=2 -m {prog} …, or accelerate launch.",
        examples,
        first=partial(_first_settings, config),
    )
    parser.add_argument("--out", type=Path, help="directory of the run")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out, if there is one")
    add_data(parser)
    add_device(parser)
    return parser


def _first_settings(config: Any, words: Sequence[str], given: Sequence[dict[str, Any]]) -> dict[Path, dict[str, Any]]:
    """The settings that others override, by file: of the run to resume, or the model of the network to start from.

    `words` are those of the command line, `given` the settings of its `--config FILE`.
    """
    from sfcnn.io.names import find_run
    from sfcnn.io.runs import read_run, read_task

    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    peek.add_argument("--out", type=Path)
    peek.add_argument("--resume", action="store_true")
    peek.add_argument("--data")
    peek.add_argument("--device")
    peek.add_argument("--start", default=next((values["start"] for values in given[::-1] if "start" in values), ""))
    try:
        found, others = peek.parse_known_args(words)
    except argparse.ArgumentError:
        return {}  # the real parser will report the error
    if found.resume and found.out and (path := found.out / "config.yaml").is_file():
        task, values = read_run(found.out)
        return {path: {"task": task, **values}}
    if found.resume and found.out and not (given or others or found.start):
        raise ValueError(f"{found.out} has no run to resume: pass the directory of a run, or the settings of a new one")
    if not found.start or not isinstance(found.start, str):
        return {}
    directory = find_run(found.start)
    return {directory / "config.yaml": {"model": read_task(directory, config.task).get("model", {})}}


@contextmanager
def _stoppable(say: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C: schedulers send it, as does torchrun when another process fails."""
    came = False

    def stop(number: int, frame: object) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (ValueError, OSError):  # their message states the cause
        raise
    except BaseException as error:
        # An interrupt inside compiled code may surface as another exception.
        if not came and not isinstance(error, KeyboardInterrupt):
            raise
        say()
        raise KeyboardInterrupt from error
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:
            signal.signal(signal.SIGTERM, before)


def run_training(prog: str, arguments: Any, config: type, train: Callable[..., "RunResult"]) -> None:
    """Train, or continue a run. `train` is a task's training function, which takes settings and a directory."""
    from sfcnn.cli.console import make_console
    from sfcnn.io.settings import make_settings
    from sfcnn.train.display import RunDisplay
    from sfcnn.train.distributed import is_first_process, leave_job
    from sfcnn.train.run import check_directory

    values = arguments.as_dict()
    names = ("out", "data", "resume", "device", "config", "task")
    out, data, resume, device, _, _ = (values.pop(name) for name in names)
    if out is None:
        raise ValueError("--out is missing: pass a directory for the run")
    settings: Any = make_settings(config, values)
    check_directory(out, resume=resume)
    console = make_console(quiet=not is_first_process())
    if resume and not (out / "config.yaml").is_file():
        console.print(f"nothing to resume in {out}: starting a new run")
    display = RunDisplay(console, settings.optimization.epochs)
    with (
        _stoppable(lambda: console.print(f"stopped; to resume: {prog} --out {out} --resume")),
        closing(display.open()),
    ):
        result = train(
            settings,
            out,
            data=data,
            device=device,
            resume=resume,
            observers=[display],
            warn=lambda text: console.print(text),
        )
    console.print(
        f"best validation error {result.validation_error:.2f} % at epoch {result.best_epoch} "
        f"({result.validation_images:,} images of {result.dataset}); {result.parameters:,} parameters",
    )
    console.print(f"wrote {out}")
    leave_job()
