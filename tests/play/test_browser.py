"""The page in Chromium: every tab, mistakes, two sessions at once, and no request to other machines.

SFCNN_SCREENSHOTS=docs/figures in the environment keeps a picture of each tab there, as in docs/play.md.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from sfcnn.play.digits import samples

selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
pytest.importorskip("gradio", reason="gradio is not installed")

CHROMEDRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(CHROMEDRIVER is None, reason="chromedriver is not installed")

WAIT = 120.0  # seconds, for machines that do other things as well

#: Where the last thing on the page ends.
LOWEST = """
const parts = [...document.querySelectorAll("[role=tabpanel] *")];
return Math.ceil(Math.max(...parts.map(part => part.getBoundingClientRect().bottom)));
"""

Answer = TypeVar("Answer")


class Server(NamedTuple):
    process: subprocess.Popen[str]
    address: str
    places: Path  #: what it could write to: home, work and tmp


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`sfcnn play` in a process of its own, ended as by Ctrl-C: it must leave nothing behind."""
    places = tmp_path_factory.mktemp("play")
    for name in ("home", "work", "tmp"):
        (places / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "SFCNN_DATA"}
    environment |= {"HOME": str(places / "home"), "TMPDIR": str(places / "tmp"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    words = [sys.executable, "-m", "sfcnn", "play", "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=places / "work", env=environment)
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        address = next((line.split()[1] for line in lines if line.startswith("open ")), "")
        assert address.startswith("http://127.0.0.1:")
        yield Server(process, address, places)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=WAIT)
        assert (process.returncode, said) == (0, "stopped\n")
        assert [str(path) for path in places.rglob("*") if path.is_file()] == []
        assert not list((places / "tmp").iterdir())
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module", name="browser")
def _browser(server: Server) -> Iterator[Any]:
    options = selenium.ChromeOptions()
    # WebGL, which the sketchpad draws with, is computed by the processor.
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "enable-unsafe-swiftshader"):
        options.add_argument(f"--{flag}")
    options.add_argument("--window-size=1280,1130")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(CHROMEDRIVER))
    driver.get(server.address)
    until(lambda: find(driver, "#digit-view polyline"))
    yield driver
    driver.quit()


def until(answer: Callable[[], Answer]) -> Answer:
    """What is answered once it is true."""
    from selenium.common.exceptions import WebDriverException

    end = time.monotonic() + WAIT
    while True:
        try:
            if found := answer():
                return found
        except (WebDriverException, LookupError):  # not there yet, or drawn anew just now
            if time.monotonic() > end:
                raise
        assert time.monotonic() < end, "the page does not answer"
        time.sleep(0.2)


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def text(browser: Any, selector: str) -> str:
    return str(find(browser, selector).text)


def choose_tab(browser: Any, name: str) -> None:
    tabs = browser.find_elements("css selector", "button[role=tab]")
    next(tab for tab in tabs if tab.text == name).click()


def set_number(browser: Any, selector: str, value: int) -> None:
    from selenium.webdriver.common.keys import Keys

    find(browser, f"{selector} input[type=number]").send_keys(
        Keys.CONTROL, "a", Keys.NULL, str(value), Keys.ENTER, Keys.TAB
    )


def keep(browser: Any, name: str) -> None:
    """A picture of the whole page, if they are wanted."""
    folder = os.environ.get("SFCNN_SCREENSHOTS")
    if folder:
        browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
        time.sleep(1)  # until what moves has come to rest
        browser.set_window_size(1280, 160 + browser.execute_script(LOWEST))
        time.sleep(1)
        assert browser.save_screenshot(str(Path(folder) / f"play-{name}.png"))
        browser.set_window_size(1280, 1130)


def toast(browser: Any) -> str:
    """What the page complains about; then the complaint is put away."""
    said = until(lambda: text(browser, ".toast-body"))
    until(lambda: not browser.execute_script("document.querySelector('.toast-close')?.click()"))
    until(lambda: not browser.find_elements("css selector", ".toast-body"))
    return said


def test_a_digit_is_turned(browser: Any) -> None:
    assert "at 0°" in text(browser, "#digit-view")
    set_number(browser, "#digit-angle", 45)
    until(lambda: "at 45°" in text(browser, "#digit-view"))
    assert "plain:" in text(browser, "#digit-view")
    assert "not exact" in text(browser, "#verdict")
    browser.find_elements("css selector", "#samples .thumbnail-lg")[4].click()
    until(lambda: "Probability of 4" in text(browser, "#digit-view"))
    keep(browser, "digits")


def test_a_digit_is_drawn(browser: Any) -> None:
    until(lambda: find(browser, "#sketch canvas"))
    time.sleep(1)  # the brush is taken up
    draw = selenium.ActionChains(browser).move_to_element_with_offset(find(browser, "#sketch canvas"), 0, -70)
    draw.click_and_hold().move_by_offset(0, 70).move_by_offset(0, 70).release().perform()
    until(lambda: "Probability of 1" in text(browser, "#digit-view"))
    assert browser.execute_script("return document.querySelector('#truth input:checked').value") == "1"


def test_two_sessions_do_not_see_each_other(browser: Any, server: Server) -> None:
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.get(server.address)
    until(lambda: "at 0°" in text(browser, "#digit-view"))
    browser.find_elements("css selector", "#samples .thumbnail-lg")[6].click()
    until(lambda: "Probability of 6" in text(browser, "#digit-view"))
    second = browser.current_window_handle
    browser.switch_to.window(first)
    assert "Probability of 6" not in text(browser, "#digit-view")
    set_number(browser, "#digit-angle", 90)
    until(lambda: "at 90°" in text(browser, "#digit-view"))
    assert "Probability of 1" in text(browser, "#digit-view")
    browser.switch_to.window(second)
    assert "at 0°" in text(browser, "#digit-view")
    browser.close()
    browser.switch_to.window(first)


def test_cells_of_the_sample_turn(browser: Any, tmp_path: Path) -> None:
    choose_tab(browser, "Cells")
    (tmp_path / "notes.tif").write_text("not an image")
    find(browser, "#cells-file input[type=file]").send_keys(str(tmp_path / "notes.tif"))
    said = toast(browser)
    assert "notes.tif is not a TIFF or PNG file that can be read" in said
    assert "/tmp" not in said
    until(lambda: find(browser, "#cells-file button[aria-label*=emove], #cells-file button[aria-label*=lear]")).click()
    set_number(browser, "#cells-angle", 45)
    until(lambda: find(browser, "#segment")).click()
    until(lambda: "V_rand" in text(browser, "#cells-words"))
    assert "rotated by 45°" in text(browser, "#cells-words")
    until(lambda: len(browser.find_elements("css selector", "img[src*='.png']")) >= 3)
    keep(browser, "cells")


def test_a_network_is_applied_to_an_upload(browser: Any, tmp_path: Path) -> None:
    choose_tab(browser, "Own network")
    find(browser, "#apply").click()
    assert "choose at least one image" in toast(browser)
    paths = []
    for number in (2, 5):
        paths.append(tmp_path / f"digit-{number}.png")
        Image.fromarray(255 - np.kron(samples()[0][number] * 255, np.ones((4, 4))).astype(np.uint8)).save(paths[-1])
    find(browser, "#own-files input[type=file]").send_keys("\n".join(map(str, paths)))
    until(lambda: "digit-5" in text(browser, "#own-files"))
    find(browser, "#apply").click()
    until(lambda: "digit-2.png" in text(browser, "#own-table"))
    link = until(lambda: find(browser, "#own-downloads a[href*='predictions.csv']")).get_attribute("href")
    assert urlsplit(link).hostname == "127.0.0.1"
    keep(browser, "own")


def test_filters_and_features_are_shown(browser: Any) -> None:
    choose_tab(browser, "Inside")
    until(lambda: len(browser.find_elements("css selector", "#inside-features img")) == 3 * 17)
    assert len(browser.find_elements("css selector", "#inside-filters img")) == 16
    assert "Rotated by 90°" in text(browser, "#inside-words")
    keep(browser, "inside")


def test_nothing_was_asked_from_other_machines(browser: Any, server: Server) -> None:
    """Of all the tests above."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {entry["params"]["request"]["url"] for entry in messages if entry["method"] == "Network.requestWillBeSent"}
    asked |= {entry["params"]["url"] for entry in messages if entry["method"] == "Network.webSocketCreated"}
    local = {url for url in asked if url.startswith(server.address)}
    assert len(local) > 10
    assert {url.partition(":")[0] for url in asked - local} <= {"data", "blob"}
    # What is kept between two requests is kept in the temporary folder alone.
    assert all(path.is_relative_to(server.places / "tmp") for path in server.places.rglob("*") if path.is_file())
