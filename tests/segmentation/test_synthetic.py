import pytest
import torch

from sfcnn.segmentation.synthetic import synthetic_membranes


def test_membranes_are_thin_dark_and_continue_from_slice_to_slice() -> None:
    images, membranes = synthetic_membranes(3, 160, seed=2)
    assert images.shape == membranes.shape == (3, 160, 160)
    assert 0 <= float(images.min()) < float(images.max()) <= 1
    assert 0.05 < float(membranes.float().mean()) < 0.3
    assert float(images[~membranes].mean() - images[membranes].mean()) > 0.15
    same = (membranes[0] == membranes[1]).float().mean()
    assert 0.75 < float(same) < 0.999


def test_thickness_and_cell_size_are_as_asked() -> None:
    def part(**options: float) -> float:
        return float(synthetic_membranes(1, 200, seed=0, **options).membranes.float().mean())

    assert part(thickness=4.0) > 1.4 * part(thickness=2.0)
    assert part(cell=20.0) > 1.4 * part(cell=40.0)


def test_a_seed_gives_the_same_slices() -> None:
    first, second, other = (synthetic_membranes(1, 64, seed=seed).images for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("name", "value"), [("slices", 0), ("size", 4), ("cell", 1), ("thickness", 0)])
def test_wrong_sizes_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        synthetic_membranes(**{"slices": 1, "size": 16, name: value})
