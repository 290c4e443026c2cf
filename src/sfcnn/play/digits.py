"""Digits: predictions of a steerable network and a plain CNN of the same size for a rotated digit."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sfcnn.classification import Classifier
from sfcnn.classification.augmentation import rotate_each
from sfcnn.classification.labelled import DIGITS
from sfcnn.io.ink import find_ink, fit_ink, is_dark
from sfcnn.play.drawing import as_bytes, bars, curves, legend, picture
from sfcnn.play.networks import get_classifier, plain_counterpart, stated_error
from sfcnn.play.page import guarded

#: Select the brush when the sketchpad opens.
_BRUSH = """() => {
  const timer = setInterval(() => {
    const brush = document.querySelector("#sketch button[aria-label=Brush]");
    if (brush) { brush.click(); clearInterval(timer); }
  }, 300);
}"""

#: The steerable network; the plain one has the same name with "-plain".
NETWORK = "mnist-rot"

#: Angles in degrees at which both networks are evaluated, in one batch; they include 45° and the quarter turns.
ANGLES = tuple(range(0, 360, 15))

_SIDE = 28
_FIRST = 13  # the sample shown at the start
_SAMPLES = Path(__file__).with_name("digits.png")

Digit = NDArray[np.float32]  # (28, 28), bright ink on black, from 0 to 1


class Answers(NamedTuple):
    """Predictions for a digit at all `ANGLES`; kept by a session until its digit changes."""

    digit: Digit
    probabilities: dict[str, NDArray[np.float32]]  #: by kind of network: (angles, 10)


@lru_cache(maxsize=1)
def samples() -> tuple[list[Digit], list[int]]:
    """Twenty digits and their classes: the first two of each class in MNIST's t10k file, not used for training.

    Yann LeCun and Corinna Cortes hold the copyright of MNIST: Creative Commons Attribution-Share Alike 3.0.
    """
    with Image.open(_SAMPLES) as image:
        strip = np.asarray(image, np.float32) / 255
    rows, columns = strip.shape[0] // _SIDE, strip.shape[1] // _SIDE
    digits = strip.reshape(rows, _SIDE, columns, _SIDE).swapaxes(1, 2).reshape(-1, _SIDE, _SIDE)
    return list(digits), [number % columns for number in range(len(digits))]


def drawn_digit(drawing: Mapping[str, Any] | None) -> Digit:
    """The drawing on the sketchpad in the format of MNIST's digits (`sfcnn.io.ink`)."""
    pixels = None if drawing is None else drawing.get("composite")
    if pixels is None:
        raise ValueError("draw a digit first: the sketchpad is empty")
    values = np.asarray(pixels, np.float32) / 255
    opacity = values[..., 3:] if values.shape[-1] == 4 else np.ones_like(values[..., :1])
    grey = (values[..., :3] * opacity + (1 - opacity)).mean(-1)
    if grey.max() - grey.min() < 0.1:
        raise ValueError("draw a digit first: the sketchpad is empty")
    return fit_ink(find_ink(grey, is_dark(grey)), _SIDE)


def turn(digit: Digit, degrees: Sequence[float]) -> Tensor:
    """The digit rotated counter-clockwise by each of the angles: (N, 1, 28, 28)."""
    angles = torch.tensor([math.radians(angle) for angle in degrees], dtype=torch.float64)
    return rotate_each(torch.from_numpy(digit).expand(len(angles), 1, -1, -1), angles)


def ask(network: Classifier, images: Tensor) -> NDArray[np.float32]:
    """Probabilities (N, classes) of images (N, C, H, W)."""
    with torch.inference_mode():
        return network.network(images.to(network.device)).softmax(1).cpu().numpy()


def networks(device: str = "auto") -> dict[str, Classifier]:
    """The networks to compare, by kind."""
    plain = plain_counterpart(NETWORK)
    names = {"steerable": NETWORK} | ({"plain": plain} if plain else {})
    return {kind: get_classifier(name, device) for kind, name in names.items()}


def ask_all(digit: Digit, device: str = "auto") -> Answers:
    """Predictions of the networks at all `ANGLES`."""
    images = turn(digit, ANGLES)
    return Answers(digit, {kind: ask(network, images) for kind, network in networks(device).items()})


def introduction(device: str = "auto") -> str:
    """The introduction of the tab."""
    plain = plain_counterpart(NETWORK)
    if not plain:
        return "Rotate a digit and see the predictions of a steerable network."
    epochs = {kind: network.config.optimization.epochs for kind, network in networks(device).items()}
    return (
        "Rotate a digit. The plain CNN has as many parameters as the steerable network and was trained on the same "
        f"12,000 rotated digits, for {epochs['plain']} epochs instead of {epochs['steerable']}. Its error on randomly "
        f"rotated test digits is {stated_error(plain):.1f} %, that of the steerable network "
        f"{stated_error(NETWORK):.1f} %."
    )


def show(answers: Answers, degrees: float, label: int, device: str = "auto") -> str:
    """The digit at one angle with its class probabilities, and the probability of class `label` at all angles."""
    image = turn(answers.digit, [degrees])
    now = {kind: ask(network, image)[0].tolist() for kind, network in networks(device).items()}
    said = "<br>".join(f"{kind}: <b>{np.argmax(row)}</b> ({max(row):.0%})" for kind, row in now.items())
    curve = {kind: rows[:, label].tolist() for kind, rows in answers.probabilities.items()}
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:20px;align-items:center">'
        f"<div>{picture(as_bytes(image[0, 0].numpy()), 168, 'the rotated digit')}</div>"
        f'<div style="min-width:130px">at {degrees:g}°<br>{said}</div>'
        f'<div style="flex:1;min-width:280px">{bars(DIGITS, now, "probabilities of the ten digits")}</div></div>'
        f'<div style="margin-top:10px"><b>Probability of {label} at every angle</b>{legend(list(curve))}</div>'
        f"{curves(ANGLES, curve, degrees, 'probability against angle', exact=(0, 90, 180, 270, 360))}"
    )


def verdict(answers: Answers, label: int) -> str:
    """A summary of how much rotation changes, including where the steerable network is not exact."""
    lines = []
    for kind, rows in answers.probabilities.items():
        quarter = np.abs(rows[[ANGLES.index(angle) for angle in (90, 180, 270)]] - rows[0]).max()
        between = np.abs(rows[ANGLES.index(45)] - rows[0]).max()
        values = rows[:, label]
        low, wrong = int(values.argmin()), int((rows.argmax(1) != label).sum())
        spread = (
            f"The probability of {label} is {values[0]:.3f} upright, {values[ANGLES.index(45)]:.3f} at 45°, and at "
            f"worst {values[low]:.3f} at {ANGLES[low]}°; {wrong} of {len(ANGLES)} angles are misclassified."
        )
        if kind == "steerable":
            lines.append(
                f"**Steerable.** Quarter turns change no probability by more than {quarter:.0e}, which is rounding. At "
                f"45° it is **not exact**: the image is resampled between pixels, and probabilities change by up to "
                f"{between:.2g}. {spread}"
            )
        else:
            lines.append(
                f"**Plain.** Quarter turns change probabilities by up to {quarter:.2g}, 45° by up to {between:.2g}. "
                f"{spread}"
            )
    return "\n\n".join(lines)


def tab(page: Any, device: str) -> None:
    """Lay out the tab and connect its events."""
    import gradio as gr

    digits, labels = samples()
    answers = gr.State()

    def _view(found: Answers | None, degrees: float, label: str) -> str:
        return "" if found is None else show(found, degrees, int(label), device)

    def _pick(degrees: float, chosen: gr.SelectData) -> tuple[Any, ...]:
        return _take(digits[chosen.index], str(labels[chosen.index]), degrees)

    def _take(digit: Digit, label: str | None, degrees: float) -> tuple[Any, ...]:
        found = ask_all(digit, device)
        label = label or str(found.probabilities["steerable"][0].argmax())
        return found, label, _view(found, degrees, label), verdict(found, int(label))

    def _draw(drawing: dict[str, Any] | None, degrees: float) -> tuple[Any, ...]:
        try:
            digit = drawn_digit(drawing)
        except ValueError:  # the sketchpad was cleared
            return tuple(gr.skip() for _ in range(4))
        return _take(digit, None, degrees)

    def _start(degrees: float) -> tuple[Any, ...]:
        return _take(digits[_FIRST], str(labels[_FIRST]), degrees)

    def _relabel(found: Answers | None, degrees: float, label: str) -> tuple[str, str]:
        return _view(found, degrees, label), "" if found is None else verdict(found, int(label))

    gr.Markdown(introduction(device))
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            shown = gr.Gallery(
                [as_bytes(np.kron(digit, np.ones((3, 3)))) for digit in digits],
                label="Choose a digit …",
                columns=5,
                height=325,
                allow_preview=False,
                object_fit="contain",
                elem_id="samples",
                interactive=False,
                buttons=[],
            )
            sketch = gr.Sketchpad(
                label="… or draw one",
                brush=gr.Brush(default_size=14, colors=["#000000"], default_color="#000000", color_mode="fixed"),
                canvas_size=(280, 280),
                fixed_canvas=True,
                layers=False,
                transforms=(),
                height=340,
                buttons=[],
                elem_id="sketch",
            )
        with gr.Column(scale=4, min_width=420):
            angle = gr.Slider(0, 360, 0, step=1, label="Angle in degrees, counter-clockwise", elem_id="digit-angle")
            truth = gr.Radio(list(DIGITS), value=str(labels[_FIRST]), label="The digit is a", elem_id="truth")
            view = gr.HTML(elem_id="digit-view", min_height=440)
            words = gr.Markdown(elem_id="verdict")

    everything = [answers, truth, view, words]
    live: dict[str, Any] = {"show_progress": "hidden", "trigger_mode": "always_last"}
    page.load(None, None, None, js=_BRUSH)
    page.load(guarded(_start), angle, everything, show_progress="hidden")
    shown.select(guarded(_pick), angle, everything, show_progress="minimal")
    sketch.change(guarded(_draw), [sketch, angle], everything, **live)
    angle.change(guarded(_view), [answers, angle, truth], view, **live)
    truth.input(guarded(_relabel), [answers, angle, truth], [view, words], **live)
