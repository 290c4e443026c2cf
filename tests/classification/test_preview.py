import torch

from sfcnn.classification.labelled import LabelledImages, Splits
from sfcnn.classification.preview import preview, preview_figure


def digits(count: int, ink: float) -> LabelledImages:
    return LabelledImages(torch.full((count, 1, 28, 28), ink), torch.arange(count) % 10)


def test_a_preview_keeps_the_numbers_and_only_the_first_images() -> None:
    splits = Splits("some digits", digits(30, 0.5), digits(2, 0.25), digits(20, 1.0))
    shown = preview(splits, count=4)
    assert shown.counts == {"train": 30, "validation": 2, "test": 20}
    assert [len(part.labels) for part in shown.first.values()] == [4, 2, 4]
    kept = shown.first["train"].images.untyped_storage()
    assert kept.nbytes() == 4 * 28 * 28 * 4  # a view would keep all thirty


def test_the_picture_has_a_row_for_each_split_with_labels() -> None:
    shown = preview(Splits("some digits", digits(30, 0.5), digits(2, 0.25), digits(20, 1.0)), count=4)
    figure = preview_figure([shown, shown])
    assert len(figure.axes) == 2
    axes = figure.axes[0]
    assert axes.get_title() == "some digits"
    image = torch.as_tensor(axes.images[0].get_array()).squeeze()
    assert image.shape == (3 * 28, 4 * 28)
    cells = image.view(3, 28, 4, 28).mean((1, 3)).tolist()
    assert cells == [[0.5] * 4, [0.25, 0.25, 0.0, 0.0], [1.0] * 4]  # the second split has two images only
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2", "3", "0", "1", "0", "1", "2", "3"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["train\n30", "validation\n2", "test\n20"]


def test_the_picture_of_a_folder_has_its_colours_its_size_and_its_names() -> None:
    red = torch.zeros(4, 3, 10, 10, dtype=torch.uint8)
    red[:, 0] = 255
    part = LabelledImages(red, torch.tensor([0, 1, 0, 1]))
    shown = preview(Splits("fruit", part, part, LabelledImages(red[:0], part.labels[:0]), classes=("apple", "plum")))
    assert shown.summary() == "4 train, 4 validation, 0 test"
    (axes,) = preview_figure([shown]).axes
    image = torch.as_tensor(axes.images[0].get_array())
    assert image.shape == (30, 40, 3)
    assert image[:20].mean((0, 1)).tolist() == [1, 0, 0]
    assert [text.get_text() for text in axes.texts[:2]] == ["apple", "plum"]
