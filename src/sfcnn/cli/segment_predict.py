"""`sfcnn segment predict`: membranes and cells in images of any size."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.console import Report
    from sfcnn.models.unet import UNet
    from sfcnn.segmentation.forest import Forest
    from sfcnn.training.membrane_runs import MembraneConfig


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
            "sfcnn segment predict isbi2012 volume.tif --out segmented",
            "sfcnn segment predict runs/em slices/ --out segmented --tile 256 --average all --no-cells",
        ),
    )
    predict.add_argument(
        "run",
        metavar="RUN",
        help="directory that `sfcnn segment train` made, or isbi2012, the network that comes with sfcnn",
    )
    predict.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE", help="TIFF stacks, images, or folders of them"
    )
    predict.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the results")
    predict.add_argument(
        "--tile", type=int, metavar="N", help="side of a tile (default: what a window of about 2 GB has room for)"
    )
    predict.add_argument(
        "--halo", type=int, metavar="N", help="pixels around a tile (default: as far as the network looks)"
    )
    predict.add_argument(
        "--average", default="none", help="average over turned and mirrored images: none (default), rotations or all"
    )
    predict.add_argument(
        "--forest",
        type=Path,
        metavar="FOREST.safetensors",
        help="tell borders of cells by what `train-edges` has learned (default: RUN/edges.safetensors, if there)",
    )
    predict.add_argument("--no-cells", action="store_true", help="write membranes only")
    predict.add_argument("--overwrite", action="store_true", help="replace files that exist")
    predict.set_defaults(carry_out=_predict)


def _predict(arguments: argparse.Namespace) -> None:
    """Read everything, then predict and write image by image."""
    from sfcnn.console import make_console, progress
    from sfcnn.data.geometry import read_geometry
    from sfcnn.data.images import image_files
    from sfcnn.data.stacks import as_fraction, as_writable_labels, read_image, read_stack, write_stacks
    from sfcnn.files import check_output
    from sfcnn.pretrained import find_run
    from sfcnn.segmentation.forest import Forest
    from sfcnn.training.membrane_runs import load_membrane_run

    run = find_run(arguments.run)
    config, net = load_membrane_run(run)
    learned = arguments.forest or run / "edges.safetensors"
    forest = Forest.load(learned) if arguments.forest or learned.is_file() else None
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
            probabilities = _probabilities(config, net, stack, arguments, file.name, report)
            results = [probabilities]
            if not arguments.no_cells:
                results.append(as_writable_labels(_cells(probabilities, stack, forest), outputs[file][1]))
            written = dict(zip(outputs[file], results, strict=True))
            write_stacks(written, geometry=read_geometry(file), overwrite=arguments.overwrite)
    for path in names:
        console.print(f"wrote {path}")


def _cells(probabilities: Any, stack: Any, forest: "Forest | None") -> Any:
    """The cells, by a forest if there is one, with superpixels of the kind that it knows."""
    from sfcnn.segmentation.cells import CellsConfig, cells

    if forest is None:
        return cells(probabilities)
    return cells(probabilities, CellsConfig(forest.superpixels), forest, stack if forest.needs_raw else None)


def _probabilities(
    config: "MembraneConfig", net: "UNet", stack: Any, arguments: argparse.Namespace, name: str, report: "Report"
) -> Any:
    """Probabilities of membrane in every slice of a stack (Z, H, W), or in an image (H, W)."""
    import numpy as np
    import torch

    from sfcnn.segmentation.tiles import predict_image
    from sfcnn.training.membrane_runs import prepare

    slices = stack if stack.ndim == 3 else stack[None]
    found = [
        predict_image(
            net,
            prepare(config.images, torch.from_numpy(np.ascontiguousarray(image)))[None],
            average=arguments.average,
            tile=arguments.tile,
            margin=config.crops.margin,
            halo=arguments.halo,
            progress=lambda done, number=number: report(name, (number + done) / len(slices)),  # type: ignore[misc]
        )[0].numpy()
        for number, image in enumerate(slices)
    ]
    return np.stack(found).reshape(stack.shape)
