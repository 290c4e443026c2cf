"""The command `sfcnn`. A mistake of its user ends in one line on standard error and exit code 2."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import NoReturn

from sfcnn import __version__


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the mistake and where to read more, and stop."""
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _filters(arguments: argparse.Namespace) -> None:
    """Draw the atoms and one filter at all orientations."""
    import torch

    from sfcnn.files import check_output
    from sfcnn.harmonics import resolve_basis
    from sfcnn.pictures import atoms_table, save_figure, steered_filter
    from sfcnn.weights import learned_filter, load_weights

    if arguments.weights is None:
        kernel_size, orientations = arguments.kernel_size or 9, arguments.orientations or 16
        basis = resolve_basis(arguments.basis, kernel_size)
        weight = torch.randn(basis.size, generator=torch.Generator().manual_seed(arguments.seed))
        title = f"A random filter (seed {arguments.seed}) at {orientations} orientations"
    else:
        output, inputs = arguments.channel
        state = load_weights(arguments.weights)
        learned = learned_filter(state, arguments.basis, arguments.layer, output, inputs, arguments.relative)
        weight, kernel_size = learned.weight, arguments.kernel_size or learned.kernel_size
        orientations = arguments.orientations or learned.orientations or 16
        title = f"{learned.name}, output channel {output}, input channel {inputs}"
    atoms_path, filter_path = arguments.out / "atoms.png", arguments.out / "filter.png"
    for path in (atoms_path, filter_path):
        check_output(path, overwrite=arguments.overwrite)
    pictures = (
        (atoms_path, atoms_table(arguments.basis, kernel_size)),
        (filter_path, steered_filter(weight, arguments.basis, kernel_size, orientations, title)),
    )
    for path, figure in pictures:
        save_figure(figure, path, overwrite=arguments.overwrite)
        print(f"wrote {path}")


def _demo(arguments: argparse.Namespace) -> None:
    """Train two small networks on upright digits and test them on rotated ones."""
    try:
        from rich.console import Console
        from rich.table import Table

        from sfcnn.console import progress
    except ImportError as error:
        raise ValueError("the demo needs the package rich: pip install 'sfcnn[demo]'") from error
    from sfcnn.experiments.demo import DemoConfig, demo_angles, run, save

    config = DemoConfig(**{field.name: getattr(arguments, field.name) for field in fields(DemoConfig)})
    console = Console()
    console.print(
        f"Training on {config.train_images} upright digits, testing on {config.test_images} others "
        f"at {config.angles} angles."
    )
    with progress(console) as report:
        nets, curves = run(config, report)
    table = Table("angle", *(f"{curve.name}\nerror (%)" for curve in curves), title="Test error by rotation angle")
    for index, angle in enumerate(demo_angles(config)):
        table.add_row(f"{angle:g}°", *(f"{curve.errors[index]:.1f}" for curve in curves))
    table.add_section()
    table.add_row("mean", *(f"{curve.mean:.1f}" for curve in curves))
    table.add_row("worst", *(f"{curve.worst:.1f}" for curve in curves))
    table.add_row("parameters", *(f"{curve.parameters:,}" for curve in curves))
    table.add_row("training", *(f"{curve.seconds:.0f} s" for curve in curves))
    console.print(table)
    for path in save(arguments.out, config, nets, curves):
        print(f"wrote {path}")


def _add_filters(commands: "argparse._SubParsersAction[_Parser]") -> None:
    parser = commands.add_parser(
        "filters",
        help="draw the atoms and a filter at all orientations",
        description="Draw the table of atoms (the paper's figure 2) and a random or learned filter, rotated.",
        epilog="examples:\n"
        "  sfcnn filters --basis paper --kernel-size 9\n"
        "  sfcnn filters --weights demo-results/sfcnn.pt --basis averaged --layer features.1.0.weight --out pictures",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--basis", default="bandlimited", help="preset of atoms: bandlimited (default), averaged or paper"
    )
    parser.add_argument("--kernel-size", type=int, help="side of the grid, odd (default 9, or what the weights have)")
    parser.add_argument("--orientations", type=int, help="number of rotations to draw (default 16, or the weights')")
    parser.add_argument("--seed", type=int, default=0, help="of the random filter (default 0)")
    parser.add_argument("--weights", type=Path, help="draw a learned filter from this state dict (torch.save)")
    parser.add_argument("--layer", help="name of its weight in the state dict (default: the first lifting layer)")
    parser.add_argument(
        "--channel", type=int, nargs=2, default=(0, 0), metavar=("OUT", "IN"), help="which filter (default 0 0)"
    )
    parser.add_argument("--relative", type=int, default=0, help="relative orientation in a group layer (default 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("filters"), help="directory for the pictures (default filters)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace pictures that exist")
    parser.set_defaults(run=_filters)


def _add_demo(commands: "argparse._SubParsersAction[_Parser]") -> None:
    from sfcnn.experiments.demo import DemoConfig

    parser = commands.add_parser(
        "demo",
        help="train on upright digits, test on rotated ones",
        description="Train a small steerable network and a plain CNN with as many parameters on upright digits, and "
        "test both on digits rotated by 0°, 15° … 345°. Files of an earlier demo in the same directory are replaced.",
        epilog="example:\n  sfcnn demo --orientations 4 --epochs 2 --out demo-results",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for field in fields(DemoConfig):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default, help=f"default {field.default}")
    parser.add_argument("--out", type=Path, default=Path("demo-results"), help="directory (default demo-results)")
    parser.set_defaults(run=_demo)


def _parser() -> _Parser:
    parser = _Parser(prog="sfcnn", description="Steerable Filter CNNs: networks equivariant to rotations.")
    parser.add_argument("--version", action="version", version=f"sfcnn {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)
    _add_demo(commands)
    _add_filters(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (ValueError, OSError) as error:
        print(f"sfcnn: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sfcnn: interrupted", file=sys.stderr)
        return 130
    return 0
