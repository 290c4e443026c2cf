"""Export a model as a `torch.export` program, for any batch and image size."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram

from sfcnn.export.agreement import as_inputs, check_agreement, eager_outputs, outputs_of
from sfcnn.export.plain import to_plain, unwrap
from sfcnn.io.files import check_output, new_file

#: The sizes that can be dynamic in a program.
AXES = ("batch", "height", "width")


def check_axes(dynamic: Sequence[str]) -> None:
    """Raise unless all names are in AXES."""
    for name in dynamic:
        if name not in AXES:
            raise ValueError(f"unknown axis {name!r}, choose from {list(AXES)}")


def axes_of(tensor: Tensor) -> dict[str, int]:
    """The axes of batch, height and width in images (B, C, H, W), features (B, C, Λ, H, W) and others (B, …)."""
    if tensor.dim() in (4, 5):
        return {"batch": 0, "height": tensor.dim() - 2, "width": tensor.dim() - 1}
    return {"batch": 0} if tensor.dim() else {}


def symbols(program: ExportedProgram) -> list[dict[str, Any]]:
    """Batch, height and width of each input of a program: symbols if dynamic, numbers if fixed."""
    names = set(program.graph_signature.user_inputs)
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    return [{name: value.shape[axis] for name, axis in axes_of(value).items()} for value in values]


def to_program(
    model: nn.Module, example: Tensor | Sequence[Tensor], *, dynamic: Sequence[str] = AXES
) -> ExportedProgram:
    """The plain network of a model as a `torch.export` program, which `torch.export.save` writes.

    The program takes any batch, height and width that the network takes, and checks them itself: a U-Net whose maps are
    halved twice and doubled again rejects a height that is not divisible by 4.

    Args:
        model: in eval mode; see `to_plain` for what it may contain.
        example: input of the model, such as images (B, C, H, W), or several tensors. Images must be large enough that
            every map in the network has more than one pixel in height and width; otherwise sizes become fixed.
        dynamic: the dynamic sizes, some of "batch", "height", "width". Pass fewer for a network that works for one
            size only.

    >>> from sfcnn.models import mnist_baseline
    >>> program = to_program(mnist_baseline(orientations=4).eval(), torch.rand(2, 1, 28, 28))
    >>> program.module()(torch.rand(5, 1, 32, 40)).shape
    torch.Size([5, 10])
    """
    check_axes(dynamic)
    model, inputs = unwrap(model), as_inputs(example)
    plain = to_plain(model)
    expected = eager_outputs(model, inputs)
    program = _export(plain, inputs, dynamic)
    if not _takes_twice_the_sizes(program, inputs, dynamic):
        raise ValueError(
            f"the network accepts no other {', '.join(dynamic)} than the example's: "
            "pass a larger example, or remove the fixed sizes from dynamic"
        )
    with torch.no_grad():
        check_agreement(model, expected, outputs_of(program.module()(*inputs)), "the program")
    return program


def save_program(
    model: nn.Module,
    example: Tensor | Sequence[Tensor],
    path: Path | str,
    *,
    overwrite: bool = False,
    dynamic: Sequence[str] = AXES,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write `to_program` atomically to a file that `torch.export.load` reads.

    Metadata are strings to store in the file, such as the names of classes; `torch.export.load(path,
    extra_files={name: ""})` reads them back by name.
    """
    check_output(Path(path), overwrite=overwrite)
    program = to_program(model, example, dynamic=dynamic)
    with new_file(Path(path), overwrite=overwrite) as temporary:
        torch.export.save(program, temporary, extra_files=dict(metadata or {}))


def _export(plain: nn.Module, inputs: tuple[Tensor, ...], dynamic: Sequence[str]) -> ExportedProgram:
    shapes = tuple({axis: Dim.AUTO for name, axis in axes_of(x).items() if name in dynamic} for x in inputs)
    if "batch" in dynamic and all(x.dim() and len(x) == 1 for x in inputs):
        inputs = tuple(torch.cat([x, x]) for x in inputs)  # a size of 1 would become fixed
    try:
        with torch.no_grad():
            return torch.export.export(plain, inputs, dynamic_shapes=shapes)
    except Exception as error:
        raise ValueError(f"torch.export cannot export the network: {first_line(error)}") from error


def _takes_twice_the_sizes(program: ExportedProgram, inputs: tuple[Tensor, ...], dynamic: Sequence[str]) -> bool:
    """Whether a program also accepts inputs of twice the dynamic sizes. Only shapes are computed.

    `torch.export` treats sizes as dynamic even if the network accepts only one value or a few.
    """
    module = program.module()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        larger = []
        for x in inputs:
            open_axes = {axis for name, axis in axes_of(x).items() if name in dynamic}
            sizes = [(2 if axis in open_axes else 1) * size for axis, size in enumerate(x.shape)]
            larger.append(torch.empty(sizes, dtype=x.dtype, device=x.device))
        try:
            module(*larger)
        except Exception:
            return False
    return True


def first_line(error: Exception) -> str:
    """The first line of an error message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
