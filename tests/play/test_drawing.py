"""Charts and pictures in the text of the page."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from sfcnn.play.drawing import bars, curves, legend, paint_labels, picture


def test_pictures_hold_their_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    text = picture(pixels, 70, 'a "title"')
    data = re.search(r"base64,([^\"]+)", text)
    assert data is not None
    with Image.open(io.BytesIO(base64.b64decode(data[1]))) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)
    assert "&quot;title&quot;" in text


def test_bars_are_as_tall_as_probabilities() -> None:
    chart = ElementTree.fromstring(bars(["a", "<b>"], {"steerable": [0.25, 0.75], "plain": [1.0, 0.0]}, "chart"))
    heights = [float(bar.attrib["height"]) for bar in chart.iter("rect")]
    np.testing.assert_allclose(np.array(heights) / heights[2], [0.25, 0.75, 1, 0], atol=0.01)
    assert [text.text for text in chart.iter("text")][-2:] == ["a", "<b>"]


def test_curves_close_the_circle_and_mark_an_angle() -> None:
    chart = ElementTree.fromstring(curves([0, 90, 180, 270], {"plain": [1, 0.5, 0, 0.5]}, 90, "curve", exact=(90,)))
    (line,) = chart.iter("polyline")
    points = np.array([[float(part) for part in pair.split(",")] for pair in line.attrib["points"].split()])
    assert points.shape == (5, 2)
    assert points[0, 1] == points[4, 1]
    np.testing.assert_allclose(np.diff(points[:, 0]), points[1, 0] - points[0, 0], atol=0.11)
    marks = [float(mark.attrib["x1"]) for mark in chart.iter("line") if mark.attrib["x1"] == mark.attrib["x2"]]
    np.testing.assert_allclose(marks, points[1, 0], atol=0.11)
    assert "plain" in legend(["plain"])


def test_each_label_has_its_colour() -> None:
    painted = paint_labels(np.full((2, 3), 0.5), np.array([[0, 1, 2], [0, 1, 3]]))
    assert len({tuple(color) for color in painted.reshape(-1, 3).tolist()}) == 4
    assert len(set(painted[0, 0].tolist())) == 1  # none where there is no cell
