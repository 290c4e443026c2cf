"""Command lines made from settings: every field of a frozen dataclass is an option, also read from YAML files."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import yaml
from jsonargparse import ArgumentParser, DefaultHelpFormatter

from sfcnn.cli.parser import did_you_mean
from sfcnn.io.settings import check_names, find_presets, load_yaml, one_line

#: Settings as plain values, as in a YAML file.
Settings = dict[str, Any]


def _take_config(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off the files of `--config FILE` and `--config=FILE`; the other words keep their order."""
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
        examples: … and example command lines shown after them
        defaults: a YAML file to start from
        first: finds files with more settings to start from, and reads them, given the words of the command line and
            the settings of `--config FILE`
    """

    def __init__(
        self,
        prog: str,
        config: type,
        description: str,
        examples: Sequence[str],
        *,
        defaults: Path | None = None,
        first: Callable[[Sequence[str], Sequence[Settings]], Mapping[Path, Settings]] = lambda words, given: {},
    ) -> None:
        epilog = "\n  ".join(("examples:", *examples))
        super().__init__(
            prog=prog, description=description, epilog=epilog, formatter_class=_Formatter, allow_abbrev=False
        )
        self._config, self._first = config, first
        self.add_argument("--config", action="config", help="read settings from this YAML file; options override it")
        self.add_class_arguments(config)
        self._presets = dict(find_presets(config))
        for name, choices in self._presets.items():
            text = "preset for several of these settings; settings given explicitly override it"
            self.add_argument(f"--{name}", choices=list(choices), default=next(iter(choices)), help=text)
        if hasattr(config, "task"):  # the settings of a run include it
            self.add_argument("--task", choices=[config.task], help=argparse.SUPPRESS)
        if defaults is not None:
            self.set_defaults(self.parse_object(load_yaml(defaults), defaults=False).as_dict())

    def parse_args(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> Any:  # type: ignore[override]
        """Parse words; options override the file of `--config`, in any order."""
        files, words = _take_config(sys.argv[1:] if args is None else args)
        given = [(path, load_yaml(path)) for path in map(Path, files)]
        read = [*self._first(words, [values for _, values in given]).items(), *given]
        for path, values in read:
            settings = {name: value for name, value in values.items() if not self._is_other_option(name)}
            check_names(self._config, settings, path)
        words = [*(f"--config={yaml.safe_dump(values)}" for _, values in read), *words]
        return super().parse_args([*self._written_out(words), *words], *others, **options)

    def _written_out(self, words: Sequence[str]) -> list[str]:
        """The presets in `words` expanded to options, to be placed before them."""
        silent = [word for word in words if not word.startswith("--print_config")]
        if not any(name.rpartition(".")[2] in word for name in self._presets for word in silent):
            return []
        found = super().parse_args(silent)
        return [
            f"--{name.rpartition('.')[0]}.{setting}={value}".replace("--.", "--")
            for name, choices in self._presets.items()
            if found.get(name)
            for setting, value in choices[found[name]].items()
        ]

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error and where to find help, and exit."""
        text = did_you_mean(one_line(message), self._option_string_actions)
        self.exit(2, f"{self.prog}: error: {text} (see {self.prog} --help)\n")

    def _is_other_option(self, name: str) -> bool:
        """Whether `name` is an option but not a setting, as in a file written by `--print_config`."""
        settings = [field.name for field in fields(self._config)]
        return name not in settings and any(name == action.dest for action in self._actions)
