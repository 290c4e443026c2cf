"""The plan for segmenting a volume, small enough to be sent to any process, and the output.

The output is an OME-Zarr image with labels, which napari and Fiji can open:

    OUT.zarr                 the image: multiscales of the probabilities
    OUT.zarr/probabilities   its levels 0, 1 …: float32, (Z, H, W), or (C, Z, H, W) for several classes
    OUT.zarr/labels/cells    levels of the cells, uint32; or `classes`, uint8, the class of each pixel
    OUT.zarr/work            state needed to resume: cells before they are numbered, and a record of each slice

The root records the input and settings, so that results of another run are never mixed in.
"""

import glob
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import zarr

from sfcnn.cells.apply import SETTINGS_FILE
from sfcnn.cells.forest import Forest
from sfcnn.io.files import OutputExistsError
from sfcnn.io.zarr_volumes import (
    Pyramid,
    VoxelSize,
    create_array,
    create_pyramid,
    image_attributes,
    labels_attributes,
    open_pyramid,
)
from sfcnn.segmentation import Segmenter, load
from sfcnn.volumes.source import Slices, open_volume

#: Columns of the records. A record whose first number is 0 is empty.
SLICE_RECORD = ("done", "input", "output", "cells")
LABEL_RECORD = ("done", "table", "output")


@dataclass(frozen=True)
class Plan:
    """Input, network, settings and output of a segmentation; paths are absolute."""

    source: Path
    out: Path
    run: Path  #: run directory of the network
    forest: Path | None  #: file of the forest that classifies cell borders
    device: str
    cells: bool  #: find cells; otherwise pixel classes
    fill_missing: bool  #: of `ZarrVolume`
    options: dict[str, Any] = field(default_factory=dict)  #: of `Segmenter.predict`, and the method for finding cells

    @property
    def labels(self) -> str:
        """The name of the labels."""
        return "cells" if self.cells else "classes"

    def identity(self) -> dict[str, Any]:
        """Everything the output depends on, except the contents of the slices, which have their own records."""
        slices, _ = open_volume(self.source, colour=self.network().channels == 3)
        files = (self.run / name for name in ("config.yaml", "best.safetensors", SETTINGS_FILE))
        return {
            "input": str(self.source),
            "size": list(slices.shape),
            "type": str(slices.dtype),
            "network": f"{self.run.name} {_digest(*(path for path in files if path.is_file()))}",
            "forest": "none" if self.forest is None else f"{self.forest.name} {_digest(self.forest)}",
            "labels": self.labels,
            **{name.replace("_", "-"): value for name, value in sorted(self.options.items())},
        }

    def network(self) -> Segmenter:
        """The network, loaded once per process."""
        return _network(self.run, self.device)

    def trees(self) -> Forest | None:
        """The forest, loaded once per process."""
        return None if self.forest is None else _forest(self.forest)

    def open(self) -> Slices:
        """The volume."""
        return open_volume(self.source, colour=self.network().channels == 3, fill_missing=self.fill_missing)[0]


@lru_cache(maxsize=1)
def _network(run: Path, device: str) -> Segmenter:
    return load(run, device=device)


@lru_cache(maxsize=1)
def _forest(path: Path) -> Forest:
    return Forest.load(path)


def _digest(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Output:
    """The arrays of an output, opened for writing."""

    def __init__(self, plan: Plan) -> None:
        root: Any = zarr.open_group(str(plan.out), mode="r+")
        self.root: Any = root
        self.probabilities: Pyramid = open_pyramid(root, "probabilities/")
        self.labels: Pyramid = open_pyramid(root, f"labels/{plan.labels}/", nearest=True)
        self.own: Pyramid = open_pyramid(root, "work/cells/", nearest=True) if plan.cells else self.labels
        self.slices: Any = root["work/slices"]  #: SLICE_RECORD of each slice
        self.numbered: Any = root["work/numbered"]  #: LABEL_RECORD of each slice


def prepare(plan: Plan, voxel: VoxelSize, *, overwrite: bool = False) -> bool:
    """Create the empty output; return whether it already exists from an earlier run. Raise if it is anything else."""
    identity = json.loads(json.dumps(plan.identity()))
    if plan.out.exists():
        made = _made_of(plan.out)
        if made == identity:
            return True
        if made is None:
            raise OutputExistsError(f"output {plan.out} exists and was not created by sfcnn: choose another name")
        if not overwrite:
            name = next(name for name in {**identity, **made} if identity.get(name) != made.get(name))
            raise OutputExistsError(
                f"output {plan.out} was created with a different {name}, {made.get(name)} instead of "
                f"{identity.get(name)}: "
                "choose another name or pass --overwrite"
            )
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    for left in plan.out.parent.glob(f".{glob.escape(plan.out.stem)}-*.part"):  # left by a killed process
        shutil.rmtree(left, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(dir=plan.out.parent, prefix=f".{plan.out.stem}-", suffix=".part"))
    try:
        _create(temporary / "new", plan, voxel, identity)
        if plan.out.exists():
            plan.out.rename(temporary / "old")
        (temporary / "new").rename(plan.out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return False


def _made_of(path: Path) -> dict[str, Any] | None:
    """The identity recorded in an output, None if it is not one."""
    try:
        attributes: dict[str, Any] = zarr.open_group(str(path), mode="r").attrs.asdict()
    except Exception:  # whatever it is, it is not ours
        return None
    made = attributes.get("sfcnn")
    return made["made_of"] if isinstance(made, dict) and isinstance(made.get("made_of"), dict) else None


def _create(path: Path, plan: Plan, voxel: VoxelSize, identity: dict[str, Any]) -> None:
    """Write the metadata of an empty output."""
    size = identity["size"]
    classes = plan.network().classes
    root: Any = zarr.create_group(str(path))
    shape = size if len(classes) == 1 else [len(classes), *size]
    name = classes[0] if len(classes) == 1 else "probabilities"
    image = create_pyramid(root, "probabilities/", shape, "float32", name=name, voxel=voxel)
    labels = root.create_group("labels", attributes=labels_attributes([plan.labels]))
    group = labels.create_group(plan.labels)
    kind = "uint32" if plan.cells else "uint8"
    levels = create_pyramid(group, "", size, kind, name=plan.labels, voxel=voxel, nearest=True)
    group.attrs.update(image_attributes(levels, **{"image-label": {"source": {"image": "../../"}}}))
    work = root.create_group("work")
    if plan.cells:
        create_array(work, "cells/0", size, "uint32", (1, *root["probabilities/0"].chunks[-2:]))
    for records, columns in (("slices", SLICE_RECORD), ("numbered", LABEL_RECORD)):
        create_array(work, records, (size[0], len(columns)), "uint32", (1, len(columns)))
    root.attrs.update({**image_attributes(image), "sfcnn": {"made_of": identity, "complete": False}})
