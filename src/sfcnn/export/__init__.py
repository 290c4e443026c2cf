"""Export networks that run without sfcnn: as plain PyTorch layers, as a `torch.export` program, as an ONNX file."""

from sfcnn.export.onnx_file import to_onnx
from sfcnn.export.plain import to_plain
from sfcnn.export.program import save_program, to_program

__all__ = ["save_program", "to_onnx", "to_plain", "to_program"]
