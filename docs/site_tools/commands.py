"""The reference of commands: what every `sfcnn … --help` prints, so that it says what the program does."""

import argparse
import contextlib
import importlib
import io
import os
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

from sfcnn import cli

_WIDTH = "92"


def _choices(parser: Any) -> list[str]:
    """Names of the commands that a parser leaves to others: its subparsers, or what stands before all other words."""
    before: Any = None
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices)
        if action.nargs == argparse.REMAINDER:
            return list(before.choices)
        before = action
    return []


def commands() -> Iterator[tuple[str, ...]]:
    """Every command as words: (), ("demo",), … ("segment",), ("segment", "train") …"""
    yield ()
    for name in _choices(cli.parser()):
        yield (name,)
        module = importlib.import_module(cli.COMMANDS[name][0])
        for action in _choices(module.parser()):
            yield name, action


def help_text(words: tuple[str, ...]) -> str:
    """What `sfcnn WORDS --help` prints."""
    printed = io.StringIO()
    screen = mock.patch.dict(os.environ, {"COLUMNS": _WIDTH, "NO_COLOR": "1"})
    with screen, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    text = re.sub(".\b", "", printed.getvalue()).strip()  # a terminal takes back what stands before a backspace
    if not text.startswith("usage:"):
        raise ValueError(f"sfcnn {' '.join(words)} --help prints no usage: {text[:80]!r}")
    return text


def reference() -> str:
    """All commands as Markdown: a heading and the help of each."""
    sections = []
    for words in commands():
        level = "#" * max(2, len(words) + 1)
        heading = " ".join(("sfcnn", *words))
        sections.append(f"{level} {heading}\n\n```text\n{help_text(words)}\n```")
    return "\n\n".join(sections)
