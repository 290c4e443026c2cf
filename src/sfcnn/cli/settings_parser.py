"""Command lines made from settings: every field of a frozen dataclass is an option, read from YAML files too."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from sfcnn.io.settings import check_names, load_yaml, one_line


def _take_config(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files of `--config FILE` and `--config=FILE`, and the other words in their order."""
    files: list[str] = []
    others: list[str] = []
    for word in words:
        if others[-1:] == ["--config"]:
            others.pop()
            files.append(word)
        elif word.startswith("--config="):
            files.append(word.partition("=")[2])
        else:
            others.append(word)
    return files, others


class _Formatter(DefaultHelpFormatter):
    """Keeps the line breaks of description and examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "".join(indent + line for line in text.splitlines(keepends=True))


class SettingsParser(ArgumentParser):
    """A parser with `--config FILE` and an option for every field of a dataclass; its errors are one line.

    Args:
        prog: the words that name the command
        config: the dataclass
        description: shown before the options …
        examples: … and lines to type after them
        defaults: a YAML file to start from
        first: finds further files to start from by the words that were typed
    """

    def __init__(
        self,
        prog: str,
        config: type,
        description: str,
        examples: Sequence[str],
        *,
        defaults: Path | None = None,
        first: Callable[[Sequence[str]], Sequence[Path]] = lambda words: (),
    ) -> None:
        epilog = "\n  ".join(("examples:", *examples))
        super().__init__(
            prog=prog, description=description, epilog=epilog, formatter_class=_Formatter, allow_abbrev=False
        )
        self._config, self._first = config, first
        self.add_argument("--config", action="config", help="read settings from this YAML file; options override it")
        self.add_class_arguments(config)
        if hasattr(config, "task"):  # which the settings of a run name too
            self.add_argument("--task", choices=[config.task], help=argparse.SUPPRESS)
        if defaults is not None:
            self.set_defaults(self.parse_object(load_yaml(defaults), defaults=False).as_dict())

    def parse_args(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> Any:  # type: ignore[override]
        """Parse words; what is typed overrides the file of `--config`, whichever comes first."""
        files, words = _take_config(sys.argv[1:] if args is None else args)
        files = [*map(str, self._first(words)), *files]
        for file in map(Path, files):
            settings = {name: value for name, value in load_yaml(file).items() if not self._is_other_option(name)}
            check_names(self._config, settings, file)
        return super().parse_args([*(f"--config={file}" for file in files), *words], *others, **options)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the mistake and where to read more, and stop."""
        self.exit(2, f"{self.prog}: error: {one_line(message)} (see {self.prog} --help)\n")

    def _is_other_option(self, name: str) -> bool:
        """Whether it is an option of the command that is not a setting, as in a file that `--print_config` wrote."""
        settings = [field.name for field in fields(self._config)]
        return name not in settings and any(name == action.dest for action in self._actions)
