"""The plugin's widget: choose a layer and a network, watch the progress, get layers with the results.

The work is done in another thread (`sfcnn.viewer.work`); this module has the fields and buttons and adds the layers.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from magicgui.types import FileDialogMode
from magicgui.widgets import CheckBox, ComboBox, Container, FileEdit, FloatSpinBox, Label, ProgressBar, PushButton

from sfcnn.viewer.layers import Source, pixel_size, take_layer
from sfcnn.viewer.results import add_results, summary
from sfcnn.viewer.work import Found, Options, segment_source, segmentation_names

if TYPE_CHECKING:
    from napari.layers import Layer
    from napari.viewer import Viewer

#: The network choice that shows the directory field.
OWN_RUN = "a run of mine …"

#: Choices of views to average over, and their names in `sfcnn.segmentation.tiles.AVERAGES`.
VIEWS = {"one view": "none", "4 rotations": "rotations", "4 rotations, mirrored too": "all"}

_STEPS = 1000  # of the progress bar


class Cancelled(Exception):
    """The user has cancelled the work."""


class SegmentWidget(Container):  # type: ignore[type-arg]
    """Segment an image layer with a network that comes with sfcnn, or with one of your own.

    Args:
        napari_viewer: napari passes its viewer under this name.
    """

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__(labels=False)
        self.viewer = napari_viewer
        self.worker: Any = None  # while there is work
        self.image = ComboBox(label="Image", choices=self._images, tooltip="the image layer to segment")
        self.network = ComboBox(
            label="Network",
            choices=[*segmentation_names(), OWN_RUN],
            tooltip="one that comes with sfcnn, or a run of your own",
        )
        self.run = FileEdit(
            label="Run", mode=FileDialogMode.EXISTING_DIRECTORY, tooltip="directory created by `sfcnn segment train`"
        )
        self.run.choose_btn.text = "…"
        self.pixel_size = FloatSpinBox(
            label="Pixel size",
            max=1000.0,
            step=0.001,
            tooltip="the image is rescaled to the pixel size of the training images; 0 leaves it as it is",
        )
        self.pixel_size.native.setDecimals(5)
        self.pixel_size.native.setSuffix(" µm")
        self.pixel_size.native.setSpecialValueText("0 (not rescaled)")
        self.average = ComboBox(
            label="Average",
            choices=list(VIEWS),
            tooltip="average the predictions for rotated and mirrored views, which takes 4 or 8 times as long",
        )
        self.slice_only = CheckBox(text="Visible slice only", tooltip="segment only the visible slice of a stack")
        self.invert = CheckBox(text="Invert", tooltip="swap black and white, e.g. for bright membranes")
        self.cells = CheckBox(
            value=True,
            text="Find cells",
            tooltip="label the cells between membranes, if the network predicts membranes",
        )
        self.start_button = PushButton(text="Segment")
        self.cancel_button = PushButton(text="Cancel", enabled=False)
        self.bar = ProgressBar(max=_STEPS)
        self.message = Label()
        self.message.native.setWordWrap(True)
        buttons = Container(widgets=[self.start_button, self.cancel_button], layout="horizontal", labels=False)
        # Label width is measured in a smaller font than napari's; the blanks add the missing room.
        checks = Container(widgets=[self.slice_only, self.invert, self.cells], labels=False, label=" " * 20)
        fields: Container[Any] = Container()
        fields.extend([self.image, self.network, self.run, self.pixel_size, self.average, checks])
        for part in (buttons, checks, fields):
            part.margins = (0, 0, 0, 0)
        self.extend([fields, buttons, self.bar, self.message])
        self.run.visible = self.bar.visible = False
        self.image.changed.connect(self._show_pixel_size)
        self.network.changed.connect(self._show_run)
        self.start_button.clicked.connect(self.start)
        self.cancel_button.clicked.connect(self.cancel)
        self.native.destroyed.connect(self._leave)
        self._show_pixel_size(self.image.value)

    def start(self) -> None:
        """Start segmenting; user errors are shown in the message."""
        from superqt.utils import create_worker

        if self.worker is not None:
            return
        try:
            dims = self.viewer.dims if self.slice_only.value else None
            source, options = take_layer(self.image.value, dims), self._options()
        except ValueError as error:
            self.message.value = _sentence(error)
            return
        worker = create_worker(self._work, source, options, _ignore_errors=True)
        self.worker = worker
        worker.returned.connect(self._add)
        worker.errored.connect(self._fail)
        worker.warned.connect(_warn)
        worker.finished.connect(partial(self._end, worker))
        self._show_busy(True)
        self.message.value = f"Segmenting {source.name} …"
        worker.start()

    def cancel(self) -> None:
        """Stop at the next step, without results."""
        if self.worker is not None:
            self.worker.quit()
            self.message.value = "Cancelling …"

    def _leave(self) -> None:
        """Stop the work without showing results, because the widget is closed."""
        if self.worker is not None:
            self.worker.quit()
            self.worker = None

    def _options(self) -> Options:
        run = self.network.value
        if run == OWN_RUN:
            run = self.run.line_edit.value.strip()
            if not run:
                raise ValueError("no run is chosen: choose a directory created by `sfcnn segment train`")
        average = VIEWS[self.average.value]
        return Options(run, self.invert.value, self.pixel_size.value, average, self.cells.value)

    def _work(self, source: Source, options: Options) -> Found:
        """The work of the other thread."""
        from superqt.utils import ensure_main_thread

        worker, show = self.worker, ensure_main_thread(self._show_progress)

        def progress(done: float) -> None:
            if worker.abort_requested:
                raise Cancelled
            show(worker, done)

        return segment_source(source, options, progress)

    def _add(self, found: Found) -> None:
        add_results(self.viewer, found)
        self.message.value = summary(found)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, Cancelled) or self.worker is None:
            return
        self.message.value = _sentence(error)
        if not isinstance(error, ValueError | OSError):  # not a user error: let napari show the traceback
            from napari.utils.notifications import notification_manager

            notification_manager.receive_error(type(error), error, error.__traceback__)

    def _end(self, worker: Any) -> None:
        if worker is not self.worker:
            return
        if worker.abort_requested:
            self.message.value = "Cancelled."
        self.worker = None
        self._show_busy(False)

    def _images(self, _: Any) -> "list[Layer]":
        from napari.layers import Image

        return [layer for layer in self.viewer.layers if isinstance(layer, Image)]

    def _show_pixel_size(self, layer: "Layer | None") -> None:
        self.pixel_size.value = min(pixel_size(layer), self.pixel_size.max)

    def _show_run(self, network: str) -> None:
        self.run.visible = network == OWN_RUN

    def _show_progress(self, worker: Any, done: float) -> None:
        if worker is self.worker:
            self.bar.value = round(_STEPS * done)

    def _show_busy(self, busy: bool) -> None:
        self.start_button.enabled = not busy
        self.cancel_button.enabled = busy
        self.bar.visible = busy
        self.bar.value = 0


def _sentence(error: Exception) -> str:
    """Format an error as a sentence, with a capital letter and a full stop."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _warn(warning: tuple[Any, ...]) -> None:
    from napari.utils.notifications import show_warning

    show_warning(str(warning[0]))
