import pytest
import torch
from torch import Tensor, nn

from sfcnn.data.digits import Digits
from sfcnn.evaluation import error_rate, errors_by_angle, evaluating, even_degrees


class Brightest(nn.Module):
    """Says which quarter of the image is the brightest: 0 1 above, 2 3 below."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


@pytest.fixture
def quarters() -> Digits:
    """One image with a bright patch in each quarter, far from its borders, and 16 more of the first."""
    images = torch.zeros(20, 1, 16, 16)
    labels = torch.tensor([0, 1, 2, 3] + [0] * 16)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 2)
        image[0, 3 + 7 * row : 6 + 7 * row, 3 + 7 * column : 6 + 7 * column] = 1
    return Digits(images, labels)


@pytest.mark.parametrize("batch_size", [1, 3, 20, 100])
def test_the_error_is_the_share_of_wrong_labels(quarters: Digits, batch_size: int) -> None:
    labels = quarters.labels.clone()
    labels[[1, 3, 19]] = 2
    assert error_rate(Brightest(), quarters, batch_size) == 0
    assert error_rate(Brightest(), Digits(quarters.images, labels), batch_size) == 15


def test_images_are_turned_counter_clockwise(quarters: Digits) -> None:
    done: list[float] = []
    errors = errors_by_angle(Brightest(), quarters, [0, 30, 60, 90, 360], batch_size=10, progress=done.append)
    assert errors == (0, 0, 100, 100, 0)
    assert done == [part / 10 for part in range(1, 11)]
    above_left_goes_to_below_left = Digits(quarters.images[:1], torch.tensor([2]))
    assert errors_by_angle(Brightest(), above_left_goes_to_below_left, [90]) == (0,)


def test_every_module_gets_its_mode_and_gradients_back() -> None:
    net = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    net[1].eval()  # as for a part that is not to learn
    modes = [module.training for module in net.modules()]
    with evaluating(net):
        assert not any(module.training for module in net.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in net.modules()] == modes
    assert torch.is_grad_enabled()
    with pytest.raises(RuntimeError), evaluating(net):
        net(torch.ones(3))  # of the wrong shape
    assert [module.training for module in net.modules()] == modes


def test_the_network_s_precision_is_used(quarters: Digits) -> None:
    net = nn.Sequential(nn.Conv2d(1, 1, 1).double(), Brightest())
    assert 0 <= error_rate(net, quarters) <= 100


def test_angles_start_at_zero_and_close_the_circle() -> None:
    assert even_degrees(24) == tuple(range(0, 360, 15))


def test_mistakes_are_named(quarters: Digits) -> None:
    with pytest.raises(ValueError, match="number of angles must be at least 1, got 0"):
        even_degrees(0)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        error_rate(Brightest(), quarters, 0)
    with pytest.raises(ValueError, match="no images to test on"):
        error_rate(Brightest(), Digits(quarters.images[:0], quarters.labels[:0]))
