"""The command `sfcnn`. A user error prints one line to standard error and exits with code 2.

Each command is a module of this package with two functions: `parser(prog)`, which takes the words that name the
command, and `run(prog, arguments)`, which takes the parsed arguments. Only the module of the given command is imported.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from sfcnn import __version__
from sfcnn.cli.parser import Parser, closest

#: Command name: its module and a one-line description.
COMMANDS = {
    "demo": ("sfcnn.cli.demo", "train on upright digits, test on rotated ones"),
    "play": (
        "sfcnn.cli.play",
        "interactive page in the browser: rotate digits and cells, try a network, inspect filters",
    ),
    "classify train": ("sfcnn.cli.classify.train", "train a classifier on your own images or on digits"),
    "classify evaluate": ("sfcnn.cli.classify.evaluate", "test a classifier, optionally on rotated images"),
    "classify predict": (
        "sfcnn.cli.classify.predict",
        "predict class, probability, orientation and angle of image files",
    ),
    "classify pose": ("sfcnn.cli.classify.pose", "train a classifier to predict rotation angles"),
    "segment train": ("sfcnn.cli.segment.train", "train a U-Net on your own images and masks"),
    "segment predict": (
        "sfcnn.cli.segment.predict",
        "segment images into pixel classes, or membranes and cells",
    ),
    "segment cells": ("sfcnn.cli.segment.cells", "find cells from membrane probabilities"),
    "segment train-edges": ("sfcnn.cli.segment.train_edges", "train a cell border classifier on labelled slices"),
    "segment tune": ("sfcnn.cli.segment.tune", "choose how a network's cells are found, on labelled slices"),
    "segment score": ("sfcnn.cli.segment.score", "compare a segmentation with the ground truth"),
    "export": ("sfcnn.cli.export", "export a trained network to PyTorch or ONNX, to run without sfcnn"),
    "experiment orientations": (
        "sfcnn.cli.experiment",
        "test error against the number of orientations Λ (figure 4)",
    ),
    "experiment generalization": ("sfcnn.cli.experiment", "train on upright digits, test at every angle (figure 4)"),
    "experiment benchmark": ("sfcnn.cli.experiment", "the benchmark on rotated MNIST (table 1)"),
    "experiment symmetry": ("sfcnn.cli.experiment", "compare symmetries on the same digits and time budget"),
    "experiment recipes": ("sfcnn.cli.experiment", "compare training recipes: minutes to reach an error"),
    "experiment isbi": ("sfcnn.cli.experiment", "membranes and cells of the ISBI 2012 challenge (figure 5)"),
    "data fetch": ("sfcnn.cli.data", "download a data set"),
    "data show": ("sfcnn.cli.data", "show the available data sets"),
    "filters": ("sfcnn.cli.filters", "draw the atoms and a filter at all orientations"),
    "info": ("sfcnn.cli.info", "versions, device, threads and the kernel in use"),
}

#: Command groups and their descriptions.
GROUPS = {
    "classify": "Classify images.",
    "segment": "Classify pixels, and find cells between membranes.",
    "experiment": "Reproduce an experiment from the paper, or compare symmetries.",
    "data": "Data sets of digits.",
}

#: Command names from version 0.1.
ALIASES = {"train": "classify train", "evaluate": "classify evaluate", "predict": "classify predict"}

#: Modules of optional packages: the name of the package to install, and the extra that provides it.
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
    """The parser of `sfcnn`, or of one of the `GROUPS`: it lists the commands without their options."""
    prog = f"sfcnn {group}".strip()
    listed = {name: purpose for name, (_, purpose) in COMMANDS.items() if name.startswith(f"{group} " if group else "")}
    width = max(map(len, listed)) + 2
    table = "\n".join(f"  {name:<{width}}{purpose}" for name, purpose in listed.items())
    purpose = GROUPS.get(group, "Steerable Filter CNNs: networks equivariant to rotations.")
    result = Parser(
        prog,
        usage=f"{prog} [-h] COMMAND …" if group else "sfcnn [-h] [--version] COMMAND …",
        description=f"{purpose}\n\ncommands:\n{table}\n\n"
        "Set SFCNN_TRACEBACK=1 in the environment to show the traceback of an error.",
        examples=[f"sfcnn {name} --help" for name in list(listed)[:2]],
    )
    if not group:
        result.add_argument("--version", action="version", version=f"sfcnn {__version__}")
    return result


def _command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Split words into the command and its arguments; exits on --help and on errors."""
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
        listing.parse_args(rest[:1])  # help and version print and exit, anything else is an error
    typed = f"unknown command {rest[0]!r}:" if rest else "a command is missing:"
    names = [name.removeprefix(f"{group} ") for name in COMMANDS if name.startswith(f"{group} ")] if group else COMMANDS
    if rest and (close := closest(rest[0], {name.split()[0] for name in names})):
        return listing.error(f"unknown command {rest[0]!r}; did you mean {close}?")
    return listing.error(f"{typed} choose one of {', '.join(names)}")


def _missing_package(error: ImportError) -> tuple[str, str] | None:
    """The missing optional package that caused an import error, and its extra; None if it is a bug of ours."""
    return EXTRAS.get((error.name or "").partition(".")[0])


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; PyTorch reports it only in the message."""
    signs = ("not enough memory", "can't allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def _fail(message: str) -> int:
    """Print an error on one line, even if a file name in it contains line breaks, and return the exit code."""
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
        return _fail(f"not enough memory, choose smaller sizes: {error}")
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
