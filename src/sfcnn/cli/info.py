"""`sfcnn info`: versions, device, threads and the kernel in use, to be quoted with a question or a measurement."""

import argparse
import os

from sfcnn.cli.parser import Parser


def parser(prog: str) -> Parser:
    """It takes no options."""
    return Parser(
        prog,
        description="Print versions, processor, device, threads, and which kernel computes group convolutions:\n"
        "compiled, with the instruction set that it uses, or PyTorch's own operators, and why. SFCNN_KERNEL=0 in\n"
        "the environment turns the compiled kernel off.",
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
        return f"this machine has no {choice}"
    if library_path().exists():
        return f"{library_path()} cannot be loaded"
    return "not compiled: with a C++ compiler, python -m sfcnn.ops.spectral.kernel does it"
