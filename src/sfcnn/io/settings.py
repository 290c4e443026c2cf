"""Settings as YAML files: every field of a frozen dataclass, with its type checked.

A dataclass may have presets: a class variable `presets`, with the name of a setting that is not a field, and the field
values that each of its choices stands for. Fields given explicitly override them; only the fields are written.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from sfcnn.io.files import new_file

Config = TypeVar("Config")

_LONGEST = 600  # characters of a message about a value

#: Messages of the parser, and how they are reworded.
_WORDING = (
    (r'Parser key "(?:settings\.)?([^"]*)":', r"\1:"),
    (r"Expected a <class '(\w+)'>\. Got value:", r"expected \1, got"),
)


def one_line(message: object) -> str:
    """A message of jsonargparse on one line and of bounded length."""
    text = " ".join(str(message).split())
    for theirs, ours in _WORDING:
        text = re.sub(theirs, ours, text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    if not path.is_file():
        raise ValueError(f"settings file {path} does not exist")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    # Besides YAMLError, the reader raises errors from converting text to numbers, dates and sets.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
        raise ValueError(f"{path} is not a YAML file: {one_line(error)}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings as `name: value` lines")
    return values


def find_presets(config: type, prefix: str = "") -> Iterator[tuple[str, Mapping[str, Mapping[str, Any]]]]:
    """The presets of a dataclass and its nested dataclasses, by full name, such as "optimization.recipe"."""
    if hasattr(config, "presets"):
        name, choices = config.presets
        yield f"{prefix}{name}", choices
    for field in fields(config):
        if isinstance(field.type, type) and is_dataclass(field.type):
            yield from find_presets(field.type, f"{prefix}{field.name}.")


def write_out(config: type, values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values with every preset expanded to its fields.

    >>> from sfcnn.train.config import OptimizationConfig
    >>> write_out(OptimizationConfig, {"recipe": "fast", "epochs": 3})["schedule"]
    'one-cycle'
    """
    inner = {field.name: field.type for field in fields(config)}
    values = {
        name: write_out(kind, value, f"{prefix}{name}.")
        if isinstance(kind := inner.get(name), type) and is_dataclass(kind) and isinstance(value, dict)
        else value
        for name, value in values.items()
    }
    if not hasattr(config, "presets"):
        return values
    name, choices = config.presets
    chosen = values.pop(name, None)
    if chosen is not None and (not isinstance(chosen, str) or chosen not in choices):
        raise ValueError(f"unknown {prefix}{name} {one_line(repr(chosen))}, choose one of {list(choices)}")
    return {**choices[chosen], **values} if chosen is not None else values


def check_names(config: type, values: dict[str, Any], source: Path | None = None, prefix: str = "") -> None:
    """Raise if a name is not a field, has no value, or has a single value where nested settings are expected."""
    known: dict[str, Any] = {field.name: field.type for field in fields(config)}
    if hasattr(config, "presets"):
        known[config.presets[0]] = str
    where = f"{source}: " if source else ""
    for name, value in values.items():
        if name not in known:
            choices = [prefix + name for name in known]
            raise ValueError(f"{where}unknown setting {f'{prefix}{name}'!r}, choose one of {choices}")
        inner = known[name]
        if isinstance(inner, type) and is_dataclass(inner):
            if not isinstance(value, dict):
                raise ValueError(
                    f"{where}{prefix}{name} must hold settings as `name: value` lines, got {one_line(repr(value))}"
                )
            check_names(inner, value, source, f"{prefix}{name}.")
        elif value is None:  # which jsonargparse would accept for any type
            raise ValueError(f"{where}{prefix}{name} must have a value, got null")


def make_settings(config: type[Config], values: dict[str, Any]) -> Config:
    """A dataclass from nested plain values; missing fields keep their defaults.

    >>> from sfcnn.train.config import OptimizationConfig
    >>> make_settings(OptimizationConfig, {"epochs": 3}).epochs
    3
    """
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(config, "settings")
    try:
        values = write_out(config, values)
        check_names(config, values)
        return parser.instantiate(parser.parse_object({"settings": values})).settings
    except (ArgumentError, TypeError, RecursionError) as error:
        raise ValueError(one_line(error)) from error


def read_settings(config: type[Config], path: Path) -> Config:
    """A dataclass from a YAML file."""
    values = load_yaml(path)
    try:
        return make_settings(config, values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_settings(path: Path, config: Any, *, overwrite: bool = False, **others: str) -> None:
    """Write all fields of a dataclass as YAML, preceded by `others`."""
    values = others | asdict(config)
    with new_file(path, overwrite=overwrite) as temporary:
        temporary.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
