"""Compile the kernel: `python -m sfcnn.ops.spectral.kernel` puts the library beside its sources.

`kernel.cpp` is compiled once for each instruction set, in a namespace of its own; which one runs is decided when it is
called. The name of the library holds a digest of the sources, so that one never meets the other's version.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast", "-pthread", "-Wall", "-Wextra")
X86_SETS = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"),
}


def library_name() -> str:
    """The file name of the library that belongs to the sources beside this module."""
    digest = hashlib.sha256()
    for source in sorted((*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp"))):
        digest.update(source.read_bytes())
    return f"spectral-{digest.hexdigest()[:12]}.so"


def find_compiler() -> str | None:
    """A C++ compiler: what `CXX` names, or the first of the usual ones there is."""
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        if name and shutil.which(name.split()[0]):
            return name
    return None


def build(directory: Path = SOURCES, extra: tuple[str, ...] = (), machine: str = "") -> Path | None:
    """Compile the library into a directory; None without a compiler, or if it cannot compile this.

    `extra` are further options for the compiler, and `machine` is what it compiles for, if not this machine.
    """
    compiler = find_compiler()
    if compiler is None:
        return None
    x86 = (machine or platform.machine()).lower() in ("x86_64", "amd64")
    flags = (*FLAGS, *(("-DSFCNN_X86",) if x86 else ()), *extra)
    units: dict[str, tuple[str, ...]] = {"driver": (), "plain": ("-DSFCNN_ISA=plain",)}
    if x86:
        units |= {name: (f"-DSFCNN_ISA={name}", *own) for name, own in X86_SETS.items()}
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / library_name()
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        objects = [f"{scratch}/{unit}.o" for unit in units]
        commands = [
            [*compiler.split(), *flags, *own, "-c", str(SOURCES / ("driver.cpp" if unit == "driver" else "kernel.cpp"))]
            for unit, own in units.items()
        ]
        try:
            for command, made in zip(commands, objects, strict=True):
                subprocess.run([*command, "-o", made], check=True)
            made = f"{scratch}/{target.name}"
            subprocess.run([*compiler.split(), "-shared", "-pthread", *extra, *objects, "-o", made], check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        os.replace(made, target)  # whole or not at all, whoever else may be building
    return target
