"""The argument parser of all commands: a mistake is one line, help ends in examples."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from sfcnn.devices import DEVICES


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and whose help keeps the line breaks of its texts.

    `examples` are lines to type, shown at the end of the help; all else is argparse's own.

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
        """Print the mistake and where to read more, and stop."""
        text = " ".join(message.splitlines())  # words that were typed may have line breaks in them
        self.exit(2, f"{self.prog}: error: {text} (see {self.prog} --help)\n")


def add_views(parser: Any) -> None:
    """Add the option of every command that classifies."""
    parser.add_argument(
        "--views",
        type=int,
        default=1,
        metavar="N",
        help="test-time averaging: the mean probability over N rotations of each image by angles within 360°/Λ",
    )


def add_batch_size(parser: Any) -> None:
    """Add the option of every command that takes images through a classifier."""
    parser.add_argument("--batch-size", type=int, default=100, metavar="N", help="images at a time (default 100)")


def add_device(parser: Any) -> None:
    """Add the option of every command that computes with a network."""
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="where to compute: auto (default), cpu, cuda or mps"
    )


def add_data(parser: Any) -> None:
    """Add the option of every command that reads data sets."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="directory of the data files (default: SFCNN_DATA)")


def add_overwrite(parser: Any) -> None:
    """Add the option of every command that writes files."""
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
