"""Compile the kernel: `python -m sfcnn.ops.spectral.kernel` puts the library beside its sources.

`kernel.cpp` is compiled once for each instruction set, in a namespace of its own; which one runs is decided when it is
called. The name of the library holds a digest of the sources, so that one never meets the other's version.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
#: Sources that are compiled once, for any machine: they call the code of an instruction set.
CALLERS = ("driver", "passes")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast", "-pthread", "-Wall", "-Wextra")
#: GCC would load all factors of a block before their products, and so run out of the 32 registers.
ARM_FLAGS = ("-fno-schedule-insns",)
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


def _target(compiler: str) -> str:
    """What a compiler compiles for, such as "x86_64-linux-gnu"."""
    words = [*compiler.split(), "-dumpmachine"]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _compile(compiler: str, extra: tuple[str, ...], scratch: str) -> list[str]:
    """The object files, one for each instruction set and those that call them."""
    target = _target(compiler)
    x86 = target.startswith(("x86_64", "amd64"))
    flags = [*FLAGS, *(("-DSFCNN_X86",) if x86 else ARM_FLAGS if target.startswith(("aarch64", "arm64")) else ())]
    units: dict[str, tuple[str, ...]] = {**dict.fromkeys(CALLERS, ()), "plain": ("-DSFCNN_ISA=plain",)}
    if x86:
        units |= {name: (f"-DSFCNN_ISA={name}", *own) for name, own in X86_SETS.items()}
    for unit, own in units.items():
        source = SOURCES / (f"{unit}.cpp" if unit in CALLERS else "kernel.cpp")
        words = [*compiler.split(), *flags, *extra, *own, "-c", str(source), "-o", f"{scratch}/{unit}.o"]
        subprocess.run(words, check=True)
    return [f"{scratch}/{unit}.o" for unit in units]


def _link(compiler: str, extra: tuple[str, ...], objects: list[str], made: str) -> None:
    """The library: it holds its own copy of the C++ runtime where the linker can do that, and shows it to nobody."""
    exports = Path(f"{made}.exports")
    exports.write_text("{ global: sfcnn_*; local: *; };", encoding="utf-8")
    words = [*compiler.split(), "-shared", "-pthread", *extra, *objects, "-o", made]
    alone = ["-static-libstdc++", "-static-libgcc", "-Wl,--gc-sections", f"-Wl,--version-script={exports}"]
    if subprocess.run([*words, *alone], capture_output=True, check=False).returncode:
        subprocess.run(words, check=True)


def build(directory: Path = SOURCES, extra: tuple[str, ...] = ()) -> Path | None:
    """Compile the library into a directory; None without a compiler, or if it fails or the directory is read-only.

    It is built for whatever machine the compiler compiles for. `extra` are further options for the compiler.
    """
    compiler = find_compiler()
    if compiler is None:
        return None
    target = directory / library_name()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made = f"{scratch}/{target.name}"
            _link(compiler, extra, _compile(compiler, extra, scratch), made)
            os.replace(made, target)  # whole or not at all, whoever else may be building
    except (OSError, subprocess.CalledProcessError):
        return None
    return target
