"""What a user does with the widget: choose, press Segment, look at the layers, cancel, make mistakes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfcnn
from segmentation.test_predict import make_run
from sfcnn.pretrained import find_run
from viewer.conftest import wait_until

Segment = Callable[[], str]
RANDOM = np.random.default_rng(0)
STACK = RANDOM.integers(0, 256, (3, 24, 40), np.uint8)


@pytest.fixture
def run(widget: Any, tmp_path: Path) -> Callable[..., Any]:
    """Make a run of a small network and choose it; the network is returned."""
    from sfcnn.viewer.widget import OWN_RUN

    def make(**images: Any) -> Any:
        network = make_run(tmp_path / "run", **images)
        widget.network.value = OWN_RUN
        widget.run.line_edit.value = str(tmp_path / "run")
        return network

    return make


def names(viewer: Any) -> list[str]:
    return [layer.name for layer in viewer.layers]


def test_a_stack_is_segmented_as_the_command_does(viewer: Any, widget: Any, segment: Segment, run: Any) -> None:
    network = run()
    layer = viewer.add_image(STACK, name="em", scale=(40, 4, 4), translate=(0, 7, 8), units=("nm",) * 3)
    expected = sfcnn.cells.segment(network, STACK / np.float32(255))
    assert segment() == f"Found {expected.labels.max()} cells in 3 slices."
    assert names(viewer) == ["em", "em membranes", "em cells"]
    probabilities, cells = viewer.layers[1:]
    np.testing.assert_allclose(probabilities.data, expected.probabilities, atol=1e-6)
    np.testing.assert_array_equal(cells.data, expected.labels)
    assert tuple(probabilities.contrast_limits) == (0, 1)
    for found in (probabilities, cells):
        np.testing.assert_array_equal(found.scale, layer.scale)
        np.testing.assert_array_equal(found.translate, layer.translate)
        assert found.units == layer.units
    assert widget.image.value is layer  # results do not change the choice


def test_the_visible_slice_alone(viewer: Any, widget: Any, segment: Segment, run: Any) -> None:
    network = run()
    layer = viewer.add_image(STACK, name="em", scale=(10, 2, 2), translate=(5, 0, 0))
    viewer.dims.set_current_step(0, 1)
    widget.slice_only.value = True
    widget.cells.value = False
    expected = network.predict(STACK[1] / np.float32(255))
    message = segment()
    assert message == f"Of the pixels: membranes {(expected > 0.5).mean():.1%}."
    probabilities, labels = viewer.layers[1:]
    assert probabilities.name == "em membranes"
    assert labels.name == "em labels"
    np.testing.assert_allclose(probabilities.data, expected[None], atol=1e-6)
    np.testing.assert_array_equal(labels.data, (expected > 0.5)[None])
    np.testing.assert_allclose(labels.data_to_world((0, 2, 3)), layer.data_to_world((1, 2, 3)))


def test_networks_that_see_neighbours_see_them_in_the_viewer(
    viewer: Any, widget: Any, segment: Segment, run: Any
) -> None:
    network = run(neighbours=1)
    expected = network.predict(STACK / np.float32(255))
    viewer.add_image(np.stack([STACK, STACK[::-1]]), name="em")
    segment()
    np.testing.assert_allclose(viewer.layers["em membranes"].data[0], expected, atol=1e-6)
    reverse = network.predict(STACK[::-1] / np.float32(255))
    np.testing.assert_allclose(viewer.layers["em membranes"].data[1], reverse, atol=1e-6)
    viewer.dims.set_current_step(0, 1)
    widget.slice_only.value = True
    for z in range(3):
        viewer.dims.set_current_step(1, z)
        segment()
        np.testing.assert_allclose(viewer.layers[-2].data, reverse[None, [z]], atol=1e-6)
    viewer.layers.clear()
    viewer.add_image(STACK[0], name="one")
    widget.slice_only.value = False
    segment()
    alone = network.predict(STACK[0] / np.float32(255))
    np.testing.assert_allclose(viewer.layers["one membranes"].data, alone, atol=1e-6)


def test_options_reach_the_network(viewer: Any, widget: Any, segment: Segment, run: Any) -> None:
    network = run(pixel_size=0.004)
    image = RANDOM.random((32, 48)).astype(np.float32)
    viewer.add_image(image, name="em", scale=(8, 8), units=("nm", "nm"))
    assert widget.pixel_size.value == pytest.approx(0.008)
    widget.cells.value = False
    widget.invert.value = True
    widget.average.value = "4 rotations, mirrored too"  # rotations alone change nothing, mirrors do
    segment()
    options: dict[str, Any] = {"invert": True, "average": "all", "pixel_size": 0.008}
    np.testing.assert_allclose(viewer.layers[1].data, network.predict(image, **options), atol=1e-6)
    for name in options:
        others = {key: value for key, value in options.items() if key != name}
        assert not np.allclose(viewer.layers[1].data, network.predict(image, **others), atol=1e-6)


def test_averages_are_those_of_predictions() -> None:
    from sfcnn.segmentation.tiles import AVERAGES
    from sfcnn.viewer.widget import VIEWS

    assert list(VIEWS.values()) == list(AVERAGES)


def test_several_classes_are_labels(viewer: Any, widget: Any, segment: Segment, run: Any) -> None:
    network = run(channels=3, classes=("ground", "cell", "nucleus"))
    photograph = RANDOM.integers(0, 256, (20, 28, 3), np.uint8)
    viewer.add_image(photograph, name="photograph", rgb=True)
    expected = network.predict(photograph / np.float32(255)).argmax(0)
    shares = [f"{name} {(expected == number).mean():.1%}" for number, name in enumerate(network.classes)]
    assert segment() == f"Of the pixels: {', '.join(shares)}."
    assert names(viewer) == ["photograph", "photograph labels"]
    labels = viewer.layers[1]
    np.testing.assert_array_equal(labels.data, expected)
    assert list(labels.features["class"]) == ["ground", "cell", "nucleus"]


def test_the_network_that_ships(viewer: Any, widget: Any, segment: Segment) -> None:
    from sfcnn.viewer.samples import membranes

    [(stack, options, _)] = membranes()
    viewer.add_image(stack[0, :128, :128], **options)
    assert widget.network.value == "isbi2012"
    expected = sfcnn.cells.segment(sfcnn.load("isbi2012"), stack[0, :128, :128] / np.float32(255))
    assert expected.labels.max() > 5
    assert segment() == f"Found {expected.labels.max()} cells."
    np.testing.assert_array_equal(viewer.layers[2].data, expected.labels)


def test_cancel_ends_the_work_and_adds_nothing(viewer: Any, widget: Any, segment: Segment, run: Any) -> None:
    run()
    layer = viewer.add_image(np.broadcast_to(STACK[0], (5000, *STACK[0].shape)), name="em")
    widget.start_button.native.click()
    assert not widget.start_button.enabled
    wait_until(lambda: widget.bar.value > 0)
    assert widget.bar.value < widget.bar.max / 2
    widget.cancel_button.native.click()
    assert widget.message.value == "Cancelling …"
    wait_until(lambda: widget.worker is None)
    assert widget.message.value == "Cancelled."
    assert names(viewer) == ["em"]
    layer.data = STACK[:1]
    assert segment().startswith("Found ")  # and it can start again
    assert len(viewer.layers) == 3


def test_closing_the_widget_ends_its_work(viewer: Any, widget: Any, run: Any) -> None:
    from qtpy.QtCore import QEvent
    from qtpy.QtWidgets import QApplication

    run()
    viewer.add_image(np.broadcast_to(STACK[0], (5000, *STACK[0].shape)), name="em")
    widget.start_button.native.click()
    wait_until(lambda: widget.bar.value > 0)
    worker, ended = widget.worker, []
    worker.finished.connect(lambda: ended.append(True))
    widget.native.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)  # which a running event loop would do
    assert widget.worker is None
    assert worker.abort_requested
    wait_until(lambda: bool(ended))
    QApplication.processEvents()
    assert names(viewer) == ["em"]


def test_mistakes_are_sentences(viewer: Any, widget: Any, segment: Segment, run: Any, tmp_path: Path) -> None:
    from sfcnn.viewer.widget import OWN_RUN

    def mistake() -> str:
        before = names(viewer)
        message = segment()
        assert names(viewer) == before
        assert message[0].isupper() or message.startswith(("em", "/"))
        assert message.endswith(".")
        assert "\n" not in message
        return message

    assert mistake() == "There is no image layer: open an image first."
    image = viewer.add_image(STACK, name="Em")
    widget.network.value = OWN_RUN
    assert mistake() == "No run is chosen: choose a directory created by `sfcnn segment train`."
    widget.run.line_edit.value = str(tmp_path / "nothing")
    assert mistake().startswith(f"No run {tmp_path / 'nothing'}: expected a directory created by training, or one of")
    widget.run.line_edit.value = str(tmp_path)
    assert f"{tmp_path} is not a run, since it has no config.yaml" in mistake()
    widget.run.line_edit.value = str(find_run("mnist-rot"))
    assert "is a classification network, expected a segmentation network, such as isbi2012" in mistake()
    run(pixel_size=0.004)
    widget.pixel_size.value = 4
    assert "too far from that of the training images" in mistake()
    widget.pixel_size.value = 0
    viewer.dims.ndisplay = 3
    widget.slice_only.value = True
    assert mistake().startswith("The viewer does not show a slice of the last two axes of Em: ")
    widget.slice_only.value = False
    image.data = STACK.astype(np.int32)
    assert mistake() == "Em has values of type int32, expected one of uint8, uint16, float32."
    viewer.layers.clear()
    assert mistake() == "There is no image layer: open an image first."
    viewer.add_image(RANDOM.integers(0, 256, (20, 28, 3), np.uint8), name="Photograph", rgb=True)
    assert mistake().startswith("Photograph is a colour image, but this network takes grey images: ")


def test_other_errors_are_shown_by_napari(
    viewer: Any, widget: Any, segment: Segment, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not the user's mistake has a place in the code, which napari shows."""
    from napari.utils.notifications import notification_manager

    network = run()
    monkeypatch.setattr(type(network), "predict", lambda *_, **__: 1 / 0)
    viewer.add_image(STACK, name="em")
    notification_manager.records.clear()
    assert segment() == "Division by zero."
    [record] = notification_manager.records
    assert isinstance(record.exception, ZeroDivisionError)
    notification_manager.records.clear()


def test_fields_follow_what_is_chosen(viewer: Any, widget: Any) -> None:
    from sfcnn.viewer.widget import OWN_RUN

    widget.show()
    assert not widget.run.visible
    widget.network.value = OWN_RUN
    assert widget.run.visible
    assert widget.pixel_size.value == 0
    viewer.add_image(STACK, name="pixels", scale=(3, 3, 3))
    assert widget.pixel_size.value == 0
    viewer.add_labels(STACK.astype(int), name="labels")
    fine = viewer.add_image(STACK, name="fine", scale=(50, 5, 5), units=("nm",) * 3)
    assert [layer.name for layer in widget.image.choices] == ["pixels", "fine"]
    widget.image.value = fine
    assert widget.pixel_size.value == pytest.approx(0.005)


def test_a_picture_of_the_widget(viewer: Any, widget: Any, tmp_path: Path) -> None:
    widget.show()
    picture = widget.native.grab()
    assert picture.save(str(tmp_path / "widget.png"))
    from PIL import Image

    with Image.open(tmp_path / "widget.png") as image:
        assert image.height > 150
        assert len(image.convert("L").getcolors() or []) > 10
