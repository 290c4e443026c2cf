"""Volumes that are segmented slice by slice: memory, processor time, and what two workers gain.

    python benchmarks/volume.py --out benchmarks/results/volume.json

- `memory`: a volume of 64 × 2048 × 2048 pixels is drawn, and its first slices are segmented by the network that ships,
  with cells and links. Then all its slices go through a network of a few parameters, without cells, so that little but
  reading and writing is left. Both start in processes of their own, which tell the largest memory that they ever had
  (ru_maxrss) after each slice.
- `workers`: 32 slices of 512 × 512 by the network that ships, with cells and links, on two processors: one process with
  one thread, one with two, two Dask workers with a thread each, and two processes that know nothing of each other and
  do half of the slices each, which is the most that the machine allows. In turn, and whether what they write is the
  same bit for bit. Seconds of the whole command, and of a slice once every process has done its first one. Processor
  seconds grow where two threads are in each other's way.

`--only workers` measures one section and leaves the other in the file as it is; `--quick` shows that it runs and writes
no results. Volumes are drawn in `--work` and left there.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance

RUN = "isbi2012"
WORK = Path(tempfile.gettempdir()) / "sfcnn-volumes"

#: What is done at the same time in each way to segment a volume: the threads, the workers and the part of the slices of
#: each process.
WAYS: dict[str, list[dict[str, Any]]] = {
    "one thread": [{"threads": 1}],
    "two threads": [{"threads": 2}],
    "two workers": [{"threads": 1, "workers": 2}],
    "two processes": [{"threads": 1, "half": 0}, {"threads": 1, "half": 1}],
}


def draw(path: Path, slices: int, side: int) -> None:
    """Write synthetic membranes slice by slice: a tile, repeated, and shifted from slice to slice."""
    import zarr

    from sfcnn.io.zarr_volumes import VoxelSize, create_pyramid, image_attributes, open_pyramid
    from sfcnn.segmentation import synthetic_membranes

    tile = (255 * synthetic_membranes(1, 512, seed=0, cell=60).images[0].numpy()).astype(np.uint8)
    image = np.tile(tile, (-(-side // 512), -(-side // 512)))[:side, :side]
    group = zarr.create_group(str(path))
    voxel = VoxelSize((0.05, 0.004, 0.004), "micrometer")
    levels = create_pyramid(group, "", (slices, side, side), "uint8", name="em", voxel=voxel)
    group.attrs.update(image_attributes(levels))
    pyramid = open_pyramid(group, "")
    for z in range(slices):
        pyramid.write(z, np.roll(image, 2 * z, axis=(0, 1)))


def tiny_run(directory: Path) -> None:
    """A run as written by training, of a small untrained network."""
    import torch

    from sfcnn.io.settings import write_settings
    from sfcnn.io.state import write_state
    from sfcnn.segmentation.config import SegmentationConfig, SlicesConfig, UNetConfig
    from sfcnn.segmentation.crops import CropConfig
    from sfcnn.segmentation.network import build_network

    torch.manual_seed(0)
    model = UNetConfig("plain-channels", 1, 1, 2, input_kernel_size=3, kernel_size=3, dropout=0.0)
    config = SegmentationConfig(model, SlicesConfig(classes=("membranes",), channels=1), CropConfig(16, margin=4))
    write_settings(directory / "config.yaml", config, task="segmentation")
    write_state(directory / "best.safetensors", {"model": build_network(config).state_dict()})


def measure(
    run: str,
    source: str,
    out: str,
    slices: Sequence[int],
    started: float,
    cells: bool = True,
    workers: int | None = None,
    processors: int | None = None,
) -> None:
    """Segment some slices, and print what there was to tell after each as a line of JSON."""
    if processors and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])
    import sfcnn

    told: list[dict[str, Any]] = []

    def report(name: str, done: float) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
        wall = time.time() - started
        told.append({"part": name, "done": done, "gigabytes": peak, "seconds": time.process_time(), "wall": wall})

    network = sfcnn.load(run, device="cpu")
    sfcnn.volumes.segment_volume(
        network,
        source,
        out,
        cells=cells,
        stack=cells,
        slices=range(*slices),
        workers=workers,
        report=report,
    )
    print(json.dumps(told))


def start(threads: int | None = None, **task: Any) -> subprocess.Popen[str]:
    """Another process that measures; what an earlier one has written would be kept, and nothing measured."""
    shutil.rmtree(task["out"], ignore_errors=True)
    words = [sys.executable, __file__, "--measure", json.dumps({**task, "started": time.time()})]
    environment = {**os.environ, **({} if threads is None else {"OMP_NUM_THREADS": str(threads)})}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)


def told_by(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What a process has to tell at its end."""
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a process ended with code {process.returncode}")
    lines: list[dict[str, Any]] = json.loads(said.splitlines()[-1])
    return lines


def memory(work: Path, slices: int, side: int, real: int) -> dict[str, Any]:
    """Memory and processor seconds after each slice, of both networks."""
    source, tiny = work / f"em-{slices}-{side}.zarr", work / "tiny"
    if not source.exists():
        draw(source, slices, side)
    if not tiny.exists():
        tiny_run(tiny)
    found: dict[str, Any] = {"slices": slices, "side": side}
    for name, run, count in ((RUN, RUN, real), ("tiny", str(tiny), slices)):
        out = work / f"{name}.zarr"
        process = start(run=run, source=str(source), out=str(out), slices=[count], cells=name == RUN)
        found[name] = {"slices": count, "told": told_by(process)}
    return found


def one_way(way: str, work: Path, source: Path, slices: int) -> dict[str, float]:
    """Segment a volume in one of `WAYS`: seconds."""
    used, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    processes, half = [], slices // 2
    for number, task in enumerate(WAYS[way]):
        options = dict(task)
        part = [half * options["half"], half * (options.pop("half") + 1)] if "half" in options else [slices]
        out = output(work, way, number)
        processes.append(start(run=RUN, source=str(source), out=str(out), slices=part, processors=2, **options))
    told = [told_by(process) for process in processes]
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    ends = sorted(line["wall"] for lines in told for line in lines if line["part"] == "slices" and line["done"])
    return {
        "seconds": seconds,
        "processor_seconds": after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime,
        "start_seconds": max(lines[0]["wall"] for lines in told),
        "slice_seconds": (ends[-1] - ends[1]) / (len(ends) - 2),
    }


def output(work: Path, way: str, number: int = 0) -> Path:
    """Where one of the processes of a way writes."""
    return work / f"{way.replace(' ', '-')}-{number}.zarr"


def difference(one: Path, other: Path) -> dict[str, Any]:
    """Whether two outputs are the same bit for bit, else how far probabilities and how many pixels of cells differ."""
    import zarr

    groups: list[Any] = [zarr.open_group(str(path), mode="r") for path in (one, other)]
    probabilities, cells = ([group[f"{name}/0"][:] for group in groups] for name in ("probabilities", "labels/cells"))
    return {
        "same": all(first.tobytes() == second.tobytes() for first, second in (probabilities, cells)),
        "probabilities": float(np.abs(probabilities[0] - probabilities[1]).max()),
        "cells": float((cells[0] != cells[1]).mean()),
    }


def workers(work: Path, slices: int, side: int, repeats: int) -> dict[str, Any]:
    """All ways to segment a volume, in turn."""
    source = work / f"small-{slices}-{side}.zarr"
    if not source.exists():
        draw(source, slices, side)
    times: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            times[way].append(one_way(way, work, source, slices))
    medians = {
        way: {name: statistics.median(each[name] for each in all_) for name in all_[0]} for way, all_ in times.items()
    }
    first = medians["one thread"]
    return {
        "slices": slices,
        "side": side,
        "ways": medians,
        "faster": {way: first["seconds"] / each["seconds"] for way, each in medians.items()},
        "faster_per_slice": {way: first["slice_seconds"] / each["slice_seconds"] for way, each in medians.items()},
        "against_one_thread": {
            way: difference(output(work, "one thread"), output(work, way)) for way in ("two threads", "two workers")
        },
        "all": times,
    }


def report(found: dict[str, Any]) -> None:
    """Print the sections that were measured."""
    for name, part in found.get("memory", {}).items():
        if not isinstance(part, dict):
            continue
        lines, cells = part["told"], name == RUN
        print(f"{name}, {part['slices']} slices, {'cells and links' if cells else 'no cells'}")
        for line in lines if cells else lines[:: max(1, len(lines) // 8)] + lines[-1:]:
            print("  {part:<8}{done:5.0%}  {gigabytes:.2f} GB  {seconds:.1f} s".format(**line))
    if "workers" in found:
        part = found["workers"]
        print(f"{part['slices']} slices of {part['side']}×{part['side']}")
        for way, each in part["ways"].items():
            print(
                f"  {way:<14}{each['seconds']:6.1f} s ({part['faster'][way]:.2f}×), "
                f"a slice {each['slice_seconds']:.2f} s ({part['faster_per_slice'][way]:.2f}×), "
                f"{each['processor_seconds']:.1f} s of CPU time, {each['start_seconds']:.1f} s before the first slice"
            )
        for way, gap in part["against_one_thread"].items():
            other = "probabilities differ by up to {probabilities:.1e}, cells in {cells:.2%} of the pixels".format(
                **gap
            )
            print(f"  {way} against one thread: {'the same bit for bit' if gap['same'] else other}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "memory": lambda options: memory(options.work, options.slices, options.side, options.real),
        "workers": lambda options: workers(options.work, options.small_slices, options.small_side, options.repeats),
    }
    parser.add_argument("--slices", type=int, default=64, help="of the large volume")
    parser.add_argument("--side", type=int, default=2048, help="of the large volume")
    parser.add_argument("--real", type=int, default=3, help="slices of it through the network that ships")
    parser.add_argument("--small-slices", type=int, default=32, help="of the small volume")
    parser.add_argument("--small-side", type=int, default=512, help="of the small volume")
    parser.add_argument("--repeats", type=int, default=3, help="of each way with and without workers")
    parser.add_argument("--only", choices=list(sections), action="append", help="a section; may be given several times")
    parser.add_argument("--quick", action="store_true", help="small volumes, one repeat, no results written")
    parser.add_argument("--work", type=Path, default=WORK, help=f"directory for the volumes (default {WORK})")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(**json.loads(options.measure))
        return
    if options.quick:
        options.slices, options.side, options.real = 4, 256, 2
        options.small_slices, options.small_side, options.repeats = 4, 128, 1
        options.work = options.work / "quick"
    measured = {name: sections[name](options) for name in sections if name in (options.only or sections)}
    report(measured)
    if options.out and not options.quick:
        kept = json.loads(options.out.read_text(encoding="utf-8")) if options.only and options.out.exists() else {}
        own = {name: {**section, "provenance": provenance()} for name, section in measured.items()}
        write_json(options.out, {**kept, **own}, overwrite=True)


if __name__ == "__main__":
    main()
