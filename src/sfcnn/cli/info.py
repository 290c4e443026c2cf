"""`sfcnn info`: versions, device, threads and the kernel in use, to include in bug reports and benchmarks."""

import argparse
import os

from sfcnn.cli.parser import Parser


def parser(prog: str) -> Parser:
    """The command takes no options."""
    return Parser(
        prog,
        description="Print versions, processor, device, threads, and which kernel computes group convolutions:\n"
        "the compiled one, with its instruction set, or PyTorch's own operators, with the reason. Set SFCNN_KERNEL=0\n"
        "in the environment to disable the compiled kernel.",
        examples=(prog,),
    )


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Print."""
    from sfcnn.devices import choose_device
    from sfcnn.io.provenance import provenance
    from sfcnn.ops.spectral.compiled import instruction_set

    known = provenance()
    used = instruction_set()
    lines = {
        **known["versions"],
        "processor": known["processor"],
        "device": str(choose_device()),
        "threads": known["threads"],
        "kernel": f"compiled ({used})" if used else f"PyTorch only ({_why_not()})",
    }
    for name, value in lines.items():
        print(f"{name:<12}{value}")


def _why_not() -> str:
    """Why the compiled kernel is not used."""
    from sfcnn.ops.spectral.kernel import library_path, load

    choice = os.environ.get("SFCNN_KERNEL", "")
    if choice == "0":
        return "SFCNN_KERNEL=0"
    if load() is not None:
        return f"this machine does not support {choice}"
    if library_path().exists():
        return f"{library_path()} cannot be loaded"
    return "not compiled: run python -m sfcnn.ops.spectral.kernel with a C++ compiler installed"
