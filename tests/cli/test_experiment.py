import json
from pathlib import Path

import pytest

from cli.conftest import Fails, files
from sfcnn.cli import main
from sfcnn.experiments import EXPERIMENTS, timing

#: Runs of two steps of a small network on embedded digits.
TINY = [
    *("--train.images.dataset", "digits-rot", "--train.images.train_images", "40"),
    *("--train.images.validation_images", "20", "--test_images", "20"),
    *("--train.model.width", "0.1", "--train.model.orientations", "2", "--train.model.engine", "direct"),
    *("--train.optimization.batch_size", "20", "--train.optimization.epochs", "1"),
]
SLICES = [
    *("--train.images.source", "synthetic", "--train.images.validation", "1", "--train.images.test", "1"),
    *("--trees", "2", "--train.model.levels", "2", "--train.model.channels", "1", "--train.model.orientations", "2"),
    *(
        "--train.crops.size",
        "32",
        "--train.crops.margin",
        "4",
        "--train.optimization.epochs",
        "1",
        "--train.steps",
        "1",
    ),
]
SWEEPS = {
    "orientations": ["--orientations", "[1, 2]", "--train_images", "[40]", "--seeds", "[0]"],
    "generalization": ["--kinds", "[steerable, plain-channels]", "--augmentations=[none]", "--angles", "4"],
    "benchmark": ["--variants", "[he, coeff]", "--seeds", "[3]"],
    "symmetry": ["--networks", "[C8, plain]", "--seeds", "[3]", "--epochs", "{C8: 1, plain: 1}"],
    "recipes": ["--epochs", "{paper: 1, fast: 1}", "--seeds", "[3]"],
    "isbi": ["--kinds", "[steerable, plain-parameters]", "--folds", "[2]"],
}
RUNS = {
    "orientations": ["n40-L1-s0", "n40-L2-s0"],
    "generalization": ["steerable-none-s0", "plain-channels-none-s0"],
    "benchmark": ["he-s3", "coeff-s3"],
    "symmetry": ["C8-s3", "plain-s3"],
    "recipes": ["paper-s3", "fast-s3"],
    "isbi": ["steerable-slices2-2-s0", "plain-parameters-slices2-2-s0"],
}


def sweep(name: str, *words: str) -> int:
    return main(["experiment", name, *(TINY if name != "isbi" else SLICES), *SWEEPS[name], "--out", "sweep", *words])


def snapshot() -> dict[str, tuple[bytes, int]]:
    return {name: (Path(name).read_bytes(), Path(name).stat().st_mtime_ns) for name in files()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_leaves_a_table_a_json_file_and_a_figure(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(name) == 0
    said = capsys.readouterr()
    assert said.err == ""
    summary = json.loads(Path(f"sweep/{name}.json").read_text(encoding="utf-8"))
    assert [run["name"] for run in summary["runs"]] == RUNS[name]
    assert summary["experiment"] == name
    assert summary["wall_seconds"] > 0
    for run in summary["runs"]:
        assert run["train"]["seed"] == run["seed"]
        assert {"commit", "versions", "finished"} <= set(run["provenance"])
    for text in (*summary["table"]["columns"], *summary["table"]["rows"][0]):
        assert all(word in said.out for word in text.split())
    assert Path(f"sweep/{name}.png").read_bytes().startswith(b"\x89PNG")
    for number, run in enumerate(RUNS[name], start=1):
        assert f"{run}  epoch 1/1  loss " in said.out
        assert f"{run} done, " in said.out
        assert f" s ({number} of 2)\n" in said.out
    assert said.out.endswith(f"wrote sweep/{name}.json\nwrote sweep/{name}.png\n")


def test_runs_can_be_run_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("orientations", "--only", "n40-L2-s0") == 0
    assert "1 of 2 runs are still open: run the command without --only to train them" in capsys.readouterr().out
    assert {Path(name).parts[2] for name in files()} == {"n40-L2-s0"}
    before = snapshot()
    assert sweep("orientations", "--list") == 0
    listed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert listed == [["n40-L1-s0", "open"], ["n40-L2-s0", "done"]]
    assert snapshot() == before
    assert sweep("orientations", "--only", "*-L1-*") == 0  # the last one that was open
    said = capsys.readouterr().out
    assert "already finished" not in said
    assert "wrote sweep/orientations.json" in said
    after = snapshot()
    assert {name: after[name] for name in before} == before


def test_a_finished_experiment_is_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("orientations") == 0
    shown = capsys.readouterr().out
    before = snapshot()
    assert sweep("orientations") == 0
    again = capsys.readouterr().out
    assert again.startswith("2 of 2 runs were already finished\n")
    assert " done, " not in again
    assert "epoch" not in again
    assert shown[shown.index("Test error") :] in again
    after = snapshot()
    assert {name: value for name, value in after.items() if "runs/" in name} == {
        name: value for name, value in before.items() if "runs/" in name
    }
    assert {name: content for name, (content, _) in after.items() if name.endswith(".json")} == {
        name: content for name, (content, _) in before.items() if name.endswith(".json")
    }


def test_finished_runs_are_counted_before_the_others_fail_for_lack_of_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sweep("orientations", "--only", "n40-L2-s0") == 0
    capsys.readouterr()
    monkeypatch.setattr("sfcnn.experiments.common.digit_splits", _no_data)
    assert sweep("orientations") == 2
    said = capsys.readouterr()
    assert said.out == "1 of 2 runs were already finished\n"
    assert said.err == "sfcnn: error: no digits\n"


def _no_data(images: object, data: object) -> None:
    raise ValueError("no digits")


def test_epochs_that_follow_from_a_time_are_the_same_when_a_sweep_is_resumed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_TURNS", 1)  # how exact the times are does not matter here
    words = ["experiment", "symmetry", *TINY, "--networks", "[C8, plain]", "--seeds", "[0]", "--out", "sweep"]
    words += ["--budget_seconds", "0.001"]
    assert main([*words, "--list"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["open", "open"]
    assert not files()
    assert main([*words, "--only", "plain-*"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("timing epochs of C8, plain\n")
    assert "plain-s0  epoch 2/2  loss " in said
    assert main([*words, "--list"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["open", "done"]
    before = snapshot()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "timing" not in said
    assert "C8-s0  epoch 2/2  loss " in said
    after = snapshot()
    assert {name: after[name] for name in before} == before
    summary = json.loads(Path("sweep/symmetry.json").read_text(encoding="utf-8"))
    assert summary["settings"]["epochs"] == {"C8": 2, "plain": 2}


@pytest.mark.parametrize(("words", "count"), [([], 140), (["--quick"], 16), (["--only", "n1250-L20-*"], 5)])
def test_listing_shows_the_runs_and_makes_nothing(
    words: list[str], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "orientations", "--list", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == count
    assert all(line.endswith(" open") for line in lines)
    assert not files()


@pytest.mark.parametrize("quick", [[], ["--quick"]])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_printed_settings_are_a_config_of_the_same_runs(
    name: str, quick: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", name, *quick, "--list"]) == 0
    expected = capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["experiment", name, *quick, "--print_config"])
    assert stop.value.code == 0
    Path("my.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["experiment", name, "--config", "my.yaml", "--list"]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_of_an_experiment_has_its_settings_and_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["experiment", name, "--help"])
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert f"\nexamples:\n  sfcnn experiment {name} --quick" in output
    assert all(option in output for option in ("--seeds", "--train.optimization.epochs", "--only", "--processes"))


def test_other_settings_in_the_same_directory_are_refused(fails: Fails) -> None:
    assert sweep("orientations", "--only", "n40-L1-s0") == 0
    before = snapshot()
    words = ["experiment", "orientations", *TINY, *SWEEPS["orientations"], "--out", "sweep"]
    for option in (["--test_images", "10"], ["--train.model.dropout", "0.5"], ["--test_images", "10", "--list"]):
        message = fails(*words, *option)
        assert "sweep/runs/n40-L1-s0/measured.json was measured with other settings: choose another --out" in message
        assert snapshot() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "choose one of orientations, generalization, benchmark, symmetry, recipes, isbi"),
        (["weather"], "unknown command 'weather'"),
        (["benchmark", "--only", "he-s9"], "no run 'he-s9', choose one of ['he-s0', "),
        (["benchmark", "--only", "he-s9", "--list"], "no run 'he-s9', choose one of ['he-s0', "),
        (["benchmark", "--variants", "[she]"], "unknown variant 'she', choose one of ['he', 'coeff', "),
        (["benchmark", "--seeds", "[0, 0]"], "seeds must have at least one value and no duplicates, got [0, 0]"),
        (["benchmark", "--seeds", "0"], "seeds: expected tuple, got 0"),
        (["benchmark", "--seed", "[0]"], "unrecognized arguments: --seed [0]"),
        (["benchmark", *TINY, "--processes", "0"], "processes must be at least 1, got 0"),
        (["benchmark", *TINY, "--processes", "many"], "processes"),
        (
            ["benchmark", *TINY, "--test_images", "1501"],
            "test_images must be at most 1500, the number of images available, got 1501",
        ),
        (["benchmark", *TINY, "--config", "nowhere.yaml"], "settings file nowhere.yaml does not exist"),
        (["generalization", "--angles", "0"], "number of angles must be at least 1, got 0"),
        (["generalization", "--kinds", "[round]"], "unknown kind 'round', choose one of ['steerable', "),
        (["generalization", "--quick"], "data set mnist needs a directory with its files"),
        (["generalization", "--quick"], "run an experiment with --train.images.dataset digits"),
        (["orientations", "--quick", "--data", "empty"], "empty"),
        (["symmetry", "--quick"], "data set mnist-rot-regenerated needs a directory with its files"),
        (["symmetry", "--only", "C8-s9"], "no run 'C8-s9', choose one of ['C8-s0', "),
        (["symmetry", "--epochs", "{C8: many}"], "epochs"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_made(
    words: list[str], message: str, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SFCNN_DATA", raising=False)
    Path("empty").mkdir()
    assert message in fails("experiment", *words)
    assert [path.name for path in Path().iterdir()] == ["empty"]
