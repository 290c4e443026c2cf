import numpy as np
import pytest
import torch

from sfcnn.cells.scoring import truth_cells
from sfcnn.segmentation.labels import as_labels, cells_of_mask, membranes_of_cells
from sfcnn.segmentation.synthetic import synthetic_membranes


def test_cells_are_those_that_scores_compare() -> None:
    membranes = synthetic_membranes(1, 64, cell=16).membranes[0]
    labels = cells_of_mask(membranes.long())
    assert labels.dtype == torch.int64
    np.testing.assert_array_equal(labels.numpy(), truth_cells(~membranes.numpy())[0])
    assert labels.max() > 5
    np.testing.assert_array_equal(membranes_of_cells(labels.numpy()), membranes.numpy())


def test_an_image_of_membrane_only_has_no_cell_and_one_without_has_one() -> None:
    assert (cells_of_mask(torch.ones(5, 6).long()) == 0).all()
    assert (cells_of_mask(torch.zeros(5, 6).long()) == 1).all()


def test_cells_that_touch_have_a_border_on_both_sides() -> None:
    labels = np.array([[7, 7, 7, 7], [7, 7, 7, 7], [2, 2, 2, 0], [2, 2, 0, 9]])
    assert membranes_of_cells(labels).tolist() == [[0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 0]]
    assert labels[1, 0] == 7  # the labels are as they were


@pytest.mark.parametrize("wrong", [[[0.5, 1.0]], [[-1, 2]], [[0, 2**25]]])
def test_other_images_are_no_label_images(wrong: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"masks\.tif is not a label image: expected integers"):
        as_labels(np.array(wrong), "masks.tif")
