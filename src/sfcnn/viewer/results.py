"""Layers with the results, over the segmented image."""

from typing import TYPE_CHECKING

from sfcnn.viewer.work import Found

if TYPE_CHECKING:
    from napari.viewer import Viewer


def add_results(viewer: "Viewer", found: Found) -> None:
    """Add probabilities as an image layer, if there is one class, and cells or classes as a labels layer."""
    name, place = found.source.name, found.source.place
    if found.probabilities is not None:
        viewer.add_image(
            found.probabilities,
            name=f"{name} {found.classes[0]}",
            colormap="magma",
            contrast_limits=(0, 1),
            blending="additive",
            **place,
        )
    features = None if found.cells or len(found.classes) == 1 else {"class": list(found.classes)}
    viewer.add_labels(
        found.labels, name=f"{name} {'cells' if found.cells else 'labels'}", opacity=0.4, features=features, **place
    )


def summary(found: Found) -> str:
    """Summarise the results in a sentence."""
    if found.cells:
        slices = found.labels.size // (found.labels.shape[-1] * found.labels.shape[-2])
        count = int(found.labels.max())
        where = f" in {slices} slices" if slices > 1 else ""
        return f"Found {count} cell{'' if count == 1 else 's'}{where}."
    parts = [f"{name} {(found.labels == number).mean():.1%}" for number, name in enumerate(found.classes)]
    if len(found.classes) == 1:
        parts = [f"{found.classes[0]} {(found.labels == 1).mean():.1%}"]
    return f"Of the pixels: {', '.join(parts)}."
