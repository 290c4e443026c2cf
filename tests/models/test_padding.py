import torch

from sfcnn.models.padding import pad_by_reflection


def test_padding_reflects_as_far_as_needed() -> None:
    row = torch.arange(4.0).expand(1, 4, 4)
    assert pad_by_reflection(row, 5, 1)[0, 0].tolist() == [1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1, 2]
    assert pad_by_reflection(torch.ones(1, 1, 3), 2, 4).shape == (1, 8, 8)
    reference = torch.nn.functional.pad(row, (2, 2, 2, 2), mode="reflect")
    torch.testing.assert_close(pad_by_reflection(row, 2, 8), reference)
