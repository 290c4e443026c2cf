"""A viewer without a screen: napari's own model of layers and sliders with our Qt widget, off-screen.

The canvas needs OpenGL, which off-screen Qt has not; `test_plugin.py` opens a whole window on a virtual screen.
"""

import importlib
import os
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")  # before Qt is imported
os.environ.setdefault("NAPARI_CONFIG", "")  # leave the user's settings alone

#: Longest time to wait for work, in seconds.
PATIENCE = 120


def missing() -> str:
    """Why there can be no widget here, or nothing."""
    for name in ("qtpy.QtWidgets", "napari.components", "napari.layers", "napari.utils.notifications", "npe2"):
        try:
            with warnings.catch_warnings(action="ignore"):  # napari and npe2 define models in pydantic's older ways
                importlib.import_module(name)
        except Exception as error:  # a package, or a library of the system that Qt needs
            return f"{name} cannot be imported: {error}"
    return ""


REASON = missing()


def wait_until(done: Callable[[], bool]) -> None:
    """Let Qt do its work until something has happened."""
    from qtpy.QtWidgets import QApplication

    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "waited too long"
        QApplication.processEvents()
        time.sleep(0.002)


@pytest.fixture(scope="session")
def app() -> Any:
    """Qt, which there can be only once in a process."""
    if REASON:
        pytest.skip(REASON)
    from qtpy.QtWidgets import QApplication

    return QApplication.instance() or QApplication([])


@pytest.fixture
def viewer(app: Any) -> Any:
    from napari.components import ViewerModel

    return ViewerModel()


@pytest.fixture
def widget(viewer: Any) -> Any:
    """Our widget, connected to the viewer's layers as a window does it."""
    from sfcnn.viewer.widget import SegmentWidget

    widget = SegmentWidget(viewer)
    for event in (viewer.layers.events.inserted, viewer.layers.events.removed):
        event.connect(widget.reset_choices)
    yield widget
    widget.cancel()
    wait_until(lambda: widget.worker is None)
    for event in (viewer.layers.events.inserted, viewer.layers.events.removed):
        event.disconnect(widget.reset_choices)
    with suppress(RuntimeError):  # a test may have deleted it
        widget.close()


@pytest.fixture
def segment(widget: Any) -> Callable[[], str]:
    """Press the button, wait, and return the message."""

    def run() -> str:
        widget.start_button.native.click()
        wait_until(lambda: widget.worker is None)
        assert widget.start_button.enabled
        assert not widget.cancel_button.enabled
        return str(widget.message.value)

    return run
