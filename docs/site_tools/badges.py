"""The badges of the README: three small images generated from pyproject.toml.

`python docs/site_tools/badges.py` writes them to docs/figures; nothing is loaded from other servers.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {text}">
  <title>{label}: {text}</title>
  <rect width="{width}" height="20" rx="3" fill="#3f51b5"/>
  <path d="M3 0h{left}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444"/>
  <g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
    <text x="{label_at}" y="14">{label}</text>
    <text x="{text_at}" y="14">{text}</text>
  </g>
</svg>
"""


def badge(label: str, text: str) -> str:
    """A label and a text side by side, as SVG."""
    left, right = (7 * len(part) + 12 for part in (label, text))
    sizes = {"width": left + right, "left": left - 3, "label_at": left / 2, "text_at": left + right / 2}
    return _SVG.format(label=label, text=text, **sizes)


def badges() -> dict[str, str]:
    """All badges, by file name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (torch,) = re.findall(r"torch>=([\d.]+)", " ".join(project["dependencies"]))
    python = project["requires-python"].removeprefix(">=")
    said = {"license": project["license"], "python": f"≥ {python}", "PyTorch": f"≥ {torch}"}
    return {f"badge-{label.lower()}.svg": badge(label, text) for label, text in said.items()}


if __name__ == "__main__":
    for name, picture in badges().items():
        (FIGURES / name).write_text(picture, encoding="utf-8")
