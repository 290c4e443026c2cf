"""TIFF stacks that do not fit into memory, read page by page."""

from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from sfcnn.io.pixelsize import read_pixel_size
from sfcnn.io.stacks import checked_pixels, grey_or_colours, named_errors, one_series, slice_axes


class StackPages:
    """The slices of a TIFF file, read one at a time, with the same values as from `read_stack`.

    Args:
        path: of the file.
        colour: accept colour slices, which have a last axis of 3.
    """

    def __init__(self, path: Path, *, colour: bool = False) -> None:
        self.path, self._colour = path, colour
        with named_errors(path), tifffile.TiffFile(path) as file:
            series = one_series(path, file)
            axes = slice_axes(path, series)
            sizes = dict(zip(series.axes, series.shape, strict=True))
            self.shape: tuple[int, int, int] = (sizes[axes[0]] if len(axes) == 3 else 1, sizes["Y"], sizes["X"])
            self.dtype: np.dtype[Any] = np.dtype(series.dtype)
            # ImageJ writes a large stack as one page followed by the remaining data.
            self._mapped = series.dataoffset is not None and series.keyframe.is_memmappable
            if not self._mapped and len(series.pages) != self.shape[0]:
                raise ValueError(
                    f"{path} has {self.shape[0]} slices on {len(series.pages)} pages, expected one slice per page"
                )
        self.pixels = read_pixel_size(path)

    def read(self, z: int) -> NDArray[Any]:
        """Slice z as stored: (H, W), or (H, W, 3) for colours."""
        with named_errors(self.path), tifffile.TiffFile(self.path) as file:
            series = file.series[0]
            axes: str = series.axes
            if self._mapped:
                whole = tifffile.memmap(self.path, mode="r", series=0)
                image = np.array(whole[z] if len(axes.replace("S", "")) == 3 else whole)
            else:
                page: Any = series.pages[z]
                image = np.asarray(page.asarray())
        if "S" in axes:
            where = axes[1:].index("S") if len(axes) == 4 else axes.index("S")
            image = grey_or_colours(self.path, np.moveaxis(image, where, -1), colour=self._colour)
        return checked_pixels(self.path, image)
