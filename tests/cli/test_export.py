import json
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest
import torch

from cli.conftest import Fails, files
from sfcnn.cli import main
from sfcnn.io.settings import make_settings, write_settings
from sfcnn.io.state import write_state
from sfcnn.pretrained import load
from sfcnn.segmentation.config import SegmentationConfig
from sfcnn.segmentation.network import build_network

MakeRun = Callable[..., Path]


@pytest.fixture
def membrane_run() -> Path:
    """A run as `sfcnn segment train` leaves it, of a small network that has learned nothing."""
    model = {"orientations": 3, "channels": 1, "levels": 3, "input_kernel_size": 3, "kernel_size": 3}
    images = {"classes": ["ground", "cell", "nucleus"], "channels": 3}
    values = {"model": model, "crops": {"size": 16, "margin": 12}, "images": images}
    config = make_settings(SegmentationConfig, values)
    directory = Path("em")
    write_settings(directory / "config.yaml", config, task="segmentation")
    write_state(directory / "best.safetensors", {"model": build_network(config).state_dict()})
    return directory


@torch.no_grad()
def test_a_classifier_as_a_program(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    assert main(["export", str(run), "--format", "torch"]) == 0
    assert capsys.readouterr().out == "wrote run/model.pt2\n"
    images = torch.rand(3, 1, 28, 30)
    texts = {"classes": "", "task": ""}
    found = torch.export.load("run/model.pt2", extra_files=texts).module()(images)
    torch.testing.assert_close(found, load(run, "cpu").network(images), rtol=0, atol=1e-5)
    assert texts["task"] == "classification"
    assert json.loads(texts["classes"]) == [str(digit) for digit in range(10)]


@torch.no_grad()
def test_membranes_as_an_onnx_file(membrane_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(membrane_run), "--format", "onnx", "--out", "new/net.onnx"]) == 0
    assert tuple(capfd.readouterr()) == ("wrote new/net.onnx\n", "")
    images = torch.rand(1, 3, 36, 32)
    session = onnxruntime.InferenceSession("new/net.onnx")
    (found,) = session.run(None, {"images": images.numpy()})
    expected = load(membrane_run, "cpu").network(images)
    assert found.shape == (1, 3, 12, 8)
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == ["ground", "cell", "nucleus"]
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
