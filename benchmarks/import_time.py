"""Time of `import sfcnn` beyond `import torch`.

    python benchmarks/import_time.py --out benchmarks/results/import_time.json

Each repeat is a new process that imports torch and then, timed, sfcnn, its layers and models, or the command line
without the modules of its subcommands. A first process warms up the file system and is not counted.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance

#: The timed imports, after torch.
IMPORTS = {
    "sfcnn": "import sfcnn",
    "layers and models": "import sfcnn, sfcnn.nn, sfcnn.models",
    "command line": "import sfcnn.cli",
}

_SCRIPT = """
import time
start = time.perf_counter()
import torch
middle = time.perf_counter()
{imports}
print(middle - start, time.perf_counter() - middle)
"""


def seconds(imports: str) -> tuple[float, float]:
    """Import times of torch and of `imports` after it, in a new process."""
    words = [sys.executable, "-c", _SCRIPT.format(imports=imports)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    torch_seconds, own_seconds = map(float, done.stdout.split())
    return torch_seconds, own_seconds


def measure(repeats: int) -> dict[str, dict[str, float | list[float]]]:
    """Median, minimum and maximum of each import, and of torch; they take turns, so that noise affects all of them."""
    seconds(IMPORTS["sfcnn"])
    times: dict[str, list[float]] = {"torch": [], **{name: [] for name in IMPORTS}}
    for _ in range(repeats):
        for name, imports in IMPORTS.items():
            torch_seconds, own_seconds = seconds(imports)
            times["torch"].append(torch_seconds)
            times[name].append(own_seconds)
    return {
        name: {"median": statistics.median(values), "least": min(values), "greatest": max(values), "all": values}
        for name, values in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, help="processes per kind (default 10)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    results = measure(arguments.repeats)
    for name, values in results.items():
        what = name if name == "torch" else f"{name}, beyond torch"
        print(f"{what:<32}{values['median']:.3f} s ({values['least']:.3f} … {values['greatest']:.3f})")
    if arguments.out:
        write_json(arguments.out, {"seconds": results, "provenance": provenance()}, overwrite=True)


if __name__ == "__main__":
    main()
