"""A model as a program of `torch.export`, for images of any number and size."""

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

#: The sizes that a program can leave open.
AXES = ("batch", "height", "width")


def check_axes(dynamic: Sequence[str]) -> None:
    """Raise unless all names are those of axes."""
    for name in dynamic:
        if name not in AXES:
            raise ValueError(f"unknown axis {name!r}, choose from {list(AXES)}")


def axes_of(tensor: Tensor) -> dict[str, int]:
    """Where images (B, C, H, W), features (B, C, Λ, H, W) and others (B, …) have their batch, height and width."""
    if tensor.dim() in (4, 5):
        return {"batch": 0, "height": tensor.dim() - 2, "width": tensor.dim() - 1}
    return {"batch": 0} if tensor.dim() else {}


def symbols(program: ExportedProgram) -> list[dict[str, Any]]:
    """Batch, height and width of each input of a program, as they stand in it: symbols, or numbers that are fixed."""
    names = set(program.graph_signature.user_inputs)
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    return [{name: value.shape[axis] for name, axis in axes_of(value).items()} for value in values]


def to_program(
    model: nn.Module, example: Tensor | Sequence[Tensor], *, dynamic: Sequence[str] = AXES
) -> ExportedProgram:
    """The plain network of a model as a `torch.export` program, which `torch.export.save` writes.

    The program takes any batch, height and width that the network takes. It checks them itself: a U-Net whose maps are
    halved twice and doubled again refuses a height that 4 does not divide.

    Args:
        model: in eval mode; see `to_plain` for what it may contain.
        example: what the model takes, such as images (B, C, H, W), or several tensors. Sizes are taken as open only if
            no map in the network has a single pixel in height or width, so images must not be too small.
        dynamic: the sizes to leave open, some of "batch", "height", "width". Fewer are needed for a network that
            works for one size only.

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
            f"the network takes no other {', '.join(dynamic)} than the example's: "
            "pass a larger example, or leave out of dynamic what is fixed"
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
    """Write `to_program` to a file that `torch.export.load` reads, whole or not at all.

    Metadata are texts to keep in the file, such as the names of classes: `torch.export.load(path, extra_files={name:
    ""})` fills in the one of that name.
    """
    check_output(Path(path), overwrite=overwrite)
    program = to_program(model, example, dynamic=dynamic)
    with new_file(Path(path), overwrite=overwrite) as temporary:
        torch.export.save(program, temporary, extra_files=dict(metadata or {}))


def _export(plain: nn.Module, inputs: tuple[Tensor, ...], dynamic: Sequence[str]) -> ExportedProgram:
    shapes = tuple({axis: Dim.AUTO for name, axis in axes_of(x).items() if name in dynamic} for x in inputs)
    if "batch" in dynamic and all(x.dim() and len(x) == 1 for x in inputs):
        inputs = tuple(torch.cat([x, x]) for x in inputs)  # a size of 1 would be taken as fixed
    try:
        with torch.no_grad():
            return torch.export.export(plain, inputs, dynamic_shapes=shapes)
    except Exception as error:
        raise ValueError(f"torch.export cannot make a program of the network: {first_line(error)}") from error


def _takes_twice_the_sizes(program: ExportedProgram, inputs: tuple[Tensor, ...], dynamic: Sequence[str]) -> bool:
    """Whether a program also takes inputs of twice the open sizes. Only shapes are computed.

    Sizes count as open for `torch.export` even if the network needs one value of them, or few.
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
    """What an error says, as one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
