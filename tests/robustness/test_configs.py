"""Settings with any mistakes are taken or refused: as YAML files, as values, and as files of a command."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from robustness.harness import Answer, cases, command, contents, damaged, limits, plain_values, read_or_refuse
from sfcnn.classification.config import ClassificationConfig
from sfcnn.experiments import CONFIGS, EXPERIMENTS, load_experiment
from sfcnn.io.settings import load_yaml, make_settings, read_settings
from sfcnn.segmentation.config import SegmentationConfig

CONFIG_TYPES: tuple[type, ...] = (
    ClassificationConfig,
    SegmentationConfig,
    *(load_experiment(name).settings for name in EXPERIMENTS),
)
FILES = [path.read_bytes() for path in sorted(CONFIGS.glob("*.yaml"))]

#: Texts that are more than they seem: loops, references that multiply, types, several documents, deep trees.
TRICKS = (
    "&a {model: *a}",
    "model: &a {width: *a}",
    "seed: &a [*a]",
    "[" * 5000,
    "{a: " * 3000,
    "model: {network: " + "[" * 3000 + "]" * 3000 + "}",
    "- " * 2000 + "a",
    "a: &a [x]\n" + "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(12)),
    "seed: &a [x]\nmodel: "
    + "[&b [*a, *a, *a, *a, *a, *a], &c [*b, *b, *b, *b, *b, *b], &d [*c, *c, *c, *c, *c, *c], [*d, *d, *d, *d, *d]]",
    "seed: !!python/object/apply:os.system ['touch executed']",
    "seed: !!python/name:os.system",
    "model: {class_path: os.system, init_args: {command: touch executed}}",
    "seed: 2001-13-41",
    "seed: 9999999-01-01",
    "seed: 1" + "0" * 5000,
    "seed: 0x" + "f" * 5000,
    "seed: 1" + ":59" * 500,
    "model: !!binary '\u00e4'",
    "model: !!int a",
    "model: !!float a",
    "seed: !!timestamp x",
    "seed: !!int ''",
    "model: !!set {a, b}",
    "model: !!omap [a: 1]",
    "model: !!pairs [a]",
    "<<: [{seed: 1}, 3]",
    "? [a, b]\n: c",
    "? {seed: 1}\n: c",
    "config: settings.yaml",
    "--- \nseed: 1\n--- \nseed: 2",
    "%YAML 9.9\n---\nseed: 1",
    "seed: *nothing",
    "seed: 1\nseed: 2",
    "model: {width: 1}\nmodel.width: 2",
    "'': 1",
    "null: 1",
    "1.5: 1",
    "model: {null: 1}",
    "seed: \u2028",
    "\ufeffseed: 1",
    "seed: '\\ud800'",
    "\tseed: 1",
    "seed: \x7f",
    "",
    "#",
)


@pytest.mark.parametrize("number", range(len(TRICKS)))
@pytest.mark.parametrize("config", [ClassificationConfig, CONFIG_TYPES[2]])
def test_texts_that_are_more_than_they_seem(config: type, number: int, workplace: Path) -> None:
    path = workplace / "settings.yaml"
    path.write_text(TRICKS[number], encoding="utf-8", errors="surrogatepass")
    read_or_refuse(lambda path: read_settings(config, path), path)
    assert not Path("executed").exists()


@cases(500)
@given(
    st.one_of(
        st.sampled_from(FILES).flatmap(damaged),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.text("{}[]:,&*!?|>%@-#'\"\\ \n\tab1.", max_size=40).map(str.encode),
        plain_values().map(lambda tree: yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")),
    )
)
def test_yaml(place: Path, content: bytes) -> None:
    path = place / "fuzzed.yaml"
    path.write_bytes(content)
    values = read_or_refuse(load_yaml, path)
    assert values is None or isinstance(values, dict)


def _names(config: type) -> list[tuple[str, ...]]:
    """The settings of a dataclass, and of those inside of it, each as a way of names."""
    found: list[tuple[str, ...]] = []
    for field in fields(config):
        found.append((field.name,))
        if isinstance(field.type, type) and is_dataclass(field.type):
            found += [(field.name, *rest) for rest in _names(field.type)]
    return found


NAMES = {config: _names(config) for config in CONFIG_TYPES}
VALUES = st.one_of(
    plain_values(),
    st.sampled_from((0, -1, 1, 10**6, 10**20, -(10**20), 2**63, 1e-320, 0.5, 1e308, "1", "0x10", "1e3", "nan", "true")),
    st.sampled_from(("digits", "steerable", "plain-channels", "paper", "continuous", "stack", "cosine", [1, 2], [[]])),
)


@st.composite
def mistaken(draw: st.DrawFn) -> tuple[type, dict[str, Any]]:
    """A kind of settings and values for it, in which up to three settings are anything."""
    config = draw(st.sampled_from(CONFIG_TYPES))
    values: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from(NAMES[config]))
        inner = values
        for name in way[:-1]:
            if not isinstance(inner.get(name), dict):
                inner[name] = {}
            inner = inner[name]
        inner[way[-1]] = draw(VALUES)
    return config, values


@cases(250)
@given(mistaken())
def test_values(case: tuple[type, dict[str, Any]]) -> None:
    """What is made has settings of the right types; what is refused is refused in one line."""
    config, values = case
    with limits():
        try:
            made: Any = make_settings(config, values)
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017  (a success is right too)
            return
    assert type(made) is config
    for field in fields(config):
        if field.type in (int, float, bool, str):
            assert type(getattr(made, field.name)) is field.type


COMMANDS = (("train", "--out", "taken"), ("segment", "train", "--out", "taken"), ("experiment", "isbi", "--list"))


@cases(100)
@given(
    st.sampled_from(COMMANDS),
    st.sampled_from(FILES).flatmap(damaged) | mistaken().map(lambda case: yaml.safe_dump(case[1]).encode()),
)
def test_files_of_a_command(workplace: Path, words: tuple[str, ...], content: bytes) -> None:
    """No run is started: the place for it is taken. Nothing is written either way."""
    (workplace / "fuzzed.yaml").write_bytes(content)
    (workplace / "taken").write_text("a file")
    before = contents(workplace)
    answer = command(*words, "--config", "fuzzed.yaml")
    assert answer.code == 2 or "--list" in words
    assert contents(workplace) == before


SMALL = (
    *("train", "--out", "run", "--images.dataset", "digits", "--images.train_images", "40"),
    *("--images.validation_images", "20", "--optimization.epochs", "1", "--optimization.batch_size", "20"),
    *("--model.width", "0.1", "--model.orientations", "2", "--model.engine", "direct"),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("seed", value) for value in ("99999999999999999999", str(2**63), str(2**62), str(2**53))),
        *(("images.seed", value) for value in (str(2**64), str(2**63), str(2**32))),
        *(("model.orientations", value) for value in ("99999999999999999999", "1000000000", "100000")),
        ("model.width", "1e-300"),
        ("optimization.batch_size", "1"),
        ("optimization.batch_size", "99999999999999999999999"),
        ("optimization.learning_rate", "1e-320"),
        ("optimization.learning_rate", "1e30"),
        ("optimization.elastic_conv", "1e300"),
        ("optimization.decay_from", "99999999999999999999"),
        ("images.train_images", "99999999999999999999"),
        ("checkpoint_steps", "99999999999999999999"),
        ("out", "name with\nline"),
        ("out", "x" * 300),
        ("out", "/proc/sfcnn"),
        ("out", "/dev/null"),
    ],
)
def test_extremes_that_reach_training(name: str, value: str, workplace: Path, tmp_path: Path) -> None:
    """What settings allow is trained with, or refused in a line; a run that ends well has all its files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        answer: Answer = command(*SMALL, f"--{name}", value)
    if answer.code == 0:
        run = tmp_path / (value if name == "out" else "run")
        assert {"config.yaml", "best.safetensors", "log.csv", "result.json"} <= set(contents(run))
