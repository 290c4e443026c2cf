"""`sfcnn export`: the network of a run as a file that needs no sfcnn."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sfcnn.cli.parser import Parser

if TYPE_CHECKING:
    from torch import Tensor, nn

#: What a format's files are called.
SUFFIXES = {"torch": ".pt2", "onnx": ".onnx"}


def parser() -> Parser:
    """Options of `sfcnn export`."""
    parser = Parser(
        "sfcnn export",
        description="Write the best network of a run as a file that needs no sfcnn: for PyTorch (.pt2, a program of\n"
        "torch.export) or for onnxruntime and others (.onnx). It takes images (batch, 1, height, width) of any number\n"
        "and size, prepared as in training, and returns logits. Before the file is put in its place, it was run and\n"
        "compared with the network.",
        examples=(
            "sfcnn export runs/small --format onnx",
            "sfcnn export isbi2012 --format torch --out membranes.pt2",
        ),
    )
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN",
        help="directory that `sfcnn train` or `sfcnn segment train` made, or isbi2012, which comes with sfcnn",
    )
    parser.add_argument("--format", choices=SUFFIXES, required=True, help="of the file")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write (default: RUN/model.pt2 or .onnx)")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Load the network and write it."""
    from sfcnn.files import check_output
    from sfcnn.pretrained import find_run

    suffix = SUFFIXES[arguments.format]
    directory = find_run(arguments.run)
    if arguments.out is None and directory != arguments.run:
        raise ValueError(f"{arguments.run} comes with sfcnn, where nothing can be added: pass --out FILE")
    out: Path = arguments.out or directory / f"model{suffix}"
    if out.suffix != suffix:
        raise ValueError(f"output {out} must end in {suffix} for the format {arguments.format}")
    check_output(out, overwrite=arguments.overwrite)
    net, example = _load(directory)
    write = _write_program if arguments.format == "torch" else _write_onnx
    write(net, example, out, arguments.overwrite)
    print(f"wrote {out}")


def _load(directory: Path) -> "tuple[nn.Module, Tensor]":
    """The network of a run, which its settings tell the kind of, and images to try it on."""
    from sfcnn.training.settings import load_yaml

    settings = directory / "config.yaml"
    if settings.is_file() and "crops" in load_yaml(settings):
        from sfcnn.training.membrane_runs import load_membrane_run

        membranes, unet = load_membrane_run(directory)
        # A few pixels on the coarsest level, and some left after the margin is cut off.
        unit = 2 ** (membranes.model.levels - 1)
        return unet, _images(unit * max(4, 2 * membranes.crops.margin // unit + 2))
    from sfcnn.training.runs import load_run

    return load_run(directory)[1], _images(28)


def _images(side: int) -> "Tensor":
    import torch

    return torch.rand(2, 1, side, side, generator=torch.Generator().manual_seed(0))


def _write_program(net: "nn.Module", example: "Tensor", path: Path, overwrite: bool) -> None:
    import torch

    from sfcnn.export import to_program
    from sfcnn.files import new_file

    program = to_program(net, example)
    with new_file(path, overwrite=overwrite) as temporary:
        torch.export.save(program, temporary)


def _write_onnx(net: "nn.Module", example: "Tensor", path: Path, overwrite: bool) -> None:
    from sfcnn.export import to_onnx

    to_onnx(net, example, path, overwrite=overwrite)
