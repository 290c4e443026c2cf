"""How napari finds the plugin: its manifest, and a whole window on a virtual screen."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfcnn.viewer
from viewer.conftest import PATIENCE, REASON

if REASON:
    pytest.skip(REASON, allow_module_level=True)

ROOT = Path(__file__).parents[2]


def test_the_manifest_is_valid_and_where_napari_looks() -> None:
    from npe2 import PluginManifest

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [(name, place)] = project["entry-points"]["napari.manifest"].items()
    package, file = place.split(":")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    manifest = PluginManifest.from_file(Path(spec.submodule_search_locations[0]) / file)
    assert manifest.name == project["name"] == name
    manifest.validate_imports()  # every command is there
    assert [widget.display_name for widget in manifest.contributions.widgets] == ["Segment images"]
    assert [sample.key for sample in manifest.contributions.sample_data] == ["synthetic_membranes"]


def test_napari_finds_the_plugin_without_importing_torch() -> None:
    """Which takes seconds, and not everyone who opens napari wants to segment something."""
    script = """
import sys
from npe2 import PluginManager
PluginManager.instance().discover()
print("sfcnn" in PluginManager.instance(), [name for name in ("sfcnn", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


def test_qt_is_imported_with_the_first_widget() -> None:
    """So that the module can be read where Qt's libraries are not installed."""
    script = "import sys, sfcnn.viewer.widget; print([name for name in ('PyQt6', 'napari') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def screen() -> Iterator[dict[str, str]]:
    """The environment of a process that draws on a virtual screen, with OpenGL in software.

    Qt's platform is xcb: off-screen it has no QOpenGLWidget, and napari then finds OpenGL at some times only.
    """
    program = shutil.which("Xvfb")
    if program is None:
        pytest.skip("Xvfb is not installed")
    reader, writer = os.pipe()
    words = [program, "-displayfd", str(writer), "-screen", "0", "1400x900x24", "-nolisten", "tcp"]
    server = subprocess.Popen(words, pass_fds=[writer], stderr=subprocess.DEVNULL)
    os.close(writer)
    try:
        with os.fdopen(reader) as pipe:
            display = f":{pipe.readline().strip()}"
        settings = {"DISPLAY": display, "QT_QPA_PLATFORM": "xcb", "LIBGL_ALWAYS_SOFTWARE": "1", "NAPARI_CONFIG": ""}
        environment = {**os.environ, **settings}
        probe = [sys.executable, "-c", "from qtpy.QtWidgets import QApplication; QApplication([])"]
        if subprocess.run(probe, env=environment, capture_output=True, check=False).returncode:
            pytest.skip("Qt cannot draw on X11: install libxcb-cursor0, libxcb-icccm4 and libxcb-keysyms1")
        yield environment
    finally:
        server.terminate()
        server.wait()


def test_a_user_opens_the_sample_and_the_widget_in_napari(screen: dict[str, str], tmp_path: Path) -> None:
    """As in the documentation, whose picture this makes."""
    path = os.pathsep.join([str(Path(sfcnn.viewer.__path__[0]).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "docs/make_screenshot.py", str(tmp_path / "napari.png")],
        cwd=ROOT,
        env={**screen, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "['synthetic slices', 'synthetic slices membranes', 'synthetic slices cells'] Found " in done.stdout
    assert (tmp_path / "napari.png").stat().st_size > 10_000
