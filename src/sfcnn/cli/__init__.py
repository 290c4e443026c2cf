"""The command `sfcnn`. A mistake of its user ends in one line on standard error and exit code 2.

Each command is a module of this package with two functions: `parser(prog)`, which gets the words that name the command,
and `run(prog, arguments)`, which gets what was parsed. Only the module of the command that was typed is imported.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from sfcnn import __version__
from sfcnn.cli.parser import Parser

#: Words of each command: its module and what it does.
COMMANDS = {
    "demo": ("sfcnn.cli.demo", "train on upright digits, test on rotated ones"),
    "play": ("sfcnn.cli.play", "a page in the browser: turn digits and cells, try a network, look at filters"),
    "classify train": ("sfcnn.cli.classify.train", "train a classifier on your own images or on digits"),
    "classify evaluate": ("sfcnn.cli.classify.evaluate", "test a classifier, also on images rotated to many angles"),
    "classify predict": ("sfcnn.cli.classify.predict", "class, probability, orientation and angle of image files"),
    "classify pose": ("sfcnn.cli.classify.pose", "teach a classifier to tell how objects are turned"),
    "segment train": ("sfcnn.cli.segment.train", "train a U-Net on your own images and masks"),
    "segment predict": (
        "sfcnn.cli.segment.predict",
        "classes of pixels, or membranes and cells, in any image",
    ),
    "segment cells": ("sfcnn.cli.segment.cells", "find cells from membrane probabilities"),
    "segment train-edges": ("sfcnn.cli.segment.train_edges", "learn from labelled slices where cells border"),
    "segment score": ("sfcnn.cli.segment.score", "compare a segmentation with the truth"),
    "export": ("sfcnn.cli.export", "write a trained network as a file for PyTorch or ONNX that needs no sfcnn"),
    "experiment orientations": (
        "sfcnn.cli.experiment",
        "test error against the number of orientations Λ (figure 4)",
    ),
    "experiment generalization": ("sfcnn.cli.experiment", "train on upright digits, test at every angle (figure 4)"),
    "experiment benchmark": ("sfcnn.cli.experiment", "the benchmark on rotated MNIST (table 1)"),
    "experiment symmetry": ("sfcnn.cli.experiment", "which symmetry pays on the same digits in the same time"),
    "experiment isbi": ("sfcnn.cli.experiment", "membranes and cells of the ISBI 2012 challenge (table 2)"),
    "data fetch": ("sfcnn.cli.data", "download a data set"),
    "data show": ("sfcnn.cli.data", "show which data sets are there"),
    "filters": ("sfcnn.cli.filters", "draw the atoms and a filter at all orientations"),
    "info": ("sfcnn.cli.info", "versions, device, threads and the kernel in use"),
}

#: First words of several commands, and what those have in common.
GROUPS = {
    "classify": "Tell classes of images.",
    "segment": "Tell classes of pixels, and find cells between membranes.",
    "experiment": "Repeat an experiment of the paper, or compare symmetries.",
    "data": "Data sets of digits.",
}

#: Names that commands had in version 0.1.
ALIASES = {"train": "classify train", "evaluate": "classify evaluate", "predict": "classify predict"}

#: Modules of optional packages: the names under which the packages are installed, and the extras that have them.
EXTRAS = {
    **{name: (name, "train") for name in ("accelerate", "jsonargparse", "matplotlib", "pooch", "rich", "safetensors")},
    "PIL": ("pillow", "train"),
    "yaml": ("pyyaml", "train"),
    "mlxtend": ("mlxtend", "demo"),
    **{name: (name, "em") for name in ("kornia", "scipy", "tifffile")},
    "bioimage_cpp": ("bioimage-cpp", "em"),
    "skimage": ("scikit-image", "em"),
    "sklearn": ("scikit-learn", "em"),
    **{name: (name, "volumes") for name in ("dask", "distributed", "zarr")},
    "gradio": ("gradio", "play"),
    **{name: (name, "export") for name in ("onnx", "onnxruntime", "onnxscript")},
}


def parser(group: str = "") -> Parser:
    """The parser of `sfcnn`, or of one of the `GROUPS`: it lists the commands and takes none of their options."""
    prog = f"sfcnn {group}".strip()
    listed = {name: purpose for name, (_, purpose) in COMMANDS.items() if name.startswith(f"{group} " if group else "")}
    width = max(map(len, listed)) + 2
    table = "\n".join(f"  {name:<{width}}{purpose}" for name, purpose in listed.items())
    purpose = GROUPS.get(group, "Steerable Filter CNNs: networks equivariant to rotations.")
    result = Parser(
        prog,
        usage=f"{prog} [-h] COMMAND …" if group else "sfcnn [-h] [--version] COMMAND …",
        description=f"{purpose}\n\ncommands:\n{table}\n\n"
        "SFCNN_TRACEBACK=1 in the environment shows where an error comes from.",
        examples=[f"sfcnn {name} --help" for name in list(listed)[:2]],
    )
    if not group:
        result.add_argument("--version", action="version", version=f"sfcnn {__version__}")
    return result


def _command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command that words begin with and the words after it; help and mistakes end the program."""
    pair = " ".join(words[:2])
    if pair in COMMANDS:
        return pair, words[2:]
    first = words[0] if words else ""
    if first in COMMANDS or first in ALIASES:
        return first, words[1:]
    group = first if first in GROUPS else ""
    listing = parser(group)
    rest = words[1:] if group else words
    if rest and rest[0].startswith("-"):
        listing.parse_args(rest[:1])  # help and version print and stop, anything else is a mistake
    typed = f"unknown command {rest[0]!r}" if rest else "which command?"
    names = [name.removeprefix(f"{group} ") for name in COMMANDS if name.startswith(f"{group} ")] if group else COMMANDS
    return listing.error(f"{typed} Choose one of {', '.join(names)}")


def _missing_package(error: ImportError) -> tuple[str, str] | None:
    """The optional package whose absence an import error tells of, and its extra; None if it is a fault of ours."""
    return EXTRAS.get((error.name or "").partition(".")[0])


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; PyTorch says so in words."""
    signs = ("not enough memory", "can't allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def _fail(message: str) -> int:
    """Print what is wrong, on one line even if a file name in it has several, and return the exit code."""
    if os.environ.get("SFCNN_TRACEBACK"):
        traceback.print_exc()
    print(f"sfcnn: error: {' '.join(message.splitlines())}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    name, rest = _command(sys.argv[1:] if argv is None else argv)
    module, _ = COMMANDS[ALIASES.get(name, name)]
    prog = f"sfcnn {name}"
    try:
        command = importlib.import_module(module)
        command.run(prog, command.parser(prog).parse_args(rest))
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
        return _fail(f"{prog} needs the package {package}: pip install 'sfcnn[{extra}]'")
    except KeyboardInterrupt:
        print("sfcnn: interrupted", file=sys.stderr)
        return 130
    return 0
