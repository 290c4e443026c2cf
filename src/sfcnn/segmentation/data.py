"""Images with their masks: an image stack and a mask stack, a folder of pairs, or synthetic membranes.

A folder of pairs contains two folders, `images` and `masks`, whose file names match up to the extension:
`masks/a.tif` belongs to `images/a.png`. Pairs may differ in size. In a mask, 0 is background and any one other value is
foreground; several classes are numbered 1, 2, ….
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfcnn.io.files import data_directory
from sfcnn.io.pixelsize import read_pixel_size
from sfcnn.io.stacks import TIFF, as_fraction, read_image, read_mask, read_stack
from sfcnn.segmentation.config import SegmentationConfig, SlicesConfig
from sfcnn.segmentation.labels import as_labels, cells_of_mask, membranes_of_cells
from sfcnn.segmentation.synthetic import synthetic_membranes

#: File extensions recognised in a folder of pairs.
ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", *TIFF)

_MOST_CLASSES = 64


@dataclass(frozen=True)
class Slices:
    """Images of any size and the classes of their pixels."""

    name: str  #: as printed next to results
    images: Sequence[Tensor]  #: each (C, H, W), float32 from 0 (black) to 1 (white)
    masks: Sequence[Tensor]  #: each (H, W), int64: 0 for background, 1, 2, … for the foreground classes
    classes: tuple[str, ...]  #: one name for the foreground, or one name per class number
    pixel_size: float = 0.0  #: in micrometres, 0 if unknown
    labels: Sequence[Tensor] = ()  #: label images as read, each (H, W), int64; empty if masks were read

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for RGB."""
        return self.images[0].shape[0]

    def cells(self, index: int) -> Tensor:
        """The label image (H, W) of an image, 0 on membranes: as read, or the components between membranes."""
        if self.labels:
            return self.labels[index]
        if len(self.classes) != 1:
            raise ValueError(f"affinities need masks of a single class, cell membranes, got {list(self.classes)}")
        return cells_of_mask(self.masks[index])


def load_slices(config: SlicesConfig, data: Path | None = None) -> Slices:
    """Load the images that `config` names; `data` is the data directory, by default the one in SFCNN_DATA."""
    if config.source == "synthetic":
        images, membranes = synthetic_membranes(12, 256, seed=config.seed)
        name = f"synthetic membranes (seed {config.seed})"
        return Slices(name, images[:, None].unbind(), membranes.long().unbind(), ("membranes",))
    if config.source == "isbi":
        folder = _isbi_folder(data)
        config = replace(config, invert_masks=True, classes=config.classes or ("membranes",))
        return _stack("ISBI 2012", folder / "train-volume.tif", folder / "train-labels.tif", config)
    if config.source == "stack":
        return _stack(Path(config.path).name, Path(config.path), Path(config.masks), config)
    return _pairs(Path(config.path), config)


def resolve(config: SegmentationConfig, slices: Slices) -> SegmentationConfig:
    """Fill in the settings that are read from the files: channels, classes and pixel size."""
    images = replace(
        config.images,
        channels=slices.channels,
        classes=slices.classes,
        pixel_size=config.images.pixel_size or slices.pixel_size,
    )
    return replace(config, images=images)


def _isbi_folder(data: Path | None) -> Path:
    directory = data_directory(data)
    if directory is None:
        raise ValueError("source 'isbi' needs a directory that contains isbi2012/train-volume.tif: pass --data DIR")
    return directory / "isbi2012"


def _stack(name: str, images: Path, masks: Path, config: SlicesConfig) -> Slices:
    """The slices of a TIFF stack and of the mask stack, which must have the same shape."""
    image_stack, mask_stack = read_stack(images, colour=config.channels != 1), read_stack(masks)
    if image_stack.shape[:3] != mask_stack.shape:
        raise ValueError(f"{images} is {image_stack.shape}, but {masks} is {mask_stack.shape}, expected the same size")
    pictures = list(as_fraction(image_stack, images))
    return _slices(name, pictures, list(mask_stack), masks, config, read_pixel_size(images).micrometres)


def _pairs(folder: Path, config: SlicesConfig) -> Slices:
    """All pairs of a folder, sorted by name: `folder/images/NAME.png` and `folder/masks/NAME.png`."""
    files = pair_files(folder)
    pictures, masks = [], []
    for image_path, mask_path in files:
        image, mask = read_image(image_path, colour=config.channels != 1), read_mask(mask_path)
        if image.shape[:2] != mask.shape:
            raise ValueError(f"{image_path} is {image.shape}, but {mask_path} is {mask.shape}, expected the same size")
        pictures.append(as_fraction(image, image_path))
        masks.append(mask)
    sizes = {read_pixel_size(image_path).micrometres for image_path, _ in files}
    known = sizes.pop() if len(sizes) == 1 else 0.0
    return _slices(folder.resolve().name, pictures, masks, folder / "masks", config, known)


def pair_files(folder: Path) -> list[tuple[Path, Path]]:
    """Paths of the images in a folder of pairs and of their masks, sorted by name."""
    images, masks = _by_stem(folder / "images"), _by_stem(folder / "masks")
    for files, others, kind in ((images, masks, "mask"), (masks, images, "image")):
        alone = [str(file) for stem, file in files.items() if stem not in others]
        if alone:
            rest = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
            raise ValueError(f"{alone[0]}{rest} has no {kind} of the same name in {folder / (kind + 's')}")
    return [(file, masks[stem]) for stem, file in images.items()]


def _by_stem(folder: Path) -> dict[str, Path]:
    """The image files in a folder, sorted and keyed by name without extension."""
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}: expected folders images and masks in {folder.parent}")
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or file.suffix.lower() not in ENDINGS:
            continue
        if file.stem in files:
            raise ValueError(f"{files[file.stem]} and {file} have the same name, expected only one of them")
        files[file.stem] = file
    if not files:
        raise ValueError(f"folder {folder} has no image files ({', '.join(ENDINGS)})")
    return files


def _slices(
    name: str,
    images: list[NDArray[np.float32]],
    masks: list[NDArray[Any]],
    source: Path,
    config: SlicesConfig,
    pixel_size: float,
) -> Slices:
    channels = config.channels or max(3 if image.ndim == 3 else 1 for image in images)
    tensors = [torch.from_numpy(as_channels(image, channels)) for image in images]
    if config.label_masks:
        labels = [as_labels(mask, source) for mask in masks]
        membranes = [torch.from_numpy(membranes_of_cells(image)) for image in labels]
        classes = config.classes or ("membranes",)
        if len(classes) != 1:
            raise ValueError(f"images.classes must name one class, the 0 of the label images, got {list(classes)}")
        return Slices(name, tensors, membranes, classes, pixel_size, [torch.from_numpy(image) for image in labels])
    numbers = as_classes(masks, source, invert=config.invert_masks)
    found = max(int(mask.max()) for mask in numbers)
    classes = config.classes or (("foreground",) if found < 2 else tuple(map(str, range(found + 1))))
    if found >= max(len(classes), 2):
        raise ValueError(f"{source} has the classes 0 … {found}, but images.classes has {len(classes)} names")
    return Slices(name, tensors, [torch.from_numpy(mask) for mask in numbers], classes, pixel_size)


def as_channels(image: NDArray[np.float32], channels: int) -> NDArray[np.float32]:
    """Convert an image (H, W) or (H, W, 3) to (C, H, W), repeating grey values if there are three channels."""
    planes = image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)
    if len(planes) > channels:
        raise ValueError(f"expected a grey image, got one with {len(planes)} channels")
    return np.array(np.broadcast_to(planes, (channels, *planes.shape[1:])))


def as_classes(masks: Sequence[NDArray[Any]], name: object, *, invert: bool = False) -> list[NDArray[np.int64]]:
    """Convert masks to class numbers: the stored values, or 0 and 1 if there are only two values.

    With `invert`, two-valued masks are 0 on the foreground. `name` is used in error messages.

    >>> as_classes([np.array([[0, 255]])], "my mask")
    [array([[0, 1]])]
    """
    values = np.unique(np.concatenate([np.unique(mask) for mask in masks]))
    looked_for = values[values != 0]
    if len(looked_for) <= 1:
        return [((mask == 0) if invert else (mask != 0)).astype(np.int64) for mask in masks]
    whole = values[0] >= 0 and (values % 1 == 0).all() and values[-1] < _MOST_CLASSES
    if not whole or invert:
        expected = "0 and one other, because masks are inverted" if invert else "two, or the classes 0, 1, 2 …"
        raise ValueError(
            f"{name} has {len(values)} values from {values[0]:g} to {values[-1]:g}, expected {expected} "
            f"(at most {_MOST_CLASSES - 1})"
        )
    return [mask.astype(np.int64) for mask in masks]


def as_interior(mask: NDArray[Any], name: object) -> NDArray[np.bool_]:
    """True where a two-valued mask is not 0; `name` is used in error messages.

    >>> as_interior(np.array([[0, 255]]), "my mask")
    array([[False,  True]])
    """
    interior: NDArray[np.bool_] = mask != 0
    if mask.min() < 0 or (mask[interior] != mask.max()).any():
        values = np.unique(mask)
        raise ValueError(
            f"{name} has {len(values)} values from {values[0]:g} to {values[-1]:g}, "
            "expected a two-valued mask: 0 for membrane, another value for the interior of cells"
        )
    return interior
