import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from export_checks import assert_same, onnx_result, trained
from export_networks import SMALL
from torch import nn
from torch.utils._pytree import tree_leaves

from sfcnn import GroupConv2d, LiftConv2d, OrientationPool, OrientationReadout
from sfcnn.export import onnx_file, to_onnx
from sfcnn.io.files import OutputExistsError
from sfcnn.models import ResNetSizes, membrane_unet, mnist_baseline, steerable_resnet

NETWORKS: dict[str, tuple[Any, tuple[int, ...], list[tuple[int, ...]], str, int]] = {
    "classifier": (
        lambda: mnist_baseline(4, SMALL),
        (1, 1, 12, 12),
        [(5, 1, 28, 28), (2, 1, 10, 17)],
        "input",
        1,
    ),
    "resnet": (
        lambda: steerable_resnet(ResNetSizes((2, 3), (1, 1), stem_kernel_size=5, stem_halvings=1), 4),
        (2, 1, 28, 28),
        [(1, 1, 33, 30), (3, 1, 64, 48)],
        "input",
        1,
    ),
    "unet": (
        lambda: membrane_unet(3, channels=2, levels=2, input_kernel_size=5, kernel_size=3, crop=1),
        (2, 1, 12, 16),
        [(1, 1, 24, 12), (3, 1, 10, 8)],
        "images",
        1,
    ),
    "all padding modes and a read-out": (
        lambda: nn.Sequential(
            LiftConv2d(1, 2, 3, 4, padding=1, padding_mode="circular"),
            GroupConv2d(2, 2, 3, 4, padding=1, padding_mode="replicate", stride=2),
            GroupConv2d(2, 2, 3, 4, padding="same", dilation=2, padding_mode="reflect"),
            OrientationReadout("soft", temperature=0.1),
        ),
        (2, 1, 12, 12),
        [(1, 1, 15, 10)],
        "input",
        2,
    ),
}


def sizes(value: Any) -> list[Any]:
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize("name", NETWORKS)
def test_files_take_other_batches_and_sizes(name: str, tmp_path: Path) -> None:
    make, example, others, argument, outputs = NETWORKS[name]
    net = trained(make())
    path = tmp_path / "net.onnx"
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="exists"):
        to_onnx(net, torch.randn(example), path)
    assert path.read_text() == "mine"
    to_onnx(net, torch.randn(example), str(path), overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
    for shape in (example, *others):
        images = torch.randn(shape)
        assert_same(onnx_result(path, images), tree_leaves(net(images)))
    graph = onnx.load(path).graph
    assert [(value.name, sizes(value)) for value in graph.input] == [(argument, ["batch", 1, "height", "width"])]
    names = ["output"] if outputs == 1 else [f"output_{number}" for number in range(outputs)]
    assert [value.name for value in graph.output] == names
    for value in graph.output:  # sizes of the output are told by those of the input
        assert set(re.findall(r"[a-z]\w*", " ".join(map(str, sizes(value))))) <= {"batch", "height", "width"}


def test_nothing_is_written_that_does_not_run_or_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = trained(nn.Sequential(LiftConv2d(1, 2, 3, 4), OrientationPool()))
    path, images = tmp_path / "net.onnx", torch.randn(2, 1, 6, 6)
    with pytest.raises(ValueError, match="training mode"):
        to_onnx(small.train(), images, path)
    with pytest.raises(ValueError, match=r"onnxruntime cannot run the network: .*Conv"):
        to_onnx(small.eval().double(), images.double(), path)
    small.float()
    with monkeypatch.context() as patch:
        patch.setattr(onnx_file, "_LARGEST", 10)
        with pytest.raises(ValueError, match="an ONNX file holds at most 2 GB"):
            to_onnx(small, images, path)
    honest = onnx_file._run
    monkeypatch.setattr(onnx_file, "_run", lambda *given: [1.001 * value for value in honest(*given)])
    with pytest.raises(ValueError, match="output 0 of the ONNX file differs from the model's"):
        to_onnx(small, images, path)
    assert list(tmp_path.iterdir()) == []
