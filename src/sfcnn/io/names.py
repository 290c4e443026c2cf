"""Trained networks by name: the directory of a run, or the name of a pretrained network."""

from pathlib import Path

#: The directory of the pretrained networks (`sfcnn.pretrained`), each a run with a model card.
SHIPPED = Path(__file__).parents[1] / "pretrained"


def shipped_names() -> list[str]:
    """The names of the pretrained networks, sorted."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/card.json"))


def find_run(run: Path | str) -> Path:
    """The directory of a run: the given path if it exists, else the pretrained network of this name."""
    directory = Path(run)
    if directory.exists():
        return directory
    names = shipped_names()
    if str(run) not in names:
        raise ValueError(f"no run {run}: expected a directory created by training, or one of {', '.join(names)}")
    return SHIPPED / str(run)
