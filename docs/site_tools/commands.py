"""The command reference, generated from `sfcnn … --help` so that it is always up to date."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from unittest import mock

from sfcnn import cli

_WIDTH = "92"


def commands() -> Iterator[tuple[str, ...]]:
    """Every command as words: (), ("demo",), ("classify",), ("classify", "train") …"""
    yield ()
    listed: set[str] = set()
    for name in cli.COMMANDS:
        group, *rest = name.split()
        if rest and group not in listed:
            listed.add(group)
            yield (group,)
        yield (group, *rest)


def help_text(words: tuple[str, ...]) -> str:
    """What `sfcnn WORDS --help` prints."""
    printed = io.StringIO()
    screen = mock.patch.dict(os.environ, {"COLUMNS": _WIDTH, "NO_COLOR": "1"})
    with screen, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    text = re.sub(".\b", "", printed.getvalue()).strip()  # a terminal erases the character before a backspace
    if not text.startswith("usage:"):
        raise ValueError(f"sfcnn {' '.join(words)} --help does not print its usage: {text[:80]!r}")
    return text


def reference() -> str:
    """All commands as Markdown, each with a heading and its help."""
    sections = []
    for words in commands():
        level = "#" * max(2, len(words) + 1)
        heading = " ".join(("sfcnn", *words))
        sections.append(f"{level} {heading}\n\n```text\n{help_text(words)}\n```")
    return "\n\n".join(sections)
