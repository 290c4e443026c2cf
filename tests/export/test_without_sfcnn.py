"""What was exported runs where sfcnn cannot be imported."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from export_checks import trained
from export_networks import Field
from torch.utils._pytree import tree_leaves

from sfcnn.export import to_onnx, to_plain, to_program

ELSEWHERE = """
import sys
sys.modules["sfcnn"] = None  # import sfcnn fails
try:
    import sfcnn
except ImportError:
    pass
else:
    raise AssertionError("sfcnn can be imported")

import numpy as np
import onnxruntime
images = np.load("images.npy")
session = onnxruntime.InferenceSession("net.onnx")
found = {"onnx": session.run(None, {"images": images})}
assert "torch" not in sys.modules

import torch
images = torch.from_numpy(images)
for name in ("plain", "copied"):
    found[name] = torch.load(f"{name}.pt", weights_only=False)(images)
found["program"] = torch.export.load("net.pt2").module()(images)
expected = torch.load("expected.pt")
for name, outputs in found.items():
    assert len(outputs) == len(expected), name
    for have, want in zip(outputs, expected):
        assert (torch.as_tensor(have) - want).abs().max() <= 1e-5 * want.abs().max(), name
assert not any(name.startswith("sfcnn.") for name in sys.modules)
print("all agree")
"""


def test_files_load_and_run(tmp_path: Path) -> None:
    net, images = trained(Field()), torch.randn(2, 1, 14, 12)
    example = torch.randn(1, 1, 12, 12)
    plain = to_plain(net)
    torch.save(plain, tmp_path / "plain.pt")
    again = to_plain(trained(Field()))  # another network gets the weights by its state dict
    again.load_state_dict(plain.state_dict())
    torch.save(again, tmp_path / "copied.pt")
    torch.export.save(to_program(net, example), tmp_path / "net.pt2")
    to_onnx(net, example, tmp_path / "net.onnx")
    with torch.no_grad():
        torch.save(tree_leaves(net(images)), tmp_path / "expected.pt")
    np.save(tmp_path / "images.npy", images.numpy())
    result = subprocess.run([sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout == "all agree\n", result.stderr
