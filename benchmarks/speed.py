"""Time and memory of this library's engines, compared with each other and with escnn.

    python benchmarks/speed.py [--only SECTION] [--quick] [--peer PYTHON]

For what is measured and how to read the results, see benchmarks/README.md. Each section is added to the file as soon as
it is finished, so that an interrupted run keeps its measurements.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from report import Sections, draw, sweep_table, targets_table
from sections import SECTIONS, Scale
from workers import HERE, compare

from sfcnn.io.files import new_file


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()


def environment(threads: int) -> dict[str, Any]:
    """What is needed to reproduce the results: command, date, commit, machine. Versions are stored with the results."""
    return {
        "command": " ".join(["python", f"{HERE.name}/{Path(__file__).name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD") or None,
        "changed_since_commit": bool(_git("status", "--porcelain", "--", "../src")),
        "machine": processor(),
        "system": platform.system(),
        "threads": threads,
    }


def find_peer(python: Path) -> Path | None:
    """The interpreter with escnn, or None, with one line that states the reason."""
    if not python.exists():
        reason = f"no environment at {python}; run make bench-escnn to create it"
    else:
        trial = subprocess.run(
            [python, "-W", "ignore", "-c", "import escnn.nn"], capture_output=True, text=True, check=False
        )
        if trial.returncode == 0:
            return python
        reason = (trial.stderr.strip().splitlines() or [f"exit code {trial.returncode}"])[-1]
    print(f"skipping escnn: {reason}")
    return None


def read(path: Path) -> Sections:
    """The sections in a file of results."""
    if not path.exists():
        return {}
    sections: Sections = json.loads(path.read_text(encoding="utf-8"))["sections"]
    return sections


def write(path: Path, sections: Sections) -> None:
    """Write all sections atomically."""
    ordered = {name: sections[name] for name in SECTIONS if name in sections}
    with new_file(path, overwrite=True) as temporary:
        temporary.write_text(json.dumps({"sections": ordered}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def run_section(name: str, scale: Scale, peer: Path | None) -> dict[str, Any]:
    """Measure one section."""
    print(f"\n{name}: {' '.join((SECTIONS[name].__doc__ or '').split())}", flush=True)
    facts, start = environment(scale.threads), time.perf_counter()
    results = [result for label, plans in SECTIONS[name](scale) for result in compare(label, plans, peer)]
    versions: dict[str, dict[str, str]] = {}
    for result in results:
        library = "escnn" if result["engine"] == "escnn" else "sfcnn"
        versions[library] = result.pop("versions", versions.get(library, {}))
    return facts | {"versions": versions, "took_seconds": round(time.perf_counter() - start), "results": results}


def print_report(sections: Sections) -> None:
    """Print tables of all sections, and the conditions of the measurements."""
    print("\n" + targets_table(sections))
    for section, axis in (("orientations", "orientations"), ("size", "size")):
        if section in sections:
            print(f"\n{section}: training step in milliseconds per image, * marks the fastest")
            print(sweep_table(sections, section, axis))
    runs = {(s["commit"], s["changed_since_commit"], s["machine"], s["threads"]) for s in sections.values()}
    for commit, changed, machine, threads in sorted(runs, key=str):
        print(f"\ncommit {commit}{' with changes' if changed else ''}, {machine}, {threads} threads", end="")
    print()


def arguments() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(SECTIONS), action="append", help="a section; may be given several times")
    parser.add_argument("--quick", action="store_true", help="one step of small jobs, to check that it runs")
    parser.add_argument("--report", action="store_true", help="measure nothing, print and draw the existing results")
    parser.add_argument("--threads", type=int, default=2, help="threads for PyTorch (default: %(default)s)")
    parser.add_argument("--peer", type=Path, default=HERE.parent / ".venv-escnn/bin/python", help="Python with escnn")
    parser.add_argument("--out", type=Path, help="results as JSON (default: benchmarks/results/speed.json)")
    parser.add_argument("--figures", type=Path, help="folder for figures (default: docs/figures)")
    options = parser.parse_args()
    scratch = Path(tempfile.gettempdir()) / "sfcnn-speed-quick"  # a quick run never touches real results
    options.out = options.out or (scratch if options.quick else HERE / "results") / "speed.json"
    options.figures = options.figures or (scratch if options.quick else HERE.parent / "docs/figures")
    return options


def main() -> None:
    """Measure, write, draw and report."""
    options = arguments()
    sections = read(options.out)
    if not options.report:
        peer = find_peer(options.peer)
        scale = Scale(options.threads, options.quick, peer is not None)
        for name in options.only or SECTIONS:
            sections[name] = run_section(name, scale, peer)
            write(options.out, sections)
    for path in draw(sections, options.figures):
        print(f"figure: {path}")
    print_report(sections)
    if options.quick:
        print("Quick run: with small sizes and one step, these numbers say nothing about speed.")
    print(f"results: {options.out}")


if __name__ == "__main__":
    main()
