"""Settings come out of files and command lines as they went in, and a mistake is one line."""

import inspect
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from sfcnn.classification.augmentation import AUGMENTATIONS, RESAMPLINGS
from sfcnn.classification.config import DATASETS, NETWORKS, ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.cli.settings_parser import SettingsParser
from sfcnn.experiments.generalization import GeneralizationConfig
from sfcnn.experiments.orientations import OrientationsConfig
from sfcnn.io.settings import make_settings, read_settings, write_settings
from sfcnn.models.twins import KINDS
from sfcnn.train.config import PRECISIONS, SCHEDULES, OptimizationConfig

POSITIVE = st.floats(1e-12, 1.0, exclude_min=True)
COUNTS = st.integers(1, 10**6)

MODELS = st.builds(
    ModelConfig,
    network=st.sampled_from(NETWORKS),
    kind=st.sampled_from(KINDS),
    orientations=COUNTS,
    width=st.floats(0.01, 64),
    basis=st.sampled_from(("bandlimited", "averaged", "paper")),
    init=st.sampled_from(("he", "coeff")),
    dropout=st.floats(0, 0.99),
)
IMAGES = st.builds(
    ImagesConfig,
    dataset=st.sampled_from(DATASETS[:-1]),
    train_images=COUNTS,
    validation_images=COUNTS,
    join_validation=st.booleans(),
    augmentation=st.sampled_from(AUGMENTATIONS),
    resampling=st.sampled_from(RESAMPLINGS),
    seed=COUNTS,
)
OPTIMIZATIONS = st.builds(
    OptimizationConfig,
    epochs=COUNTS,
    batch_size=COUNTS,
    learning_rate=POSITIVE,
    schedule=st.sampled_from(SCHEDULES),
    decay=POSITIVE,
    decay_from=COUNTS,
    elastic_conv=POSITIVE,
    elastic_dense=POSITIVE,
    precision=st.sampled_from(PRECISIONS),
)
RUNS = st.builds(
    ClassificationConfig,
    model=MODELS,
    images=IMAGES,
    optimization=OPTIMIZATIONS,
    seed=COUNTS,
    checkpoint_steps=COUNTS,
    tensorboard=st.booleans(),
)
SWEEPS = st.builds(
    GeneralizationConfig,
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, unique=True).map(tuple),
    seeds=st.lists(COUNTS, min_size=1, max_size=3, unique=True).map(tuple),
    angles=st.integers(1, 36_000),
    test_images=COUNTS,
    train=RUNS,
)


def parser_of(config: type, defaults: Path | None = None) -> SettingsParser:
    return SettingsParser("sfcnn some", config, "A command.", ("sfcnn some",), defaults=defaults)


def parse(config: type, *words: str, defaults: Path | None = None) -> Any:
    values = parser_of(config, defaults).parse_args(words).as_dict()
    del values["config"]
    values.pop("task", None)
    return make_settings(config, values)


def options(settings: Any, prefix: str = "") -> list[str]:
    """A word `--name=value` for each field, as one types it."""
    words = []
    for name, value in asdict(settings).items():
        if isinstance(value, dict):
            words += options(getattr(settings, name), f"{prefix}{name}.")
        elif isinstance(value, tuple):
            words.append(f"--{prefix}{name}={list(value)}")
        else:
            words.append(f"--{prefix}{name}={str(value).lower() if isinstance(value, bool) else value}")
    return words


@hypothesis.settings(max_examples=15)
@hypothesis.given(st.one_of(RUNS, SWEEPS))
def test_a_file_gives_back_the_settings(tmp_path_factory: pytest.TempPathFactory, settings: Any) -> None:
    path = tmp_path_factory.mktemp("settings") / "config.yaml"
    write_settings(path, settings)
    assert read_settings(type(settings), path) == settings
    assert parse(type(settings), "--config", str(path)) == settings


@pytest.mark.parametrize("config", [ClassificationConfig, OrientationsConfig, ModelConfig])
def test_what_is_not_named_keeps_its_default(config: type) -> None:
    assert make_settings(config, {}) == config()


OTHER = ClassificationConfig(
    ModelConfig("benchmark", "plain-channels", 4, 0.5, "averaged", "he", "direct", 0.25),
    ImagesConfig("digits", 10, 20, True, "continuous", "bicubic", 5),
    OptimizationConfig(3, 8, 0.5, "cosine", 0.75, 2, 1e-3, 1e-4, "bfloat16"),
    seed=7,
    checkpoint_steps=11,
    tensorboard=True,
    start="mnist-rot",
)
SWEEP = OrientationsConfig(orientations=(3, 5), train_images=(10,), seeds=(4, 2), test_images=9, train=OTHER)


@pytest.mark.parametrize("settings", [OTHER, SWEEP], ids=["run", "sweep"])
def test_every_field_is_an_option_and_overrides_the_file(settings: Any, tmp_path: Path) -> None:
    words = options(settings)
    default = asdict(type(settings)())
    assert not [name for name, value in asdict(settings).items() if value == default[name]]  # all are told apart
    assert parse(type(settings), *words) == settings
    write_settings(tmp_path / "default.yaml", type(settings)())
    file = ("--config", str(tmp_path / "default.yaml"))
    assert parse(type(settings), *file, *words) == settings
    assert parse(type(settings), *words, *file) == settings  # in any order
    assert parse(type(settings), *words, f"--config={tmp_path / 'default.yaml'}") == settings


@pytest.mark.parametrize("settings", [OTHER, SWEEP], ids=["run", "sweep"])
def test_printed_settings_give_back_the_settings(
    settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parser_of(type(settings)).parse_args([*options(settings), "--print_config"])
    assert stop.value.code == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert read_settings(type(settings), tmp_path / "printed.yaml") == settings


def test_what_comes_out_is_frozen_with_tuples() -> None:
    sweep = make_settings(OrientationsConfig, {"orientations": [1, 2], "train": {"seed": 3}})
    assert isinstance(sweep, OrientationsConfig)
    assert sweep.orientations == (1, 2)
    assert hash(sweep) == hash(OrientationsConfig(orientations=(1, 2), train=ClassificationConfig(seed=3)))
    assert all(is_dataclass(part) for part in (sweep.train, sweep.train.model, sweep.train.images))
    assert parse(OrientationsConfig, "--orientations", "[1, 2]", "--seeds=[5]").seeds == (5,)


def test_defaults_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text("seeds: [1, 2]\ntrain: {seed: 3, model: {width: 0.5}}\n", encoding="utf-8")
    settings = parse(OrientationsConfig, "--train.model.orientations", "4", defaults=path)
    assert settings == OrientationsConfig(
        seeds=(1, 2), train=ClassificationConfig(seed=3, model=ModelConfig(width=0.5, orientations=4))
    )


MISTAKES: dict[str, tuple[bytes | None, str]] = {
    "an unknown name": (b"modle: {}\n", "unknown setting 'modle', choose one of ['model', 'images', "),
    "an unknown name inside": (b"model: {orientation: 8}\n", "unknown setting 'model.orientation', choose one of "),
    "a name that is no text": (b"1: 2\n", "unknown setting '1'"),
    "a text for a number": (b"model: {orientations: eight}\n", "model.orientations: expected int, got eight"),
    "a broken number": (b"model: {orientations: 2.5}\n", "model.orientations: expected int, got 2.5"),
    "a number for a text": (b"model: {network: 7}\n", "model.network: expected str, got 7"),
    "a number for a truth": (b"tensorboard: 1\n", "tensorboard: expected bool, got 1"),
    "a value for a group": (b"model: 3\n", "model must hold settings as `name: value` lines, got 3"),
    "a wrong choice": (b"images: {dataset: faces}\n", "unknown dataset 'faces', choose one of ['digits', "),
    "no file": (None, "does not exist"),
    "an empty file": (b"", "must hold settings as `name: value` lines"),
    "a list": (b"- seed\n", "must hold settings as `name: value` lines"),
    "no YAML": (b"model: [1", "is not a YAML file"),
    "a binary file": (bytes(range(256)), "is not a YAML file"),
    "code": (b"seed: !!python/object/apply:os.system ['touch pwned']\n", "is not a YAML file"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_in_a_file_is_one_line_that_names_it(kind: str, tmp_path: Path) -> None:
    content, message = MISTAKES[kind]
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.yaml") as caught:
        read_settings(ClassificationConfig, path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(str(path)) == 1
    assert not Path("pwned").exists()


@pytest.mark.parametrize("kind", MISTAKES)
def test_the_same_mistake_is_one_line_on_the_command_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = MISTAKES[kind]
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((ValueError, SystemExit)) as caught:
        parse(ClassificationConfig, "--config", str(path))
    if isinstance(caught.value, SystemExit):  # the parser's own error
        assert caught.value.code == 2
        said = capsys.readouterr().err
        assert said.endswith("(see sfcnn some --help)\n")
    else:
        said = f"{caught.value}\n"
    assert message in said
    assert said.count("\n") == 1
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--modle.width", "1"), "unrecognized arguments: --modle.width 1; did you mean --model.width?"),
        (("--model.width", "wide"), "model.width: expected float, got wide"),
        (("--model.width",), "argument --model.width: expected one argument"),
        (("--config",), "argument --config: expected one argument"),
        (("--see", "3"), "unrecognized arguments: --see 3; did you mean --seed?"),  # no abbreviations
        (("stray",), "unrecognized arguments: stray"),
    ],
)
def test_a_mistake_in_an_option_is_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parser_of(ClassificationConfig).parse_args(words)
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"sfcnn some: error: {message} (see sfcnn some --help)\n"


def test_help_explains_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parser_of(ClassificationConfig).parse_args(["--help"])
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert output.endswith("\nexamples:\n  sfcnn some\n")
    shown = "".join(output.split())  # lines are broken anywhere
    for config in (ModelConfig, ImagesConfig, OptimizationConfig, ClassificationConfig):
        text = inspect.getdoc(config) or ""
        for field in fields(config):
            first = text.partition(f" {field.name}: ")[2].splitlines()[0]
            assert field.name in shown
            assert first
            assert "".join(first.split()) in shown


def test_a_file_is_not_replaced_by_mistake(tmp_path: Path) -> None:
    write_settings(tmp_path / "config.yaml", ClassificationConfig(seed=1))
    with pytest.raises(ValueError, match="exists"):
        write_settings(tmp_path / "config.yaml", ClassificationConfig(seed=2))
    write_settings(tmp_path / "config.yaml", ClassificationConfig(seed=3), overwrite=True)
    assert read_settings(ClassificationConfig, tmp_path / "config.yaml").seed == 3


@pytest.mark.parametrize("values", [{"seed": None}, {"model": {"orientations": None}}])
def test_settings_without_a_value_are_named(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(seed|model\.orientations) must have a value, got null"):
        make_settings(ClassificationConfig, values)
