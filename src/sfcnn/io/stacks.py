"""Files of microscope images: TIFF stacks, single images of any kind, masks and label images.

Any problem with a file raises a ValueError with a one-line message that names it. Values are read as stored. Colour
images with equal channels are read as grey; others have a last axis of 3, if colours are allowed.
"""

import logging
import struct
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from sfcnn.io.files import new_file
from sfcnn.io.pixelsize import UNKNOWN, PixelSize

#: Suffixes of TIFF files, which support many pages and data types; all others are single images.
TIFF = (".tif", ".tiff")

#: Supported image formats. Those that call other programs are excluded.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "WEBP")

#: Data types that ImageJ and Fiji read.
WRITABLE = ("uint8", "uint16", "float32")

_WHITE = {"uint8": 255.0, "uint16": 65535.0, "float32": 1.0}
_DEFLATE = 1032  # the largest possible compression ratio of deflate
_LONGEST_REASON = 300  # characters; decoders may quote the data that they could not read
_EXACT = 2**24  # integers up to here are exact in float32


def read_stack(path: Path, *, colour: bool = False) -> NDArray[Any]:
    """The slices of a TIFF file (Z, H, W), one or more: integers as stored, other types as float32.

    Bits become 0 and 255. A colour map, which Fiji stores with labels, is ignored. With `colour`, slices that are not
    grey are (Z, H, W, 3); without, they raise an error.
    """
    with named_errors(path), tifffile.TiffFile(path) as file:
        series = one_series(path, file)
        array, axes = series.asarray(), series.axes
    if "S" in axes:
        array = grey_or_colours(path, np.moveaxis(array, axes.index("S"), -1), colour=colour)
    return checked_pixels(path, array if len(slice_axes(path, series)) == 3 else array[None])


def one_series(path: Path, file: tifffile.TiffFile) -> tifffile.TiffPageSeries:
    """The pages of a TIFF file, if they belong together and can be read."""
    if not file.pages:
        raise tifffile.TiffFileError("it has no pages")
    _check_chain(path, file)
    series, *others = file.series
    if others:
        sizes = sorted({str(part.shape) for part in file.series})
        raise ValueError(f"{path} has pages that do not fit together, of sizes {', '.join(sizes)}")
    if series.nbytes > _DEFLATE * path.stat().st_size:
        raise ValueError(f"{path} is damaged: too small for its stated shape {series.shape}")
    if series.keyframe.photometric == tifffile.PHOTOMETRIC.MINISWHITE:
        raise ValueError(f"{path} is stored with white as 0: save it with black as 0, after inverting it if need be")
    return series


def slice_axes(path: Path, series: tifffile.TiffPageSeries) -> str:
    """The axes of the pages without the colour axis; they must be slices ZYX or one image YX."""
    axes: str = series.axes.replace("S", "")
    if not axes.endswith("YX") or len(axes) > 3 or axes.startswith("C"):
        hint = ": if its channels are slices, save them as such" if axes.startswith("C") else ""
        shape = tuple(size for size, axis in zip(series.shape, series.axes, strict=True) if axis != "S")
        raise ValueError(f"{path} has the axes {axes} {shape}, expected slices ZYX or one image YX{hint}")
    return axes


def _check_chain(path: Path, file: tifffile.TiffFile) -> None:
    """Raise if the pages of a file, each of which points to the next, form a loop: reading them would never end."""
    tiff, handle = file.tiff, file.filehandle
    offset, seen = file.pages.first.offset, set[int]()
    while offset:
        if offset in seen:
            raise ValueError(f"{path} is damaged: its pages form a loop")
        seen.add(offset)
        handle.seek(offset)
        count = handle.read(tiff.tagnosize)
        if len(count) < tiff.tagnosize:
            return  # the decoder reports truncated files
        (tags,) = struct.unpack(tiff.tagnoformat, count)
        handle.seek(offset + tiff.tagnosize + tags * tiff.tagsize)
        link = handle.read(tiff.offsetsize)
        if len(link) < tiff.offsetsize:
            return
        (offset,) = struct.unpack(tiff.offsetformat, link)


def read_image(path: Path, *, colour: bool = False) -> NDArray[Any]:
    """One image (H, W) from a file; with `colour`, one that is not grey is (H, W, 3)."""
    if path.suffix.lower() in TIFF:
        stack = read_stack(path, colour=colour)
        if len(stack) > 1:
            raise ValueError(f"{path} has {len(stack)} slices, expected one image")
        return stack[0]
    with named_errors(path), Image.open(path, formats=FORMATS) as image:
        upright = ImageOps.exif_transpose(image)
        modes = {"P": "RGBA", "1": "L", "CMYK": "RGB", "YCbCr": "RGB"}
        stored = upright.convert(modes[upright.mode]) if upright.mode in modes else upright
        array = np.array(stored)
    if stored.mode in ("LA", "RGBA"):
        if array[..., -1].min() < 255:
            raise ValueError(f"{path} has transparent pixels: save it without transparency")
        array = array[..., :-1]
    array = grey_or_colours(path, array, colour=colour) if array.ndim == 3 else array
    # Older versions of Pillow return 16-bit images as int32.
    return checked_pixels(path, array.astype(np.uint16) if array.dtype == np.int32 else array)


def read_mask(path: Path) -> NDArray[Any]:
    """A mask (H, W) or (Z, H, W) as stored; for an image with a palette, the palette indices."""
    if path.suffix.lower() in TIFF:
        stack = read_stack(path)
        return stack if len(stack) > 1 else stack[0]
    with named_errors(path), Image.open(path, formats=FORMATS) as image:
        if image.mode == "P":
            return np.array(image)
    return read_image(path)


def read_labels(path: Path) -> NDArray[np.int64]:
    """Label images (Z, H, W) from a TIFF file: integers, possibly stored as floats, 0 for membrane."""
    stack = read_stack(path)
    if stack.min() < 0 or (stack.dtype.kind == "f" and (stack % 1 != 0).any()):
        raise ValueError(
            f"{path} does not hold labels: expected non-negative integers, got {stack.min():g} … {stack.max():g}"
        )
    return stack.astype(np.int64)


def as_fraction(image: NDArray[Any], name: object) -> NDArray[np.float32]:
    """Values from 0, black, to 1, white: 8 and 16 bits are rescaled, floats kept; `name` is used in error messages.

    >>> as_fraction(np.array([0, 51, 255], np.uint8), "my image")
    array([0. , 0.2, 1. ], dtype=float32)
    """
    white = _WHITE.get(image.dtype.name)
    if white is None:
        raise ValueError(f"{name} has values of type {image.dtype}, expected one of {', '.join(_WHITE)}")
    if not 0 <= image.min() <= image.max() <= white:
        raise ValueError(f"{name} has values from {image.min():g} to {image.max():g}, expected 0 … {white:g}")
    return (image / np.float32(white)).astype(np.float32, copy=False)


def write_stack(path: Path, stack: NDArray[Any], *, pixels: PixelSize = UNKNOWN, overwrite: bool = False) -> None:
    """Write slices (Z, H, W) or an image (H, W) atomically as a TIFF file for Fiji and napari.

    Slices with several channels are (Z, C, H, W). `pixels` is the pixel size, as returned by `read_pixel_size` for
    another file.
    """
    write_stacks({path: stack}, pixels=pixels, overwrite=overwrite)


def write_stacks(stacks: Mapping[Path, NDArray[Any]], *, pixels: PixelSize = UNKNOWN, overwrite: bool = False) -> None:
    """Write several files with `write_stack`, all or none of them."""
    for path, stack in stacks.items():
        _check_writable(path, stack)
    with ExitStack() as files:
        for path, stack in stacks.items():
            temporary = files.enter_context(new_file(path, overwrite=overwrite))
            try:
                axes = "ZCYX" if stack.ndim == 4 else "ZYX"[-stack.ndim :]
                metadata = pixels.lengths | {"axes": axes}
                tifffile.imwrite(temporary, stack, imagej=True, metadata=metadata, **pixels.options())
            except OSError as error:  # numpy reports how much it has written, but not why it stopped
                reason = str(error) if error.errno else f"is the disk full? ({error})"
                raise OSError(f"cannot write {path}: {reason}") from error


def write_labels(path: Path, labels: NDArray[Any], *, overwrite: bool = False) -> None:
    """Write label images, converted by `as_writable_labels`."""
    write_stack(path, as_writable_labels(labels, path), overwrite=overwrite)


def as_writable_labels(labels: NDArray[Any], name: object) -> NDArray[Any]:
    """Labels as uint16, or as floats if there are too many; Fiji shows both. `name` is used in error messages.

    >>> as_writable_labels(np.array([0, 65536]), "my labels")
    array([    0., 65536.], dtype=float32)
    """
    if labels.size and not 0 <= labels.min() <= labels.max() <= _EXACT:
        raise ValueError(f"cannot write labels {labels.min()} … {labels.max()} to {name}, expected 0 … {_EXACT}")
    few = not labels.size or labels.max() < 2**16
    return labels.astype(np.uint16 if few else np.float32)


def _check_writable(path: Path, stack: NDArray[Any]) -> None:
    if stack.ndim not in (2, 3, 4) or not stack.size:
        raise ValueError(
            f"expected slices (Z, H, W) or (Z, C, H, W) or an image (H, W) to write to {path}, got shape {stack.shape}"
        )
    if stack.dtype.name not in WRITABLE:
        raise ValueError(f"cannot write values of type {stack.dtype} to {path}, expected one of {', '.join(WRITABLE)}")
    checked_pixels(path, stack)


def grey_or_colours(path: Path, channels: NDArray[Any], *, colour: bool) -> NDArray[Any]:
    """The first of the channels (…, S) if all are equal; otherwise three of them, if colours are allowed."""
    if not (channels != channels[..., :1]).any():
        return channels[..., 0]
    if not colour:
        raise ValueError(f"{path} is a colour image: save it in grey, with slices as separate pages")
    if channels.shape[-1] not in (3, 4):
        raise ValueError(f"{path} has {channels.shape[-1]} channels, expected a grey or RGB image")
    return channels[..., :3]


def checked_pixels(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """The array in native byte order; raise if it is empty or has values that are not finite."""
    if not array.size:
        raise ValueError(f"{path} has no pixels: its size is {array.shape}")
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind in "iu":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind != "f":
        raise ValueError(f"{path} has values of type {array.dtype}, expected integers or floats")
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32, copy=False)  # values that are too large become infinite
    finite = np.isfinite(numbers)
    if not finite.all():
        raise ValueError(f"{path} has {np.count_nonzero(~finite)} pixels that are not numbers (NaN or infinite)")
    return numbers


class _Complaints(logging.Handler):
    """Collects the warnings of the TIFF reader about a file that it reads only partly."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first warning."""
        self.first = self.first or record.getMessage()


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn any error of a decoder into one line that names the file."""
    if not path.is_file():
        raise ValueError(f"{path} is a folder, expected a file" if path.is_dir() else f"{path} does not exist")
    complaints, logger = _Complaints(), logging.getLogger("tifffile")
    heard, logger.propagate = logger.propagate, False
    logger.addHandler(complaints)
    try:
        with warnings.catch_warnings(action="ignore"):  # about odd tags and large images
            yield
        if complaints.first:
            raise RuntimeError(complaints.first)
    except Exception as error:  # decoders raise many kinds of error on damaged files
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        if isinstance(error, OSError) and error.filename is not None:
            raise  # raised by the file system, for example missing permission
        reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
        if isinstance(error, tifffile.TiffFileError) and _is_png(path):
            raise ValueError(f"{path} is a PNG image, expected a TIFF file") from error
        if isinstance(error, tifffile.TiffFileError | UnidentifiedImageError):
            raise ValueError(f"{path} is not a TIFF or PNG file that can be read: {reason}") from error
        if "imagecodecs" in reason:
            raise ValueError(f"{path} uses a compression that needs the package imagecodecs: {reason}") from error
        raise ValueError(f"{path} is damaged or truncated: {reason}") from error
    finally:
        logger.removeHandler(complaints)
        logger.propagate = heard


def _is_png(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x89PNG"
