"""The argument parser of all commands: errors are one line, help ends with examples."""

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from sfcnn.devices import DEVICES


def did_you_mean(message: str, options: Iterable[str]) -> str:
    """An error message, with a suggestion if it is about an unknown option that resembles one of `options`.

    >>> did_you_mean("unrecognized arguments: --epoch 3", ["--epochs", "--out"])
    'unrecognized arguments: --epoch 3; did you mean --epochs?'
    """
    unknown = re.match(r"unrecognized arguments: (--[\w.-]+)", message)
    close = closest(unknown[1], options) if unknown else ""
    return f"{message}; did you mean {close}?" if close else message


def closest(word: str, words: Iterable[str]) -> str:
    """The one of `words` that resembles a mistyped word most, or an empty text if none does.

    >>> closest("segmnet", ["segment", "score"])
    'segment'
    """
    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=0.8)), "")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and whose help keeps line breaks.

    `examples` are lines to type, shown at the end of the help; the rest is passed to argparse.

    >>> print(Parser("sfcnn fly", examples=["sfcnn fly --high"]).format_help())
    usage: sfcnn fly [-h]
    <BLANKLINE>
    options:
      -h, --help  show this help message and exit
    <BLANKLINE>
    examples:
      sfcnn fly --high
    <BLANKLINE>
    """

    def __init__(self, prog: str | None = None, *, examples: Sequence[str] = (), **settings: Any) -> None:
        if examples:
            settings["epilog"] = "\n  ".join(("examples:", *examples))
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # A new option must not change what an abbreviation in an old script means.
        settings.setdefault("allow_abbrev", False)
        super().__init__(prog, **settings)

    def error(self, message: str) -> NoReturn:
        """Print the error and where to find help, and exit."""
        text = did_you_mean(" ".join(message.splitlines()), self._option_string_actions)  # arguments may be many lines
        self.exit(2, f"{self.prog}: error: {text} (see {self.prog} --help)\n")


def add_views(parser: Any) -> None:
    """Add the option of all commands that classify."""
    parser.add_argument(
        "--views",
        type=int,
        default=1,
        metavar="N",
        help="test-time augmentation: average the probabilities over N rotations of each image within 360°/Λ",
    )


def add_batch_size(parser: Any) -> None:
    """Add the option of all commands that run images through a classifier."""
    parser.add_argument("--batch-size", type=int, default=100, metavar="N", help="images per batch (default 100)")


def add_device(parser: Any) -> None:
    """Add the option of all commands that run a network."""
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="device to run on: auto (default), cpu, cuda or mps"
    )


def add_data(parser: Any) -> None:
    """Add the option of all commands that read data sets."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="directory of the data files (default: SFCNN_DATA)")


def add_overwrite(parser: Any) -> None:
    """Add the option of all commands that write files."""
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
