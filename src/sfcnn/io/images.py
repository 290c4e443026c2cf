"""Image files as arrays: grey or RGB, in [0, 1], resized to a common size."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

#: Supported formats, recognised by the contents of a file, not by its name. Formats that call other programs are
#: excluded.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")

Pixels = NDArray[np.float32]  # (H, W, C), black 0 and white 1

#: How an image of another shape is fitted to that of the network.
FITS = ("pad", "stretch")

_WHITE = {"I": 65535.0, "F": 1.0}  # of integer and float images; all others are 8-bit


def image_files(paths: Iterable[Path]) -> list[Path]:
    """The files in `paths`, with each directory replaced by its image files, sorted by name.

    Hidden files in a directory and those without an image suffix are skipped.
    """
    Image.init()
    endings = {ending for ending, name in Image.registered_extensions().items() if name in FORMATS}
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        visible = (file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        found = sorted(file for file in visible if file.suffix.lower() in endings)
        if not found:
            inner = "; its subfolders are not searched" if any(file.is_dir() for file in path.iterdir()) else ""
            raise ValueError(f"directory {path} has no image files ({', '.join(FORMATS)}){inner}")
        files += found
    if not files:
        raise ValueError("no image files given: at least one is needed")
    return files


def read_pixels(path: Path, channels: int = 0, background: float = 0.0) -> Pixels:
    """The image in a file as float32 (H, W, C) in [0, 1], upright, C = 1 or 3.

    Args:
        path: of the file, which must have one page.
        channels: 1 converts colours to luminance, 3 converts grey to RGB; 0 keeps the channels of the file, except
            that RGB images with three equal channels become grey.
        background: brightness behind transparent pixels.
    """
    if channels not in (0, 1, 3):
        raise ValueError(f"channels must be 0, 1 or 3, got {channels}")
    image = _decode(path, channels)
    values = np.asarray(image)
    values = values if values.ndim == 3 else values[..., None]
    if image.mode[0] in _WHITE:
        pixels = _fraction(values.astype(np.float32), _WHITE[image.mode[0]], path)
    else:
        pixels = values.astype(np.float32) / np.float32(255)
        if image.mode.endswith("A"):
            opacity = pixels[..., -1:]
            pixels = pixels[..., :-1] * opacity + np.float32(background) * (1 - opacity)
    if pixels.shape[-1] == 3 and channels == 0 and (values[..., 1:3] == values[..., :1]).all():
        return pixels[..., :1]
    return pixels.repeat(3, -1) if (channels, pixels.shape[-1]) == (3, 1) else pixels


def _decode(path: Path, channels: int) -> Image.Image:
    """The only image in a file, in mode "L" or "RGB", with "A" if it has opacity, or "I" (integers) or "F" (floats)."""
    if not path.is_file():
        raise ValueError(f"image {path} does not exist")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd tags, which do not affect pixels
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            # Image.open(path) would leave the file open if its first bytes cannot be read.
            with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:
                # Cameras store a second view in the same file (MPO), which can be ignored; pages cannot.
                pages = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
                upright = ImageOps.exif_transpose(image)
                grey = channels == 1 or upright.mode in ("1", "L", "LA", "La")
                mode = ("L" if grey else "RGB") + ("A" if upright.has_transparency_data else "")
                decoded = upright if upright.mode[0] in _WHITE else upright.convert(mode)
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} is not an image that can be read ({', '.join(FORMATS)})") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"image {path} is too large: at most {Image.MAX_IMAGE_PIXELS:,} pixels are read") from error
    except Exception as error:  # damaged files raise many kinds of error
        if isinstance(error, OSError) and error.filename is not None:
            raise  # raised by the file system, for example missing permission
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"image {path} cannot be decoded: {reason}") from error
    if pages > 1:
        raise ValueError(f"image {path} has {pages} pages, expected one: save them as separate files")
    return decoded


def _fraction(pixels: Pixels, white: float, path: Path) -> Pixels:
    """Scale values from [0, white] to [0, 1]."""
    if not np.isfinite(pixels).all():
        raise ValueError(f"image {path} has pixels that are not numbers (NaN or infinite)")
    low, high = pixels.min(), pixels.max()
    if low < 0 or high > white:
        raise ValueError(f"image {path} has values from {low:g} to {high:g}, expected 0 … {white:g}: rescale them")
    return pixels / np.float32(white)


def fit_pixels(pixels: Pixels, size: tuple[int, int], fit: str = "pad") -> Pixels:
    """Resample an image (h, w, C) to `size` (H, W) without aliasing: (H, W, C).

    "pad" keeps the aspect ratio and fills the rest with the background, the median of the image's border; "stretch"
    does not keep it.
    """
    if fit not in FITS:
        raise ValueError(f"unknown fit {fit!r}, choose one of {list(FITS)}")
    height, width, _ = pixels.shape
    scale = min(size[0] / height, size[1] / width)
    inner = (max(1, round(height * scale)), max(1, round(width * scale))) if fit == "pad" else size
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    if inner != (height, width):
        planes = (Image.fromarray(plane) for plane in np.moveaxis(pixels, -1, 0).copy())
        resized = [np.asarray(plane.resize(inner[::-1], Image.Resampling.BILINEAR)) for plane in planes]
        pixels = np.stack(resized, -1).clip(0, 1)
    fitted = np.empty((*size, pixels.shape[-1]), np.float32)
    fitted[:] = np.median(border, axis=0)
    top, left = ((whole - part) // 2 for whole, part in zip(size, inner, strict=True))
    fitted[top : top + inner[0], left : left + inner[1]] = pixels
    return fitted


def read_resized(
    path: Path, size: tuple[int, int] = (28, 28), *, channels: int = 1, invert: bool = False, fit: str = "pad"
) -> Tensor:
    """One image file in the shape that a network expects: (C, H, W), uint8, black 0 and white 255.

    Args:
        path: of the file.
        size: (H, W) of the network's images.
        channels: 1, 3, or 0 for those of the file; see `read_pixels`.
        invert: exchange black and white, for dark ink on bright paper; transparent pixels then count as white.
        fit: how an image of another shape is fitted to `size`; see `fit_pixels`.
    """
    pixels = fit_pixels(read_pixels(path, channels, background=float(invert)), size, fit)
    image = torch.from_numpy((pixels * 255).round().astype(np.uint8)).permute(2, 0, 1)
    return 255 - image if invert else image


def read_images(paths: Iterable[Path], size: tuple[int, int] = (28, 28), **options: Any) -> Tensor:
    """Image files, and those in directories (see `image_files`), as one batch (N, C, H, W), uint8.

    `options` are those of `read_resized`.
    """
    return torch.stack([read_resized(path, size, **options) for path in image_files(paths)])
