"""Export a model as an ONNX file, which runs without Python and PyTorch."""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sfcnn.export.agreement import as_inputs, check_agreement, eager_outputs
from sfcnn.export.plain import unwrap
from sfcnn.export.program import AXES, first_line, symbols, to_program
from sfcnn.io.files import check_output, new_file

#: Largest single-file model, in bytes: the format stores sizes in 31 bits.
_LARGEST = 2**31 - 2**20


def to_onnx(
    model: nn.Module,
    example: Tensor | Sequence[Tensor],
    path: Path | str,
    *,
    overwrite: bool = False,
    dynamic: Sequence[str] = AXES,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a model as an ONNX file, after checking that onnxruntime reproduces its output on the example.

    Inputs are named after the arguments of the model's `forward`; the output is "output", or "output_0", "output_1" …
    Dynamic axes are named "batch", "height" and "width".

    Args:
        model: in eval mode; see `to_plain` for what it may contain. onnxruntime computes convolutions in float32.
        example, dynamic: as for `to_program`.
        path: path of the file.
        overwrite: replace an existing file.
        metadata: strings to store in the file, such as the names of classes.
    """
    import onnx  # noqa: F401  (missing packages are reported before minutes of work)
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401

    path = Path(path)
    check_output(path, overwrite=overwrite)
    model, inputs = unwrap(model), as_inputs(example)
    program = to_program(model, inputs, dynamic=dynamic)
    size = sum(value.nbytes for value in program.state_dict.values())
    if size > _LARGEST:
        raise ValueError(
            f"the filters in all orientations are {size / 1e9:.1f} GB, and an ONNX file holds at most 2 GB: "
            "export a torch program, or use fewer orientations or channels"
        )
    expected = eager_outputs(model, inputs)
    with new_file(path, overwrite=overwrite) as temporary:
        _write(program, len(expected), temporary)
        _finish(temporary, program, metadata or {})
        check_agreement(model, expected, _run(temporary, inputs), "the ONNX file")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's messages about missing packages and future changes."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _write(program: torch.export.ExportedProgram, outputs: int, path: Path) -> None:
    names = ["output"] if outputs == 1 else [f"output_{number}" for number in range(outputs)]
    try:
        with _quiet():
            torch.onnx.export(program, f=path, output_names=names, external_data=False, verbose=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise ValueError(f"the network cannot be converted to ONNX: {first_line(error)}") from error


def _finish(path: Path, program: torch.export.ExportedProgram, metadata: Mapping[str, str]) -> None:
    """Give dynamic sizes descriptive names, add the metadata, and check the file."""
    import onnx

    names: dict[str, str] = {}
    for axes in symbols(program):
        for name, size in axes.items():
            if not isinstance(size, int) and str(size) not in names:
                taken = sum(other.startswith(name) for other in names.values())
                names[str(size)] = f"{name}_{taken}" if taken else name
    file = onnx.load(path)
    for value in (*file.graph.input, *file.graph.output, *file.graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), axis.dim_param)
    onnx.helper.set_model_props(file, dict(metadata))
    try:
        onnx.checker.check_model(file, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"the network cannot be converted to valid ONNX: {first_line(error)}") from error
    onnx.save(file, path)


def _run(path: Path, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of onnxruntime for the inputs."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        values: list[Any] = session.run(
            None, {name: value.detach().cpu().numpy() for name, value in zip(names, inputs, strict=True)}
        )
    except Exception as error:
        raise ValueError(f"onnxruntime cannot run the network: {first_line(error)}") from error
    return [torch.from_numpy(value) for value in values]
