"""Image files of one's own, made to look like those a network was trained on: grey, in [0, 1], of one size."""

import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

#: What is read, told by the contents of a file and not by its name. Formats that call other programs are left out.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")

Pixels = NDArray[np.float32]  # (h, w), black 0 and white 1

#: How an image of another shape is brought to the network's.
FITS = ("pad", "stretch")

_WHITE = {"LA": 255.0, "I": 65535.0, "F": 1.0}


def read_images(
    paths: Iterable[Path], size: tuple[int, int] = (28, 28), *, invert: bool = False, fit: str = "pad"
) -> Tensor:
    """Read image files as one batch (N, 1, H, W), float32 in [0, 1], black 0 and white 1.

    Colours become luminance, and what is transparent shows the background: black, or white if `invert`.

    Args:
        paths: files, and directories for all image files in them; see `image_files`.
        size: (H, W) of the network's images.
        invert: exchange black and white, for dark ink on bright paper.
        fit: "pad" keeps the shape of things and fills the rest with the background, the median of the image's border;
            "stretch" does not.
    """
    if fit not in FITS:
        raise ValueError(f"unknown fit {fit!r}, choose one of {list(FITS)}")
    images = []
    for path in image_files(paths):
        image = _brightness(path, background=float(invert))
        images.append(_resize(1 - image if invert else image, size, fit))
    return torch.from_numpy(np.stack(images)).unsqueeze(1)


def image_files(paths: Iterable[Path]) -> list[Path]:
    """The files among `paths`, and in the place of each directory the image files in it, sorted by name."""
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
            raise ValueError(f"directory {path} has no image files ({', '.join(FORMATS)})")
        files += found
    if not files:
        raise ValueError("no image files were named: at least one is needed")
    return files


def _decode(path: Path) -> Image.Image:
    """The one picture in a file, the right way up, as "LA" (grey and opacity), "I" (16 bit) or "F" (float)."""
    if not path.is_file():
        raise ValueError(f"image {path} does not exist")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd tags, which pixels do not depend on
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            # Image.open(path) would leave the file open where its first bytes cannot be read.
            with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:
                # Cameras keep a second view of a picture in its file (MPO). It may be left out, pages may not.
                pages = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
                upright = ImageOps.exif_transpose(image)
                decoded = upright if upright.mode[0] in _WHITE else upright.convert("LA")
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} is not an image that can be read ({', '.join(FORMATS)})") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"image {path} is too large: at most {Image.MAX_IMAGE_PIXELS:,} pixels are read") from error
    except Exception as error:  # what decoders raise on damaged files is of many kinds
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file system's own: no permission
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"image {path} cannot be decoded: {reason}") from error
    if pages > 1:
        raise ValueError(f"image {path} has {pages} pages, expected one: save them as files of their own")
    return decoded


def _brightness(path: Path, background: float) -> Pixels:
    """The picture in a file, in front of a background of one brightness."""
    image = _decode(path)
    kind = image.mode if image.mode == "LA" else image.mode[0]
    pixels = np.array(image, dtype=np.float32)
    if not np.isfinite(pixels).all():
        raise ValueError(f"image {path} has pixels that are not numbers (NaN or infinite)")
    white = _WHITE[kind]
    if pixels.min() < 0 or pixels.max() > white:
        raise ValueError(
            f"image {path} has values from {pixels.min():g} to {pixels.max():g}, expected 0 … {white:g}: rescale them"
        )
    pixels /= np.float32(white)
    if kind != "LA":
        return pixels
    grey, opacity = pixels[..., 0], pixels[..., 1]
    return grey * opacity + background * (1 - opacity)


def _resize(image: Pixels, size: tuple[int, int], fit: str) -> Pixels:
    """Resample an image to `size` (H, W) without aliasing."""
    height, width = image.shape
    scale = min(size[0] / height, size[1] / width)
    inner = (max(1, round(height * scale)), max(1, round(width * scale))) if fit == "pad" else size
    border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    if inner != (height, width):
        image = np.asarray(Image.fromarray(image).resize(inner[::-1], Image.Resampling.BILINEAR)).clip(0, 1)
    margins = [((whole - part) // 2, (whole - part + 1) // 2) for whole, part in zip(size, inner, strict=True)]
    return np.pad(image, margins, constant_values=np.median(border))
