import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Fails
from sfcnn import __version__
from sfcnn.cli import COMMANDS, EXTRAS, GROUPS, main


def test_no_command_and_a_wrong_one_name_the_choices(fails: Fails) -> None:
    for words in ([], ["fly"]):
        message = fails(*words)
        assert all(name in message for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["segmen", "predict"], "segment"), (["segment", "predicts"], "predict"), (["filter"], "filters")],
)
def test_a_mistyped_command_is_corrected(words: list[str], meant: str, fails: Fails) -> None:
    assert f"; did you mean {meant}?" in fails(*words)


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_has_examples(command: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"] if command is None else [*command.split(), "--help"])
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert f"\nexamples:\n  sfcnn {command or ''}" in output
    assert command or all(purpose in output for _, purpose in COMMANDS.values())


@pytest.mark.parametrize("module", EXTRAS)
def test_a_missing_package_is_named(module: str, fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(prog: str, arguments: object) -> None:
        raise ModuleNotFoundError(f"No module named '{module}.part'", name=f"{module}.part")

    monkeypatch.setattr("sfcnn.cli.filters.run", fail)
    package, extra = EXTRAS[module]
    assert f"sfcnn filters needs the package {package}: pip install 'sfcnn[{extra}]'" in fails("filters")


def test_a_broken_import_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "filters", ("sfcnn.cli.nowhere", ""))
    with pytest.raises(ModuleNotFoundError, match=r"sfcnn\.cli\.nowhere"):
        main(["filters"])


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(prog: str, arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sfcnn.cli.filters.run", interrupt)
    assert main(["filters"]) == 130
    assert capsys.readouterr().err == "sfcnn: interrupted\n"


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_commands(group: str, fails: Fails, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([group, "--help"])
    assert stop.value.code == 0
    listed = capsys.readouterr().out
    names = [name.removeprefix(f"{group} ") for name in COMMANDS if name.startswith(f"{group} ")]
    assert len(names) > 1
    assert all(f"  {group} {name}" in listed for name in names)
    for words in ([group], [group, "fly"], [group, "--fly"]):
        message = fails(*words)
        assert message.startswith(f"sfcnn {group}: error: ")
    assert all(name in fails(group) for name in names)


def test_a_fault_can_be_traced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A ValueError may be a fault of ours, which looks like a mistake of the user's."""

    def fail(prog: str, arguments: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr("sfcnn.cli.filters.run", fail)
    assert main(["filters"]) == 2
    assert capsys.readouterr().err == "sfcnn: error: a fault\n"
    monkeypatch.setenv("SFCNN_TRACEBACK", "1")
    assert main(["filters"]) == 2
    traced = capsys.readouterr().err
    assert traced.startswith("Traceback")
    assert "test_main.py" in traced
    assert traced.endswith("sfcnn: error: a fault\n")


def test_the_installed_command_runs() -> None:
    command = [str(Path(sys.executable).with_name("sfcnn")), "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"sfcnn {__version__}\n"
