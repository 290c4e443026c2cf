"""Your own images: a folder with one subfolder for each class, split by you or at random.

DIR/cat/1.png            DIR/train/cat/1.png
DIR/cat/2.jpg     or     DIR/validation/cat/2.jpg     (or DIR/val/…)
DIR/dog/3.tif            DIR/test/dog/3.tif

Hidden files and folders, and files without an image extension, are ignored. A random split depends on the seed and on
the set of files: if you plan to add images, use the second layout.

The orientation of objects in these images counts as upright (`sfcnn.classification.pose`).
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from sfcnn.classification.config import ImagesConfig
from sfcnn.classification.labelled import SPLITS, LabelledImages, Splits, upright
from sfcnn.io.images import image_files, read_resized
from sfcnn.randomness import seeded_generator

#: A file and its label.
Entry = tuple[Path, int]

_NAMES = {"train": ("train",), "validation": ("validation", "val"), "test": ("test",)}


def load_folder_splits(images: ImagesConfig) -> Splits:
    """The images of `images.path`, as bytes (N, C, side, side), shuffled by the seed, and their labels."""
    if not images.path:
        raise ValueError(
            "the data set 'folder' needs images.path, a folder with one subfolder of images for each class"
        )
    folder = Path(images.path).expanduser()
    split = _split_folders(folder)
    classes = images.classes or tuple(_subfolders(split.get("train", folder)))
    if len(classes) < 2:
        raise ValueError(f"folder {folder} has one class, {classes[0]!r}, expected at least 2: one subfolder for each")
    if split:
        parts = {name: _list(place, classes) for name, place in split.items()}
    else:
        parts = _random_split(_list(folder, classes), classes, images)
    missing = sorted(set(range(len(classes))) - {label for _, label in parts["train"]})
    if missing:
        raise ValueError(f"folder {folder} has no training images of the class {classes[missing[0]]!r}")
    files = [entry for index, name in enumerate(SPLITS) for entry in _shuffled(parts[name], images.seed, index)]
    everything = _read(files, images, images.channels)  # all at once, to check that all are grey or all are in colour
    counts = [len(parts[name]) for name in SPLITS]
    read = [LabelledImages(*part) for part in zip(*(tensor.split(counts) for tensor in everything), strict=True)]
    return Splits(folder.resolve().name, *read, classes=classes, angles=upright(*read))


def load_folder(folder: Path, images: ImagesConfig, split: str = "test") -> LabelledImages:
    """Load other labelled images like those of a run: one split of the folder, or all of it if it is not split.

    `images` are the settings of the run, with its classes; the folder may lack some of them.
    """
    place = _split_folders(folder).get(split, folder)
    return _read(_shuffled(_list(place, images.class_names), images.seed), images, images.channels or 1)


def _subfolders(folder: Path) -> dict[str, Path]:
    """Visible subfolders by name, sorted; at least one."""
    if not folder.is_dir():
        raise ValueError(f"folder {folder} does not exist")
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise ValueError(f"folder {folder} has no subfolders: create one for the images of each class")
    return {path.name: path for path in found}


def _split_folders(folder: Path) -> dict[str, Path]:
    """The subfolders of the three splits, or an empty dict if the subfolders are classes."""
    found = _subfolders(folder)
    if not set(found) <= {name for names in _NAMES.values() for name in names}:
        return {}
    split = {name: found[choice] for name, choices in _NAMES.items() for choice in choices if choice in found}
    missing = [name for name in SPLITS if name not in split]
    if missing:
        raise ValueError(f"folder {folder} has {', '.join(found)}, but no subfolder {' and '.join(missing)}")
    return split


def _list(folder: Path, classes: Sequence[str]) -> list[Entry]:
    """The images in the subfolders of a folder, each of which is named after a class."""
    found = _subfolders(folder)
    unknown = [name for name in found if name not in classes]
    if unknown:
        raise ValueError(f"folder {folder} has the class {unknown[0]!r}, expected only {list(classes)}")
    return [(file, classes.index(name)) for name, place in found.items() for file in image_files([place])]


def _shuffled(entries: list[Entry], *seed: int) -> list[Entry]:
    return [entries[index] for index in torch.randperm(len(entries), generator=seeded_generator(*seed)).tolist()]


def _random_split(entries: list[Entry], classes: Sequence[str], images: ImagesConfig) -> dict[str, list[Entry]]:
    """Split each class by the same fractions, rounded, with at least one image in each part whose fraction is not 0."""
    parts: dict[str, list[Entry]] = {name: [] for name in SPLITS}
    for number, name in enumerate(classes):
        mine = _shuffled([entry for entry in entries if entry[1] == number], images.seed, number)
        shares = (images.validation_share, images.test_share)
        validation, test = (max(1, round(share * len(mine))) if share else 0 for share in shares)
        train = len(mine) - validation - test
        if mine and train < 1:
            raise ValueError(
                f"class {name!r} has too few images to split: {len(mine)}, with {validation} held out for "
                f"validation and {test} for testing; at least one must be left for training"
            )
        parts["train"] += mine[:train]
        parts["validation"] += mine[train : train + validation]
        parts["test"] += mine[train + validation :]
    return parts


def _read(entries: list[Entry], images: ImagesConfig, channels: int) -> LabelledImages:
    """Read files with the settings `images` and 1 or 3 channels; with 0, all files must have the same number."""
    size = (images.side, images.side)
    pixels = [read_resized(path, size, channels=channels, invert=images.invert, fit=images.fit) for path, _ in entries]
    of_channels = {len(image): path for image, (path, _) in zip(pixels, entries, strict=True)}
    if len(of_channels) > 1:
        raise ValueError(
            f"some images are grey ({of_channels[1]}) and some in colour ({of_channels[3]}): "
            "choose images.channels 1 (grey) or 3 (colour) for all"
        )
    return LabelledImages(torch.stack(pixels), torch.tensor([label for _, label in entries]))
