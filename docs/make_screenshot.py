"""The screenshot of the plugin in docs/napari.md: `python docs/make_screenshot.py docs/figures/napari.png`.

It opens napari with the sample and the widget, as a user would, segments one slice, and takes a screenshot.
Without a display, use Xvfb: `xvfb-run -s '-screen 0 1400x900x24' python docs/make_screenshot.py PICTURE.png`.
"""

import argparse
import time
from pathlib import Path

import napari
import npe2
from qtpy.QtWidgets import QApplication

import sfcnn


def register() -> None:
    """Let napari know the plugin, also where sfcnn is not installed but on the path."""
    manager = npe2.PluginManager.instance()
    manager.discover()
    if "sfcnn" not in manager:
        manager.register(npe2.PluginManifest.from_file(Path(sfcnn.__path__[0]) / "napari.yaml"))


def process_events(seconds: float) -> None:
    """Let the window redraw."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        QApplication.processEvents()
        time.sleep(0.01)


def main() -> None:
    """Write the screenshot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--slice", type=int, default=1, help="of the sample, counted from 0")
    arguments = parser.parse_args()
    register()
    viewer = napari.Viewer()
    viewer.window.resize(1200, 760)
    viewer.open_sample("sfcnn", "synthetic_membranes")
    _, widget = viewer.window.add_plugin_dock_widget("sfcnn", "Segment images")
    viewer.dims.set_current_step(0, arguments.slice)
    widget.slice_only.value = True
    widget.network.value = "isbi2012"
    widget.start()
    while widget.worker is not None:
        process_events(0.1)
    viewer.reset_view()
    process_events(1)
    viewer.window.screenshot(str(arguments.out))
    print([layer.name for layer in viewer.layers], widget.message.value)
    viewer.close()


if __name__ == "__main__":
    main()
