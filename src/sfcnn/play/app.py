"""The page: its tabs, its style, and the server, local to this machine by default."""

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported: no telemetry
os.environ.setdefault("MPLBACKEND", "agg")  # otherwise Gradio makes matplotlib search for one and write a font cache

#: Largest accepted file.
LARGEST_FILE = "64mb"

_STYLE = """
.gradio-container { max-width: 1180px !important; margin: 0 auto !important; }
footer { display: none !important; }
#verdict p { margin: 4px 0; }
#samples .grid-container { grid-template-columns: repeat(5, minmax(0, 1fr)) !important; gap: 4px !important;
  grid-auto-rows: min-content !important; grid-template-rows: none !important; align-content: start; }
#samples .thumbnail-lg { height: auto !important; aspect-ratio: 1; }
#samples .grid-wrap { overflow: hidden !important; padding-top: 30px; }
"""

_KEPT = (600, 3600)  # every ten minutes, delete files older than an hour


def make_page(device: str = "auto") -> Any:
    """The page as `gradio.Blocks`, not yet served."""
    import gradio as gr

    from sfcnn.play import cells, digits, inside, own

    tabs = {"Digits": digits.tab, "Cells": cells.tab, "Own network": own.tab, "Inside": inside.tab}
    with gr.Blocks(title="sfcnn", analytics_enabled=False, delete_cache=_KEPT) as page:
        gr.Markdown("# sfcnn\nNetworks whose predictions rotate with the image.")
        for name, tab in tabs.items():
            with gr.Tab(name, id=name):
                tab(page, device)
    return page.queue(default_concurrency_limit=2, api_open=False)


def _theme() -> Any:
    """The theme, with system fonts, so that none are downloaded."""
    import gradio as gr

    sans, mono = ("ui-sans-serif", "system-ui", "sans-serif"), ("ui-monospace", "monospace")
    return gr.themes.Default(primary_hue="blue", secondary_hue="blue", font=sans, font_mono=mono)


@contextmanager
def own_folder() -> Iterator[str]:
    """Yield a temporary folder for all files written in the block, and remove it at the end."""
    earlier, variable = tempfile.tempdir, os.environ.get("GRADIO_TEMP_DIR")
    with tempfile.TemporaryDirectory(prefix="sfcnn-play-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = earlier
            del os.environ["GRADIO_TEMP_DIR"]
            if variable is not None:
                os.environ["GRADIO_TEMP_DIR"] = variable


@contextmanager
def served(host: str = "127.0.0.1", port: int = 0, device: str = "auto") -> Iterator[str]:
    """Serve the page and yield its address; no files are left behind.

    Args:
        host: address to listen on; any other than 127.0.0.1 gives other machines access.
        port: to listen on, 0 for any free one.
        device: where networks compute, one of `sfcnn.devices.DEVICES`.
    """
    port = free_port(host, port)
    with own_folder():
        page = make_page(device)
        from sfcnn.play.digits import ask_all, samples

        ask_all(samples()[0][0], device)  # builds the filters, so that the first request does not wait for them
        try:
            page.launch(
                server_name=host,
                server_port=port,
                theme=_theme(),
                css=_STYLE,
                max_file_size=LARGEST_FILE,
                prevent_thread_lock=True,
                quiet=True,
                share=False,
                ssr_mode=False,
                pwa=False,
                mcp_server=False,
                run_history=False,
                enable_monitoring=False,
                show_error=True,
                footer_links=[],
            )
            yield f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        finally:
            page.close(verbose=False)


def serve(host: str, port: int, device: str, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C or SIGTERM; `say` is called with messages for the user."""
    ended = threading.Event()
    with served(host, port, device) as address:
        earlier = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            say(f"open {address} in a browser; press Ctrl-C to stop")
            if not host.startswith("127."):
                say("other machines can open this page and load any run on this machine whose path they know")
            ended.wait()
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
    say("stopped")


def free_port(host: str, port: int) -> int:
    """The port, if it is available; for 0, any available one."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be in 0 … 65535, got {port}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ValueError(
                f"cannot listen on {host}, port {port} ({error.strerror}): choose another --port"
            ) from error
        return int(probe.getsockname()[1])
