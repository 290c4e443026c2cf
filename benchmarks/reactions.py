"""How long the page of `sfcnn play` takes to react, for digits.

    python benchmarks/reactions.py --out benchmarks/results/reactions.json

- `functions`: what Gradio calls when somebody touches the tab, taken from the page's own events: the slider is moved, a
  sample is taken, a digit is drawn, another class is chosen. Each repeat has another angle or digit. As on the page, a
  thread beside the main one calls them, and the main thread has asked the networks before.
- `browser`: the slider is moved and a sample taken in Chromium, whose clock runs until the turned digit, the classes
  and the curve are drawn. Without chromedriver, only the functions are measured and nothing is written.

`--quick` shows that it runs.
"""

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.play.app import make_page, served
from sfcnn.play.digits import ask_all, samples

#: Sets a field or clicks, and calls back with the milliseconds until a frame with another digit has been drawn. The
#: picture, the classes and the curve come in one piece.
_TOUCH = """
const [selector, place, value, done] = arguments;
const touched = document.querySelectorAll(selector)[place], view = document.querySelector("#digit-view");
const digit = () => view.querySelector("polyline") && view.querySelector("img").src;
const before = digit(), start = performance.now();
const watch = new MutationObserver(() => {
  if (!digit() || digit() === before) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
});
watch.observe(view, {childList: true, subtree: true, attributes: true});
if (value === null) touched.click();
else {
  touched.value = value;
  for (const name of ["input", "change"]) touched.dispatchEvent(new Event(name, {bubbles: true}));
}
"""

_PATIENCE = 60  # seconds that the browser waits


def events(page: Any) -> dict[tuple[str, str], Callable[..., Any]]:
    """The functions of a page by the name of what is touched (`elem_id`) and of the event."""
    return {
        (page.blocks[block].elem_id, event): function.fn
        for function in page.fns.values()
        for block, event in function.targets
        if block in page.blocks
    }


def stroke(number: int) -> dict[str, Any]:
    """A vertical stroke as the sketchpad gives it, a little longer each time."""
    pixels = np.zeros((280, 280, 4), np.uint8)
    pixels[60 - number : 220, 130:150, 3] = 255
    return {"composite": pixels}


def functions(repeats: int) -> dict[str, list[float]]:
    """Seconds of each call, by what is touched."""
    from gradio import SelectData

    touch = events(make_page("cpu"))
    labels = samples()[1]

    def pick(number: int) -> Any:
        chosen = SelectData(None, {"index": number % len(labels), "value": None})
        return touch["samples", "select"](7 * number % 360, chosen)

    answers, label, *_ = pick(0)
    touched: dict[str, Callable[[int], Any]] = {
        "slider": lambda number: touch["digit-angle", "change"](answers, 7 * number % 360, label),
        "sample": pick,
        "drawing": lambda number: touch["sketch", "change"](stroke(number % 40), 0),
        "class": lambda number: touch["truth", "input"](answers, 45, str(number % 10)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in touched}
    for number in range(repeats + 1):
        for name, call in touched.items():
            start = time.perf_counter()
            call(number)
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def browser(repeats: int) -> dict[str, list[float]]:
    """Seconds in Chromium from each touch to the picture, by what is touched."""
    from selenium import webdriver
    from selenium.webdriver.support.wait import WebDriverWait

    options = webdriver.ChromeOptions()
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "enable-unsafe-swiftshader"):
        options.add_argument(f"--{flag}")
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    seconds: dict[str, list[float]] = {"slider": [], "sample": []}
    with served(device="cpu") as address, webdriver.Chrome(options=options, service=service) as driver:
        driver.set_script_timeout(_PATIENCE)
        driver.get(address)
        WebDriverWait(driver, _PATIENCE).until(lambda page: page.find_elements("css selector", "#digit-view polyline"))
        time.sleep(2)  # until the other tabs have been filled as well
        for number in range(repeats + 1):
            slider = ("#digit-angle input[type=number]", 0, 1 + 7 * number % 359)
            sample = ("#samples .thumbnail-lg", number % 10, None)
            for name, touch in (("slider", slider), ("sample", sample)):
                milliseconds = driver.execute_async_script(_TOUCH, *touch)
                if number:
                    seconds[name].append(milliseconds / 1000)
    return seconds


def summary(seconds: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(seconds), "least": min(seconds), "greatest": max(seconds), "all": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20, help="touches of each kind (default 20)")
    parser.add_argument("--quick", action="store_true", help="two of each kind; nothing is written")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    repeats = 2 if arguments.quick else arguments.repeats
    ask_all(samples()[0][0], "cpu")  # as `served` does before the first touch
    with ThreadPoolExecutor(1) as pool:
        measured = {"functions": pool.submit(functions, repeats).result()}
    if shutil.which("chromedriver"):
        measured["browser"] = browser(repeats)
    else:
        print("no chromedriver: the browser is left out, and nothing is written")
    found = {section: {name: summary(times) for name, times in part.items()} for section, part in measured.items()}
    for section, touched in found.items():
        for name, values in touched.items():
            what = f"{section}, {name}"
            print(f"{what:<24}{values['median']:.3f} s ({values['least']:.3f} … {values['greatest']:.3f})")
    if arguments.out and not arguments.quick and "browser" in found:
        write_json(arguments.out, {"seconds": found, "provenance": provenance()}, overwrite=True)


if __name__ == "__main__":
    main()
