"""`sfcnn filters`: draw the atoms and one filter at all orientations."""

import argparse
from pathlib import Path

from sfcnn.cli.parser import Parser

_MOST_PICTURES = 360  # of one filter


def parser(prog: str) -> Parser:
    """Options of `sfcnn filters`."""
    parser = Parser(
        prog,
        description="Draw the table of atoms (the paper's figure 2) and a random or learned filter, rotated.",
        examples=(
            f"{prog} --basis paper --kernel-size 9",
            f"{prog} --weights runs/small/best.safetensors --layer features.1.0.weight --out pictures",
            f"{prog} --weights run/best.safetensors",
        ),
    )
    parser.add_argument(
        "--basis",
        help="bandlimited (default), averaged, paper or pixels; only for weights that do not record their basis",
    )
    parser.add_argument("--kernel-size", type=int, help="side of the grid, odd (default 9, or that of the weights)")
    parser.add_argument(
        "--orientations", type=int, help="number of rotations to draw (default 16, or that of the weights)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random filter (default 0)")
    parser.add_argument(
        "--weights", type=Path, help="draw a learned filter from this state dict (.safetensors, or torch.save)"
    )
    parser.add_argument("--layer", help="name of its weight in the state dict (default: the first lifting layer)")
    parser.add_argument(
        "--channel", type=int, nargs=2, default=(0, 0), metavar=("OUT", "IN"), help="which filter (default 0 0)"
    )
    parser.add_argument("--relative", type=int, default=0, help="relative orientation in a group layer (default 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("filters"), help="directory for the pictures (default filters)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing pictures")
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Draw and write both pictures."""
    import torch

    from sfcnn.harmonics import resolve_basis
    from sfcnn.io.files import check_output
    from sfcnn.pictures import atoms_table, save_figure, steered_filter
    from sfcnn.randomness import check_seed
    from sfcnn.weights import learned_filter, load_weights

    check_seed(arguments.seed)
    if (arguments.orientations or 0) > _MOST_PICTURES:
        raise ValueError(f"--orientations must be at most {_MOST_PICTURES}, got {arguments.orientations}")
    if arguments.weights is None:
        kernel_size = arguments.kernel_size or 9
        basis = resolve_basis(arguments.basis or "bandlimited", kernel_size)
        orientations = arguments.orientations or (4 if basis.is_pixels else 16)
        weight = torch.randn(basis.size, generator=torch.Generator().manual_seed(arguments.seed))
        title = f"A random filter (seed {arguments.seed}) at {orientations} orientations"
    else:
        output, inputs = arguments.channel
        state = load_weights(arguments.weights)
        learned = learned_filter(state, arguments.basis, arguments.layer, output, inputs, arguments.relative)
        weight, basis, kernel_size = learned.weight, learned.basis, arguments.kernel_size or learned.kernel_size
        orientations = arguments.orientations or learned.orientations or (4 if basis.is_pixels else 16)
        title = f"{learned.name}, output channel {output}, input channel {inputs}"
    atoms_path, filter_path = arguments.out / "atoms.png", arguments.out / "filter.png"
    for path in (atoms_path, filter_path):
        check_output(path, overwrite=arguments.overwrite)
    pictures = (
        (atoms_path, atoms_table(basis, kernel_size)),
        (filter_path, steered_filter(weight, basis, kernel_size, orientations, title)),
    )
    for path, figure in pictures:
        save_figure(figure, path, overwrite=arguments.overwrite)
        print(f"wrote {path}")
