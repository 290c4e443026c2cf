"""Where a result comes from: version, commit, packages, machine, time."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("sfcnn", "torch", "numpy", "accelerate")


def _commit() -> str | None:
    """The commit of the running source tree, marked if it has local changes; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(root), "describe", "--always", "--abbrev=10", "--dirty=+changes", "--exclude=*"]
        done = subprocess.run(git, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def provenance() -> dict[str, Any]:
    """What is needed to reproduce a measurement."""
    import torch

    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **packages},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
