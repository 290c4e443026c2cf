"""Settings as YAML files and command lines: every field of a frozen dataclass, checked by its type."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter

from sfcnn.files import new_file

Config = TypeVar("Config")


# Of a file of settings; the largest have some fifty values.
_MOST_BYTES, _MOST_VALUES, _DEEPEST = 100_000, 10_000, 10

_LONGEST = 600  # characters of a message about a value

#: How the parser's own words are said here.
_WORDING = (
    (r'Parser key "(?:settings\.)?([^"]*)":', r"\1:"),
    (r"Expected a <class '(\w+)'>\. Got value:", r"expected \1, got"),
)


def _one_line(message: object) -> str:
    text = " ".join(str(message).split())
    for theirs, ours in _WORDING:
        text = re.sub(theirs, ours, text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


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
    """A parser of settings with one-line errors; `examples` are shown at the end of its help."""

    _config: type
    _first: Callable[[Sequence[str]], Sequence[Path]]

    def __init__(self, prog: str, description: str, examples: Sequence[str]) -> None:
        epilog = "\n  ".join(("examples:", *examples))
        super().__init__(
            prog=prog, description=description, epilog=epilog, formatter_class=_Formatter, allow_abbrev=False
        )

    def parse_args(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> Any:  # type: ignore[override]
        """Parse words; what is typed overrides the file of `--config`, whichever comes first."""
        files, words = _take_config(sys.argv[1:] if args is None else args)
        files = [*map(str, self._first(words)), *files]
        for file in map(Path, files):
            settings = {name: value for name, value in load_yaml(file).items() if not self._is_other_option(name)}
            _check_names(self._config, settings, file)
        return super().parse_args([*(f"--config={file}" for file in files), *words], *others, **options)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the mistake and where to read more, and stop."""
        self.exit(2, f"{self.prog}: error: {_one_line(message)} (see {self.prog} --help)\n")

    def add_settings(
        self,
        config: type,
        defaults: Path | None = None,
        first: Callable[[Sequence[str]], Sequence[Path]] = lambda words: (),
    ) -> None:
        """Add `--config FILE` and an option for every field.

        `defaults` is a YAML file to start from; `first` may find others by the words that were typed.
        """
        self._config, self._first = config, first
        self.add_argument("--config", action="config", help="read settings from this YAML file; options override it")
        self.add_class_arguments(config)
        if defaults is not None:
            self.set_defaults(self._read(defaults))

    def _is_other_option(self, name: str) -> bool:
        """Whether it is an option of the command that is no setting, as in a file that `--print_config` wrote."""
        settings = [field.name for field in fields(self._config)]
        return name not in settings and any(name == action.dest for action in self._actions)

    def _read(self, path: Path) -> dict[str, Any]:
        return self.parse_object(load_yaml(path), defaults=False).as_dict()


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    if not path.is_file():
        raise ValueError(f"settings file {path} does not exist")
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} holds no settings: it has more than {_MOST_BYTES:,} bytes")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} holds no settings: it is nested too deep") from error
    # Beside its own errors the reader raises those of what it makes of texts: numbers, dates, sets.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"{path} is not a YAML file: {_one_line(error)}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings as `name: value` lines")
    _check_extent(path, values)
    return values


def _check_extent(path: Path, values: dict[str, Any]) -> None:
    """Raise if there is far more than settings: a few lines of references can stand for billions of values."""
    waiting: list[tuple[Any, int]] = [(values, 0)]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return
        value, depth = waiting.pop()
        if isinstance(value, dict | list | tuple | set) and depth < _DEEPEST:
            inner = [*value, *value.values()] if isinstance(value, dict) else list(value)
            waiting += [(part, depth + 1) for part in inner]
        elif isinstance(value, dict | list | tuple | set):
            raise ValueError(f"{path} holds no settings: it is nested too deep")
    raise ValueError(f"{path} holds no settings: it has more than {_MOST_VALUES:,} values")


def _check_names(config: type, values: dict[str, Any], source: Path | None = None, prefix: str = "") -> None:
    """Raise if a name is no field of the dataclass, has no value, or has one where there are several settings."""
    known = {field.name: field.type for field in fields(config)}
    where = f"{source}: " if source else ""
    for name, value in values.items():
        if name not in known:
            choices = [prefix + name for name in known]
            raise ValueError(f"{where}unknown setting {f'{prefix}{name}'!r}, choose one of {choices}")
        inner = known[name]
        if isinstance(inner, type) and is_dataclass(inner):
            if not isinstance(value, dict):
                raise ValueError(
                    f"{where}{prefix}{name} must hold settings as `name: value` lines, got {_one_line(repr(value))}"
                )
            _check_names(inner, value, source, f"{prefix}{name}.")
        elif value is None:  # which jsonargparse would take for any type
            raise ValueError(f"{where}{prefix}{name} must have a value, got null")


def make_settings(config: type[Config], values: dict[str, Any]) -> Config:
    """A dataclass from nested plain values; fields that are not named keep their defaults.

    >>> from sfcnn.training.config import TrainConfig
    >>> make_settings(TrainConfig, {"model": {"orientations": 8}}).model.orientations
    8
    """
    _check_names(config, values)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(config, "settings")
    try:
        return parser.instantiate(parser.parse_object({"settings": values})).settings
    except (ArgumentError, TypeError) as error:
        raise ValueError(_one_line(error)) from error


def read_settings(config: type[Config], path: Path) -> Config:
    """A dataclass from a YAML file."""
    values = load_yaml(path)
    try:
        return make_settings(config, values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_settings(path: Path, config: Any, *, overwrite: bool = False) -> None:
    """Write a dataclass as YAML, all fields."""
    with new_file(path, overwrite=overwrite) as temporary:
        temporary.write_text(yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True), encoding="utf-8")
