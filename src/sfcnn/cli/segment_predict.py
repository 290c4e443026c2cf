"""`sfcnn segment predict`: membranes and cells in images of any size."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.console import Report
    from sfcnn.models.unet import UNet


def add(actions: Any) -> None:
    """Add `predict` and its options to the actions of `sfcnn segment`."""
    predict = actions.add_parser(
        "predict",
        help="find membranes and cells in images",
        description="Find membranes and cells with the best network of a run. For each image or stack NAME two TIFF\n"
        "files of its size are written: NAME-membranes.tif, probabilities as floats from 0 to 1, and NAME-cells.tif,\n"
        "a number for each cell. Images may have any size: they are taken tile by tile, and with the default halo\n"
        "tiles leave no trace.",
        examples=(
            "sfcnn segment predict runs/em volume.tif --out segmented",
            "sfcnn segment predict runs/em slices/ --out segmented --tile 256 --average all --no-cells",
        ),
    )
    predict.add_argument("run", type=Path, metavar="RUN", help="directory that `sfcnn segment train` made")
    predict.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE", help="TIFF stacks, images, or folders of them"
    )
    predict.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the results")
    predict.add_argument("--tile", type=int, default=512, metavar="N", help="side of a tile (default 512)")
    predict.add_argument(
        "--halo", type=int, metavar="N", help="pixels around a tile (default: as far as the network looks)"
    )
    predict.add_argument(
        "--average", default="none", help="average over turned and mirrored images: none (default), rotations or all"
    )
    predict.add_argument("--no-cells", action="store_true", help="write membranes only")
    predict.add_argument("--overwrite", action="store_true", help="replace files that exist")
    predict.set_defaults(carry_out=_predict)


def _predict(arguments: argparse.Namespace) -> None:
    """Read everything, then predict and write image by image."""
    from sfcnn.console import make_console, progress
    from sfcnn.data.images import image_files
    from sfcnn.data.stacks import as_fraction, read_image, read_stack, write_labels, write_stack
    from sfcnn.files import check_output
    from sfcnn.segmentation.cells import cells
    from sfcnn.training.membrane_runs import load_membrane_run

    config, net = load_membrane_run(arguments.run)
    files = image_files(arguments.images)
    endings = ("membranes",) if arguments.no_cells else ("membranes", "cells")
    outputs = {file: [arguments.out / f"{file.stem}-{ending}.tif" for ending in endings] for file in files}
    names = [path for paths in outputs.values() for path in paths]
    if len(set(names)) < len(names):
        raise ValueError("two of the images have the same name: predict them into different directories")
    for path in names:
        check_output(path, overwrite=arguments.overwrite)
    readers = {file: read_stack if file.suffix.lower() in (".tif", ".tiff") else read_image for file in files}
    stacks = {file: as_fraction(read(file), file) for file, read in readers.items()}
    console = make_console()
    with progress(console) as report:
        for file, stack in stacks.items():
            probabilities = _probabilities(net, stack, config.crops.margin, arguments, file.name, report)
            write_stack(outputs[file][0], probabilities, overwrite=arguments.overwrite)
            if not arguments.no_cells:
                write_labels(outputs[file][1], cells(probabilities), overwrite=arguments.overwrite)
    for path in names:
        console.print(f"wrote {path}")


def _probabilities(
    net: "UNet", stack: Any, margin: int, arguments: argparse.Namespace, name: str, report: "Report"
) -> Any:
    """Probabilities of membrane in every slice of a stack (Z, H, W), or in an image (H, W)."""
    import numpy as np
    import torch

    from sfcnn.segmentation.tiles import predict_image

    slices = stack if stack.ndim == 3 else stack[None]
    found = [
        predict_image(
            net,
            torch.from_numpy(np.ascontiguousarray(image))[None],
            average=arguments.average,
            tile=arguments.tile,
            margin=margin,
            halo=arguments.halo,
            progress=lambda done, number=number: report(name, (number + done) / len(slices)),  # type: ignore[misc]
        )[0].numpy()
        for number, image in enumerate(slices)
    ]
    return np.stack(found).reshape(stack.shape)
