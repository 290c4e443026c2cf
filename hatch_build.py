"""Compile the kernel when sfcnn is installed or a wheel is built.

Without a C++ compiler, sfcnn still installs, with a one-line warning, and computes with PyTorch only. SFCNN_KERNEL=0
skips the kernel deliberately.
"""

import os
import re
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = Path("src/sfcnn/ops/spectral/kernel")
#: Processor names by their number in the header of an ELF file.
MACHINES = {62: "x86_64", 183: "aarch64"}


def platform_tag(library: Path) -> str:
    """The platform tag of a wheel with this library: "manylinux_2_28_x86_64" if it needs only glibc 2.28.

    As required by PEP 600. A library that needs the compiler's own runtime gets the tag of this system.
    """
    data = library.read_bytes()
    versions = [(int(major), int(minor)) for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", data)]
    machine = MACHINES.get(int.from_bytes(data[18:20], "little")) if data.startswith(b"\x7fELF") else None
    if versions and machine and not re.search(rb"\0lib(stdc\+\+|gcc_s|c\+\+|asan|tsan)\.so", data):
        major, minor = max(versions)
        return f"manylinux_{major}_{minor}_{machine}"
    return re.sub("[-.]", "_", sysconfig.get_platform())


class KernelHook(BuildHookInterface[Any]):
    """Puts the compiled library next to its sources and into the wheel, which then becomes platform-specific."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built, also for an editable install."""
        directory = Path(self.root) / KERNEL
        library: Path | None = None
        reason = "because SFCNN_KERNEL=0"
        if os.environ.get("SFCNN_KERNEL") != "0":
            library = runpy.run_path(str(directory / "build.py"))["build"]()
            reason = "because no working C++ compiler was found"
        for other in directory.glob("*.so"):
            if other != library:
                other.unlink()  # built from older sources
        if library is None:
            self.app.display_warning(f"sfcnn: installed without its compiled kernel, {reason}; using PyTorch only")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(library)}"
        build_data["artifacts"].append(f"/{KERNEL.as_posix()}/*.so")
