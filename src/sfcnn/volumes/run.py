"""Segment a volume of any size: slice by slice, in one process or many, and resumable."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sfcnn.cells.apply import cells_settings, check_method, check_stack, wants_cells
from sfcnn.cells.files import said_size
from sfcnn.cells.linking import LEAST_OVERLAP, Links, SliceAgreement, check_overlap, number_cells
from sfcnn.segmentation import Segmenter
from sfcnn.volumes.plan import Output, Plan, prepare
from sfcnn.volumes.slices import Outcome, link_slice, number_slice, read_record, segment_slice
from sfcnn.volumes.source import open_volume
from sfcnn.volumes.spread import Spread, check_spread, spread

#: Options of `Segmenter.predict` that volumes support, and the method for finding cells.
DEFAULTS: dict[str, Any] = {"invert": False, "average": "none", "tile": None, "halo": None, "method": None}


@dataclass(frozen=True)
class VolumeReport:
    """Summary of the segmentation of a volume."""

    slices: int  #: number of slices
    done: int  #: number of segmented slices
    kept: int  #: number of these that were segmented before
    failed: dict[int, str] = field(default_factory=dict)  #: error message of each slice that failed
    cells: int = 0  #: number of cells in the segmented slices
    agreement: dict[int, SliceAgreement] = field(default_factory=dict)  #: of slice z with the next one, if linked

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.done == self.slices and not self.failed


def segment_volume(
    network: Segmenter,
    source: Path | str,
    out: Path | str,
    *,
    cells: bool | None = None,
    stack: bool = False,
    least_overlap: float = LEAST_OVERLAP,
    slices: range | None = None,
    forest: Path | str | None = None,
    pixel_size: float | None = None,
    fill_missing: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    overwrite: bool = False,
    report: Callable[[str, float], None] = lambda name, done: None,
    warn: Callable[[str], None] = print,
    **options: Any,
) -> VolumeReport:
    """Segment an OME-Zarr volume or a TIFF stack into an OME-Zarr volume, with one slice in memory at a time.

    With the same number of threads, the output is bit-identical to what `sfcnn.cells.segment` returns for the whole
    volume. If `out` exists from an
    earlier call with the same volume, network and options, only missing or damaged parts are computed. Slices that
    cannot be read are skipped and reported; the others are still segmented.

    Args:
        network: from `sfcnn.load`; workers load it from its directory.
        source: an OME-Zarr volume or a TIFF stack.
        out: output directory; see `sfcnn.volumes.plan` for its contents.
        cells: whether to find cells; by default, if the network predicts membranes.
        stack: give linked cells of neighbouring slices (`sfcnn.cells.linking`) the same number.
        least_overlap: minimum IoU of linked cells.
        slices: segment only these slices, for example `range(10)` as a trial.
        forest: file of a forest that classifies cell borders; by default the one in the network's run.
        pixel_size: in micrometres, 0 to use slices as they are; by default read from the volume.
        fill_missing: replace missing chunks by Zarr's fill value instead of reporting an error.
        workers, scheduler: see `sfcnn.volumes.spread.spread`.
        overwrite: replace an output of another volume or network, or of other options.
        report: called with the name of the current step and the fraction of it that is done.
        warn: called with a line about an implausible pixel size.
        options: `invert`, `average`, `tile`, `halo` of `Segmenter.predict`, and the `method` of `CellsConfig`.
    """
    check_spread(workers, scheduler)
    check_overlap(least_overlap)
    source, out = Path(source).resolve(), Path(out).resolve()
    wanted = wants_cells(network, cells)
    check_stack(network, cells, stack=stack)
    if out == source or out in source.parents or source in out.parents:
        raise ValueError(f"output {out} and volume {source} must not contain each other: choose another output")
    volume, voxel = open_volume(source, colour=network.channels == 3, fill_missing=fill_missing)
    size = said_size(network, voxel.micrometres, source, warn) if pixel_size is None else pixel_size
    network.scale(size)
    trees = Path(forest) if forest is not None else network.directory / "edges.safetensors"
    used = wanted and (forest is not None or trees.is_file())
    unknown = set(options) - set(DEFAULTS)
    if unknown:
        raise ValueError(f"unknown options {sorted(unknown)}, choose from {list(DEFAULTS)}")
    plan = Plan(
        source,
        out,
        network.directory.resolve(),
        trees.resolve() if used else None,
        network.device.type,
        wanted,
        fill_missing,
        {**DEFAULTS, **options, "pixel_size": size},
    )
    check_method(network, cells_settings(network, plan.options["method"], plan.trees()))  # before anything is written
    count = volume.shape[0]
    chosen = range(count) if slices is None else slices
    if not chosen or not 0 <= min(chosen) <= max(chosen) < count:
        raise ValueError(f"slices must be in 0 … {count - 1}, got {chosen.start} … {chosen.stop - 1}")
    prepare(plan, voxel, overwrite=overwrite)
    with spread(workers, scheduler) as run:
        return _finish(plan, run, chosen, stack, least_overlap, report)


def _finish(
    plan: Plan, run: Spread, chosen: range, stack: bool, least: float, report: Callable[[str, float], None]
) -> VolumeReport:
    """Segment slices, then link and number their cells."""
    first = _run(plan, run, segment_slice, [(plan, z) for z in chosen], "slices", report)
    failed = {outcome.z: outcome.error for outcome in first if outcome.error}
    kept = sum(outcome.kept for outcome in first)
    output = Output(plan)
    records = [read_record(output.slices, z) for z in range(output.slices.shape[0])]
    there = [z for z, record in enumerate(records) if record[0] and z not in failed]
    known = set(there)
    links: dict[int, Links] = {}
    total = 0
    if plan.cells:
        if stack:
            pairs = [(plan, z, least) for z in there if z + 1 in known]
            for outcome in _run(plan, run, link_slice, pairs, "links", report):
                if outcome.links is not None:
                    links[outcome.z] = outcome.links
                else:
                    failed[outcome.z] = outcome.error
        counts = [records[z][3] if z in known else 0 for z in range(len(records))]
        tables = list(number_cells(counts, (links.get(z) for z in range(len(counts) - 1))))
        total = max(int(table.max()) for table in tables)
        numbered = _run(plan, run, number_slice, [(plan, z, tables[z]) for z in there], "cells", report)
        failed |= {outcome.z: outcome.error for outcome in numbered if outcome.error}
    done = [z for z in there if z not in failed]
    agreement = {z: links[z].agreement for z in sorted(links)}
    result = VolumeReport(len(records), len(done), kept, dict(sorted(failed.items())), total, agreement)
    _describe(plan, output, result)
    return result


def _run(
    plan: Plan,
    run: Spread,
    function: Callable[..., Outcome],
    calls: Sequence[tuple[Any, ...]],
    name: str,
    report: Callable[[str, float], None],
) -> list[Outcome]:
    """The outcome of each slice, in any order; raise if nothing more can be written."""
    report(name, 0.0)
    outcomes: list[Outcome] = []
    with closing(run(function, calls)) as results:
        for number, outcome in results:
            if isinstance(outcome, BaseException):
                outcome = Outcome(calls[number][1], "its worker was killed several times: is there enough memory?")
            if outcome.fatal:
                raise OSError(f"cannot write {plan.out}: {outcome.error}; run the same command again to continue")
            outcomes.append(outcome)
            report(name, len(outcomes) / len(calls))
    return outcomes


def _describe(plan: Plan, output: Output, result: VolumeReport) -> None:
    """Record the result in the output, next to the input and settings."""
    before = output.root.attrs["sfcnn"]
    found = {
        "made_of": before["made_of"],
        "complete": result.complete,
        **({"cells": result.cells} if plan.cells else {}),
        **({"agreement": {str(z): asdict(pair) for z, pair in result.agreement.items()}} if result.agreement else {}),
    }
    for left in plan.out.glob("zarr.*.partial"):  # left by a killed process
        left.unlink(missing_ok=True)
    if found != before:
        output.root.attrs["sfcnn"] = found
