"""The pixel size of a TIFF file, so that results align with their images in Fiji and napari.

ImageJ stores pixels per unit in the resolution tags, and the name of the unit and the slice spacing in its own
metadata; other programs use inches or centimetres. Both are copied unchanged.
"""

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tifffile

_NO_UNIT, _IN_CENTIMETRES = 1, 3  # of the tag ResolutionUnit; 2 is inches
_CENTIMETRE = 1e4
#: ImageJ's names of units, in micrometres.
_MICROMETRES = {"nm": 1e-3, "nanometer": 1e-3, "um": 1.0, "µm": 1.0, "micron": 1.0, "micrometer": 1.0, "mm": 1e3}
_LENGTHS = ("unit", "yunit", "zunit", "spacing")  # the lengths in ImageJ's metadata


@dataclass(frozen=True)
class PixelSize:
    """Pixel size and slice spacing as stated in a file; empty if it states none."""

    resolution: tuple[float, float] | None = None  #: pixels per unit, across and down
    unit: int = _NO_UNIT  #: of the tag ResolutionUnit
    lengths: dict[str, Any] = field(default_factory=dict)  #: ImageJ's `unit`, `spacing` …

    @property
    def micrometres(self) -> float:
        """Width of a pixel, 0 if unknown. Dots per inch are ignored: they describe a printer, not a microscope."""
        if self.resolution is None:
            return 0.0
        name = str(self.lengths.get("unit", "")).strip().lower().replace("\\u00b5", "µ").replace("μ", "µ")
        length = _CENTIMETRE if self.unit == _IN_CENTIMETRES else _MICROMETRES.get(name, 0.0)
        return length / self.resolution[0]

    def options(self) -> dict[str, Any]:
        """Arguments of `tifffile.imwrite`, without metadata."""
        return {} if self.resolution is None else {"resolution": self.resolution, "resolutionunit": self.unit}


#: Written if the pixel size is unknown.
UNKNOWN = PixelSize()


def read_pixel_size(path: Path) -> PixelSize:
    """The pixel size of a TIFF file; unknown for other kinds of files and for invalid tags."""
    if path.suffix.lower() not in (".tif", ".tiff"):
        return UNKNOWN
    try:
        with warnings.catch_warnings(action="ignore"), tifffile.TiffFile(path) as file:
            tags, text = file.pages.first.tags, file.imagej_metadata or {}
            across, down = (_fraction(tags, name) for name in ("XResolution", "YResolution"))
            unit = int(tags["ResolutionUnit"].value) if "ResolutionUnit" in tags else _NO_UNIT
    except Exception:  # damaged files raise many kinds of error; their pixel size is then unknown
        return UNKNOWN
    lengths = {name: text[name] for name in _LENGTHS if name in text}
    known = across is not None and down is not None and unit in (1, 2, 3)
    return PixelSize((across, down) if known else None, unit if known else _NO_UNIT, lengths)  # type: ignore[arg-type]


def _fraction(tags: Any, name: str) -> float | None:
    """The value of a tag that holds a positive fraction."""
    if name not in tags:
        return None
    over, under = tags[name].value
    return over / under if over > 0 and under > 0 else None
