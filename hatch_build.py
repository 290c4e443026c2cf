"""Compile the kernel when sfcnn is installed or a wheel is built.

Without a C++ compiler sfcnn installs all the same, says so in one line, and computes by PyTorch alone. SFCNN_KERNEL=0
leaves the kernel out on purpose.
"""

import os
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = Path("src/sfcnn/ops/spectral/kernel")


class KernelHook(BuildHookInterface[Any]):
    """Puts the compiled library beside its sources and into the wheel, which is then one for this kind of machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built, also for an editable installation."""
        directory = Path(self.root) / KERNEL
        library: Path | None = None
        if os.environ.get("SFCNN_KERNEL") != "0":
            library = runpy.run_path(str(directory / "build.py"))["build"]()
        for other in directory.glob("*.so"):
            if other != library:
                other.unlink()  # of older sources
        if library is None:
            self.app.display_warning("sfcnn: installed without its compiled kernel, for want of a C++ compiler")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["artifacts"].append(f"/{KERNEL.as_posix()}/*.so")
