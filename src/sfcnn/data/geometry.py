"""How large the pixels of a TIFF file are, so that results lie over their images in Fiji and napari.

ImageJ keeps pixels per unit in the resolution tags, and the unit's name and the distance of slices in its own text;
other programs use inches or centimetres. Both are carried over as they are.
"""

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tifffile

_NO_UNIT = 1  # of the tag ResolutionUnit: 2 is inches, 3 centimetres
_LENGTHS = ("unit", "yunit", "zunit", "spacing")  # what ImageJ's text says about lengths


@dataclass(frozen=True)
class Geometry:
    """Sizes of pixels and the distance of slices, as a file says them; nothing if it does not."""

    resolution: tuple[float, float] | None = None  #: pixels per unit, across and down
    unit: int = _NO_UNIT  #: of the tag ResolutionUnit
    lengths: dict[str, Any] = field(default_factory=dict)  #: ImageJ's `unit`, `spacing` …

    def options(self) -> dict[str, Any]:
        """Arguments of `tifffile.imwrite`, but for metadata."""
        return {} if self.resolution is None else {"resolution": self.resolution, "resolutionunit": self.unit}


#: What is written if nothing is known.
UNKNOWN = Geometry()


def read_geometry(path: Path) -> Geometry:
    """The geometry of a TIFF file, or none for files of other kinds and for tags that make no sense."""
    if path.suffix.lower() not in (".tif", ".tiff"):
        return UNKNOWN
    try:
        with warnings.catch_warnings(action="ignore"), tifffile.TiffFile(path) as file:
            tags, text = file.pages.first.tags, file.imagej_metadata or {}
            across, down = (_fraction(tags, name) for name in ("XResolution", "YResolution"))
            unit = int(tags["ResolutionUnit"].value) if "ResolutionUnit" in tags else _NO_UNIT
    except Exception:  # what the decoder raises on damaged files is of many kinds, and size is not what they lack most
        return UNKNOWN
    lengths = {name: text[name] for name in _LENGTHS if name in text}
    known = across is not None and down is not None and unit in (1, 2, 3)
    return Geometry((across, down) if known else None, unit if known else _NO_UNIT, lengths)  # type: ignore[arg-type]


def _fraction(tags: Any, name: str) -> float | None:
    """The value of a tag that holds a fraction above 0."""
    if name not in tags:
        return None
    over, under = tags[name].value
    return over / under if over > 0 and under > 0 else None
