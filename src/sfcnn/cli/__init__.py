"""The command `sfcnn`. A mistake of its user ends in one line on standard error and exit code 2.

Each command is a module of this package with two functions, `parser()` and `run(arguments)`. Only the one that was
typed is imported.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from sfcnn import __version__
from sfcnn.cli.parser import Parser

#: Name of each command: its module and what it does.
COMMANDS = {
    "demo": ("sfcnn.cli.demo", "train on upright digits, test on rotated ones"),
    "train": ("sfcnn.cli.train", "train a network on digits, or go on with a run"),
    "evaluate": ("sfcnn.cli.evaluate", "test a trained network, also on images rotated to many angles"),
    "predict": ("sfcnn.cli.predict", "class, probability and orientation of your own image files"),
    "export": ("sfcnn.cli.export", "the network of a run as a file for PyTorch or ONNX that needs no sfcnn"),
    "experiment": ("sfcnn.cli.experiment", "the paper's experiments on rotated digits and membranes"),
    "segment": ("sfcnn.cli.segment", "membranes and cells in electron microscope images"),
    "data": ("sfcnn.cli.data", "download data sets and check those you have"),
    "filters": ("sfcnn.cli.filters", "draw the atoms and a filter at all orientations"),
}

#: Modules of optional packages: the names under which the packages are installed, and the extras that have them.
EXTRAS = {
    **{name: (name, "train") for name in ("accelerate", "jsonargparse", "matplotlib", "rich", "safetensors")},
    "PIL": ("pillow", "train"),
    "yaml": ("pyyaml", "train"),
    "mlxtend": ("mlxtend", "demo"),
    **{name: (name, "em") for name in ("kornia", "scipy", "tifffile")},
    "bioimage_cpp": ("bioimage-cpp", "em"),
    "skimage": ("scikit-image", "em"),
    "sklearn": ("scikit-learn", "em"),
    **{name: (name, "export") for name in ("onnx", "onnxruntime", "onnxscript")},
}


def parser() -> Parser:
    """The parser of `sfcnn COMMAND …`; what follows the command is left to the command's own parser."""
    width = max(map(len, COMMANDS)) + 2
    table = "\n".join(f"  {name:<{width}}{purpose}" for name, (_, purpose) in COMMANDS.items())
    parser = Parser(
        "sfcnn",
        usage="sfcnn [-h] [--version] COMMAND …",
        description=f"Steerable Filter CNNs: networks equivariant to rotations.\n\ncommands:\n{table}",
        examples=("sfcnn demo", "sfcnn filters --basis paper --kernel-size 9", "sfcnn train --help"),
    )
    parser.add_argument("--version", action="version", version=f"sfcnn {__version__}")
    parser.add_argument("command", nargs="?", choices=COMMANDS, help=argparse.SUPPRESS, metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _missing_package(error: ImportError) -> tuple[str, str] | None:
    """The optional package whose absence an import error tells of, and its extra; None if it is a fault of ours."""
    return EXTRAS.get((error.name or "").partition(".")[0])


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; PyTorch says so in words."""
    signs = ("not enough memory", "can't allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def _fail(message: str) -> int:
    """Print what is wrong, on one line even if a file name in it has several, and return the exit code."""
    print(f"sfcnn: error: {' '.join(message.splitlines())}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    top = parser()
    typed = top.parse_args(argv)
    if typed.command is None:
        top.error(f"which command? Choose one of {', '.join(COMMANDS)}")
    module, _ = COMMANDS[typed.command]
    try:
        command = importlib.import_module(module)
        command.run(command.parser().parse_args(typed.arguments))
    except (ValueError, OSError, OverflowError) as error:
        return _fail(str(error))
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        return _fail(f"there is not enough memory for this, choose smaller sizes: {error}")
    except ImportError as error:
        missing = _missing_package(error)
        if missing is None:
            raise
        package, extra = missing
        needs = f"sfcnn {typed.command} needs the package {package}"
        return _fail(f"{needs}: pip install 'sfcnn[{extra}]'")
    except KeyboardInterrupt:
        print("sfcnn: interrupted", file=sys.stderr)
        return 130
    return 0
