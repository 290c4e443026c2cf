from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest
import torch

from cli.conftest import Fails, files
from sfcnn.cli import main
from sfcnn.training.checkpoint import write_state
from sfcnn.training.membrane_runs import MembraneConfig, build_unet, load_membrane_run
from sfcnn.training.runs import load_run
from sfcnn.training.settings import make_settings, write_settings

MakeRun = Callable[..., Path]


@pytest.fixture
def membrane_run() -> Path:
    """A run as `sfcnn segment train` leaves it, of a small network that has learned nothing."""
    model = {"orientations": 3, "channels": 1, "levels": 3, "input_kernel_size": 3, "kernel_size": 3}
    config = make_settings(MembraneConfig, {"model": model, "crops": {"size": 16, "margin": 12}})
    directory = Path("em")
    write_settings(directory / "config.yaml", config)
    net = build_unet(config.model, config.crops.margin)
    write_state(directory / "best.safetensors", {"model": net.state_dict()})
    return directory


@torch.no_grad()
def test_a_classifier_as_a_program(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    assert main(["export", str(run), "--format", "torch"]) == 0
    assert capsys.readouterr().out == "wrote run/model.pt2\n"
    images = torch.rand(3, 1, 28, 30)
    found = torch.export.load("run/model.pt2").module()(images)
    torch.testing.assert_close(found, load_run(run)[1](images), rtol=0, atol=1e-5)


@torch.no_grad()
def test_membranes_as_an_onnx_file(membrane_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(membrane_run), "--format", "onnx", "--out", "new/net.onnx"]) == 0
    assert tuple(capfd.readouterr()) == ("wrote new/net.onnx\n", "")
    images = torch.rand(1, 1, 36, 32)
    (found,) = onnxruntime.InferenceSession("new/net.onnx").run(None, {"images": images.numpy()})
    expected = load_membrane_run(membrane_run)[1](images)
    assert found.shape == (1, 1, 12, 8)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=1e-5)


def test_a_mistake_is_one_line_and_nothing_is_written(make_run: MakeRun, fails: Fails) -> None:
    run = str(make_run())
    Path("mine.onnx").write_text("mine")
    assert "no run elsewhere" in fails("export", "elsewhere", "--format", "onnx")
    assert "must end in .onnx for the format onnx" in fails("export", run, "--format", "onnx", "--out", "net.pt2")
    assert "must end in .pt2 for the format torch" in fails("export", run, "--format", "torch", "--out", "net")
    assert "mine.onnx exists" in fails("export", run, "--format", "onnx", "--out", "mine.onnx")
    assert "invalid choice: 'caffe'" in fails("export", run, "--format", "caffe")
    assert "arguments are required: --format" in fails("export", run)
    Path(run, "best.safetensors").unlink()
    assert "has no best.safetensors yet" in fails("export", run, "--format", "torch")
    assert Path("mine.onnx").read_text() == "mine"
    assert "run/model.pt2" not in files()
