"""Inside: filters of a layer at all orientations, and features that rotate with the image and shift over orientations.

R_{−φ} ζ(ρ_φ I) = ζ(I)    features of the rotated image, rotated back (§2): exact for quarter turns
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfcnn.classification import Classifier
from sfcnn.group import rotate, rotate_features
from sfcnn.nn import ConvBlock, GroupConv2d, LiftConv2d
from sfcnn.play import cells, digits
from sfcnn.play.drawing import as_bytes, picture
from sfcnn.play.networks import get_network
from sfcnn.play.page import SLOW, guarded
from sfcnn.pretrained import PRETRAINED
from sfcnn.segmentation.crops import standardize
from sfcnn.steering import orientation_angles, steer

#: Colour maps: blue, white, red; and dark blue, green, yellow.
_SIGNED = [(0.02, 0.19, 0.38), (0.40, 0.66, 0.81), (1.0, 1.0, 1.0), (0.94, 0.54, 0.38), (0.40, 0.0, 0.12)]
_POSITIVE = [(0.27, 0.0, 0.33), (0.23, 0.32, 0.55), (0.13, 0.57, 0.55), (0.37, 0.79, 0.38), (0.99, 0.91, 0.15)]

_BARE = "border:0 !important"  # Gradio draws lines around every table

_SIDE = 96  # of the input of a segmentation network

Steerable = LiftConv2d | GroupConv2d


def steerable_layers(network: Any) -> dict[str, Steerable]:
    """The steerable convolutions of a network from `sfcnn.load`, by name."""
    found = {name: module for name, module in network.network.named_modules() if isinstance(module, Steerable)}
    if not found:
        raise ValueError("a plain network has no steerable filters: choose a steerable one")
    return found


def filter_maps(layer: Steerable, output: int, inputs: int) -> Tensor:
    """One filter at all orientations of its layer, (Λ, s, s); for group convolutions, at relative orientation 0."""
    for name, number, size in (("output", output, layer.out_channels), ("input", inputs, layer.in_channels)):
        if not 0 <= number < size:
            raise ValueError(f"{name} channel {number} is not in the layer: choose 0 … {size - 1}")
    weight = layer.weight.detach()[output, inputs]
    weight = weight[0] if weight.dim() == 2 else weight  # (Λ, Q) of a group convolution
    angles = orientation_angles(layer.orientations)
    return steer(weight.double().cpu(), layer.basis, layer.kernel_size, angles)


@dataclass(frozen=True)
class TurnedFeatures:
    """Features (Λ, H, W) of one channel."""

    images: tuple[NDArray[np.float32], NDArray[np.float32]]  #: upright and rotated, (H, W)
    upright: Tensor
    turned: Tensor  #: of the rotated image
    back: Tensor  #: the same, rotated back and shifted
    error: float  #: ‖back − upright‖ / ‖upright‖ of all channels, inside the disk visible in both


def example_image(network: Any) -> Tensor:
    """An image (1, C, H, W) of the kind that the network expects: a digit, or membranes."""
    if isinstance(network, Classifier):
        settings = network.config.images
        if settings.dataset != "folder":
            return torch.from_numpy(digits.samples()[0][7])[None, None]
        side, channels = settings.side, settings.channels or 1
    else:
        side, channels = _SIDE, network.channels
    image = torch.from_numpy(cells.sample().image)[:side, :side]
    image = nn.functional.pad(image, (0, side - image.shape[1], 0, side - image.shape[0]))
    return image.expand(1, channels, -1, -1).contiguous()


def watch(network: Any, name: str, images: Tensor) -> Tensor:
    """Features (B, C, Λ, H, W) of a layer, with its batch norm and ReLU, for unprocessed images."""
    parent = name.rpartition(".")[0]
    block = network.network.get_submodule(parent) if parent else network.network
    watched = block if isinstance(block, ConvBlock) else network.network.get_submodule(name)
    kept: list[Tensor] = []
    hook = watched.register_forward_hook(lambda module, inputs, output: kept.append(output))
    try:
        with torch.inference_mode():
            if not isinstance(network, Classifier) and network.config.images.standardize:
                images = torch.stack([standardize(image) for image in images])
            network.network(images.to(network.device))
    finally:
        hook.remove()
    return kept[0].cpu()


def turned_features(network: Any, name: str, channel: int, steps: int) -> TurnedFeatures:
    """Features of a layer for an example image, and for the same image rotated by `steps` orientations."""
    layer = steerable_layers(network)[name]
    if not 0 <= channel < layer.out_channels:
        raise ValueError(f"channel {channel} is not in the layer: choose 0 … {layer.out_channels - 1}")
    angle = 2 * math.pi * steps / layer.orientations
    image = example_image(network)
    turned_image = rotate(image, angle)
    upright = watch(network, name, image)
    turned = watch(network, name, turned_image)
    back = rotate_features(turned, -angle, reflections=layer.reflections)
    inside = torch.from_numpy(cells.seen_twice(upright.shape[-1], math.degrees(angle)))
    difference = torch.linalg.vector_norm((back - upright) * inside)
    error = float(difference / torch.linalg.vector_norm(upright * inside).clamp_min(1e-12))
    pair = (image[0].mean(0).numpy(), turned_image[0].mean(0).numpy())
    return TurnedFeatures(pair, upright[0, channel], turned[0, channel], back[0, channel], error)


def filters_html(maps: Tensor) -> str:
    """Filters (Λ, s, s) in a row: red is positive, blue negative, white zero."""
    limit = float(maps.abs().max()) or 1.0
    shown = [_colored(one.numpy() / limit / 2 + 0.5, _SIGNED) for one in maps]
    angles = [f"{360 * index / len(maps):g}°" for index in range(len(maps))]
    return _grid([_cells(shown, 62, angles)], ["filter"])


def features_html(found: TurnedFeatures) -> str:
    """Three rows of features, one column per orientation, each row preceded by its image."""
    limit = float(torch.stack([found.upright, found.turned]).max()) or 1.0
    rows: list[str] = []
    heads: list[str] = []
    images = (found.images[0], found.images[1], found.images[0])
    parts = (found.upright, found.turned, found.back)
    for head, image, part in zip(("upright", "rotated", "rotated back"), images, parts, strict=True):
        shown = [_colored(one.numpy() / limit, _POSITIVE) for one in part]
        angles = [f"{360 * index / len(part):g}°" for index in range(len(part))] if not rows else []
        rows.append(_cells([as_bytes(image), *shown], 58, ["image", *angles] if angles else []))
        heads.append(head)
    return _grid(rows, heads)


def words(found: TurnedFeatures, degrees: float) -> str:
    """How exactly the features rotate."""
    exact = math.isclose(degrees % 90, 0)
    kind = "rounding" if exact else "the image and the features are resampled between pixels, so it is **not exact**"
    return (
        f"Rotated by {degrees:g}°, the features rotate with the image and shift along the orientation axis. Rotated "
        f"back, they differ from those of the upright image by {found.error:.1e} (relative, all channels): {kind}."
    )


def _colored(fraction: NDArray[Any], anchors: list[tuple[float, float, float]]) -> NDArray[np.uint8]:
    """Values from 0 to 1 in colours interpolated between anchors: (H, W) → (H, W, 3)."""
    places = np.linspace(0, 1, len(anchors))
    parts = [np.interp(fraction, places, part) for part in zip(*anchors, strict=True)]
    return as_bytes(np.stack(parts, -1))


def _cells(images: list[NDArray[Any]], width: int, captions: list[str]) -> str:
    captions = captions or [""] * len(images)
    return "".join(
        f'<td style="padding:2px;text-align:center;{_BARE}">{picture(image, width, caption)}'
        f'<div style="font-size:11px">{caption}</div></td>'
        for image, caption in zip(images, captions, strict=True)
    )


def _grid(rows: list[str], heads: list[str]) -> str:
    """A table that can be scrolled horizontally."""
    lines = "".join(
        f'<tr style="{_BARE}"><th style="padding-right:8px;font-size:12px;text-align:left;{_BARE}">{head}</th>'
        f"{row}</tr>"
        for head, row in zip(heads, rows, strict=True)
    )
    return f'<div style="overflow-x:auto"><table style="border-collapse:collapse;{_BARE}">{lines}</table></div>'


def tab(page: Any, device: str) -> None:
    """Lay out the tab and connect its events."""
    import gradio as gr

    def _network(run: str) -> Any:
        return get_network(run, device, purpose="inside")  # a separate copy, because hooks are added to it

    def _choose(run: str) -> tuple[Any, ...]:
        layers = steerable_layers(_network(run))
        first = next(iter(layers))
        return gr.Dropdown(list(layers), value=first), *_resize(run, first)

    def _resize(run: str, name: str) -> tuple[Any, ...]:
        layer = steerable_layers(_network(run))[name]
        return (
            gr.Slider(maximum=layer.out_channels - 1, value=0),
            gr.Slider(maximum=max(1, layer.in_channels - 1), value=0, visible=layer.in_channels > 1),
            gr.Slider(maximum=layer.orientations - 1, value=layer.orientations // 4),
        )

    def _show(run: str, name: str, output: int, inputs: int, steps: int) -> tuple[str, str, str]:
        network = _network(run)
        layer = steerable_layers(network)[name]
        found = turned_features(network, name, int(output), int(steps))
        degrees = 360 * steps / layer.orientations
        return filters_html(filter_maps(layer, int(output), int(inputs))), features_html(found), words(found, degrees)

    gr.Markdown("Inside a layer of a network: its filters, and its features for a rotated image.")
    names = [name for name in PRETRAINED if not name.endswith("-plain")]
    layers = list(steerable_layers(_network("mnist-rot")))
    with gr.Row():
        run = gr.Dropdown(names, value="mnist-rot", allow_custom_value=True, label="Network", elem_id="inside-run")
        layer = gr.Dropdown(layers, value=layers[0], label="Layer", elem_id="inside-layer")
        output = gr.Slider(0, 11, 0, step=1, label="Channel", elem_id="inside-output")
        inputs = gr.Slider(0, 1, 0, step=1, label="Input channel", visible=False)
        steps = gr.Slider(0, 15, 4, step=1, label="Rotate by this many orientations", elem_id="inside-steps")
    gr.Markdown("### The filter at all orientations")
    filters = gr.HTML(elem_id="inside-filters", min_height=90)
    gr.Markdown("### Features: one column per orientation")
    features = gr.HTML(elem_id="inside-features", min_height=220)
    text = gr.Markdown(elem_id="inside-words")
    everything, shown = [run, layer, output, inputs, steps], [filters, features, text]
    show: dict[str, Any] = {"fn": guarded(_show), "inputs": everything, "outputs": shown, "show_progress": "minimal"}
    page.load(**(show | {"show_progress": "hidden"}), **SLOW)
    run.change(guarded(_choose), run, [layer, output, inputs, steps], **SLOW).success(**show, **SLOW)
    layer.input(guarded(_resize), [run, layer], [output, inputs, steps], **SLOW).success(**show, **SLOW)
    for slider in (output, inputs, steps):
        slider.release(**show, **SLOW)
