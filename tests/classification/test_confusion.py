"""The picture has every class on both axes, and the numbers where they belong."""

import io
from itertools import pairwise

import pytest
import torch
from matplotlib.figure import Figure

from sfcnn.classification.confusion import confusion_figure


def drawn(figure: Figure) -> Figure:
    """Draw it, so that all texts have their sizes."""
    figure.savefig(io.BytesIO(), format="png")
    return figure


@pytest.mark.parametrize("count", [2, 5, 10, 30])
@pytest.mark.parametrize("scale", [9, 99_999])
def test_names_and_numbers_are_readable(count: int, scale: int) -> None:
    confusion = torch.eye(count, dtype=torch.int64) * scale
    confusion[0, 1] = 3
    names = [f"cl$^ss {number}$" for number in range(count)]  # not a formula
    figure = drawn(confusion_figure(confusion, names, "a title"))
    axes, bar = figure.axes
    assert axes.get_title() == "a title"
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in labels] == names
        assert all(float(label.get_fontsize()) >= 7 for label in labels)
    texts = {text.get_position(): text for text in axes.texts}
    assert len(texts) == count + 1
    assert texts[1, 0].get_text() == "3"  # true class 0, predicted class 1
    assert texts[1, 1].get_text() == str(scale)
    cell = axes.get_window_extent().width / count
    for text in texts.values():
        box = text.get_window_extent()
        assert box.width < cell
        assert box.height < cell
    rows = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(rows))  # none covers another
    assert bar.get_ylabel() == "fraction of the true class"


def test_hundreds_of_classes_still_have_a_picture() -> None:
    figure = confusion_figure(torch.eye(300, dtype=torch.int64), [str(number) for number in range(300)])
    assert max(figure.get_size_inches()) < 30


def test_colours_are_shares_of_the_true_class_and_a_class_without_images_has_none() -> None:
    figure = confusion_figure(torch.tensor([[3, 1], [0, 0]]), ["a", "b"])
    (image,) = figure.axes[0].images
    assert image.get_array().tolist() == [[0.75, 0.25], [0, 0]]  # type: ignore[union-attr]


def test_long_names_keep_their_beginning_and_their_end() -> None:
    names = [f"Drosophila melanogaster, wild type, sample {number}" for number in range(3)]
    figure = confusion_figure(torch.eye(3, dtype=torch.int64), names)
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(set(shown)) == 3
    assert all(text.startswith("Drosophila") and "…" in text and len(text) <= 24 for text in shown)
