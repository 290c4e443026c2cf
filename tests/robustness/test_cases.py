"""The number of fuzzed cases, which the README beside this file tells."""

import importlib
from pathlib import Path

from robustness.harness import PLANNED

HERE = Path(__file__).parent


def test_there_are_as_many_cases_as_the_documentation_says() -> None:
    for path in HERE.glob("test_*.py"):
        importlib.import_module(f"robustness.{path.stem}")
    total = sum(PLANNED.values())
    assert total >= 5000
    assert f"**{total:,} fuzzed cases**" in (HERE / "README.md").read_text(encoding="utf-8")
    for test, number in PLANNED.items():
        module, _, name = test.partition(".")[2].partition(".")
        assert f"`{module}.py` | `{name}` | {number}" in (HERE / "README.md").read_text(encoding="utf-8"), test
