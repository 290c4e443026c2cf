from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli.conftest import Fails, files
from sfcnn import LiftConv2d
from sfcnn.cli import main
from sfcnn.models import mnist_baseline

PNG = b"\x89PNG\r\n\x1a\n"


def test_draws_atoms_and_a_random_filter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filters", "--basis", "paper", "--kernel-size", "5", "--orientations", "6"]) == 0
    assert files() == {"filters/atoms.png", "filters/filter.png"}
    assert all(Path(name).read_bytes().startswith(PNG) for name in files())
    assert capsys.readouterr().out == "wrote filters/atoms.png\nwrote filters/filter.png\n"


def test_draws_a_learned_filter() -> None:
    torch.save(mnist_baseline(4).state_dict(), "net.pt")
    assert main(["filters", "--weights", "net.pt", "--out", "first"]) == 0
    options = ["--layer", "features.1.0.weight", "--channel", "3", "2", "--relative", "1", "--out", "second"]
    assert main(["filters", "--weights", "net.pt", *options]) == 0
    first, second = (Path(name, "filter.png").read_bytes() for name in ("first", "second"))
    assert first != second


def test_draws_with_the_basis_of_the_weights(fails: Fails) -> None:
    """The same weights are other filters in another basis."""
    state = LiftConv2d(1, 1, 5, 4, basis="averaged").state_dict()
    torch.save(state, "new.pt")
    torch.save({"weight": state["weight"]}, "old.pt")
    commands = {
        "new": "--weights new.pt",
        "typed": "--weights new.pt --basis averaged",
        "old": "--weights old.pt --basis averaged",
        "guessed": "--weights old.pt",
    }
    for name, options in commands.items():
        assert main(["filters", *options.split(), "--out", name]) == 0
    for picture in ("atoms.png", "filter.png"):
        new, typed, old, guessed = (Path(name, picture).read_bytes() for name in commands)
        assert new == typed == old != guessed
    message = fails("filters", "--weights", "new.pt", "--basis", "bandlimited", "--out", "other")
    assert "'weight' has the basis 'averaged' of 5×5 kernels, not 'bandlimited': leave out --basis" in message
    assert not Path("other").exists()


def test_draws_a_filter_of_a_run(make_run: Callable[..., Path]) -> None:
    weights = str(make_run() / "best.safetensors")
    assert main(["filters", "--weights", weights, "--layer", "features.1.0.weight"]) == 0
    assert Path("filters/filter.png").read_bytes().startswith(PNG)


def test_keeps_existing_pictures_unless_told(fails: Fails) -> None:
    Path("filters").mkdir()
    mine = Path("filters/filter.png")
    mine.write_text("my own")
    assert "filters/filter.png exists: choose another name or pass --overwrite" in fails(
        "filters", "--kernel-size", "3"
    )
    assert mine.read_text() == "my own"
    assert main(["filters", "--kernel-size", "3", "--overwrite"]) == 0
    assert mine.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernel-size", "4"], "kernel_size must be an odd whole number (1, 3, 5, …), got 4"),
        (["--basis", "fine"], "unknown basis preset 'fine', choose one of"),
        (["--orientations", "-3"], "at least 1, got -3"),
        (["--weights", "missing.pt"], "weights file missing.pt does not exist"),
        (["--out", "blocked/here"], "blocked"),
        (["--seed", "x"], "invalid int value: 'x'"),
        (["--colour"], "unrecognized arguments: --colour (see"),
        (["--kernel_size", "9"], "unrecognized arguments: --kernel_size 9; did you mean --kernel-size?"),
    ],
)
def test_a_mistake_is_one_line(options: list[str], message: str, fails: Fails) -> None:
    Path("blocked").write_text("a file, not a directory")
    assert message in fails("filters", *options)
