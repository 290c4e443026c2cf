"""`sfcnn export`: write the network of a run to a file that runs without sfcnn."""

import argparse
import json
from pathlib import Path

from sfcnn.cli.parser import Parser, add_overwrite

#: File suffix of each format.
SUFFIXES = {"torch": ".pt2", "onnx": ".onnx"}


def parser(prog: str) -> Parser:
    """Options of `sfcnn export`."""
    parser = Parser(
        prog,
        description="Write the best network of a run to a file that runs without sfcnn: for PyTorch (.pt2, a\n"
        "torch.export program) or for ONNX runtimes (.onnx). It takes images (batch, channels, height, width) of any\n"
        "batch size, height and width, prepared as in training, and returns logits; its metadata contains the class\n"
        "names. The exported file is run and compared with the original network before it is saved.",
        examples=(
            f"{prog} runs/small --format onnx",
            f"{prog} isbi2012 --format torch --out membranes.pt2",
        ),
    )
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN",
        help="directory created by `classify train` or `segment train`, or a pretrained network such as isbi2012",
    )
    parser.add_argument("--format", choices=SUFFIXES, required=True, help="format of the file")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write (default: RUN/model.pt2 or .onnx)")
    add_overwrite(parser)
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Load the network and write it."""
    from sfcnn.export import save_program, to_onnx
    from sfcnn.io.files import check_output
    from sfcnn.pretrained import find_run, load

    suffix = SUFFIXES[arguments.format]
    directory = find_run(arguments.run)
    if arguments.out is None and directory != arguments.run:
        raise ValueError(f"{arguments.run} is shipped with sfcnn and cannot be written to: pass --out FILE")
    out: Path = arguments.out or directory / f"model{suffix}"
    if out.suffix != suffix:
        raise ValueError(f"output {out} must end in {suffix} for the format {arguments.format}")
    check_output(out, overwrite=arguments.overwrite)
    network = load(directory, device="cpu")
    metadata = {"task": network.config.task, "classes": json.dumps(network.classes)}
    write = save_program if arguments.format == "torch" else to_onnx
    write(network.network, network.example_images(), out, overwrite=arguments.overwrite, metadata=metadata)
    print(f"wrote {out}")
