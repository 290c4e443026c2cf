import pytest
import torch
from torch import nn

from sfcnn import ConvBlock, GroupConv2d, ResidualBlock, assert_equivariant


def test_blocks_are_equivariant(dtype: torch.dtype) -> None:
    net = nn.Sequential(
        ConvBlock(1, 4, 5, 8, lift=True, padding="same", dropout=0.2),
        ResidualBlock(4, 3, 8, depth=2, dropout=0.2),
        ConvBlock(4, 2, 3, 8, padding=1, padding_mode="reflect"),
    ).to(dtype)
    images = torch.randn(4, 1, 12, 12, dtype=dtype)
    net(images)  # gives batch norm running statistics of its own
    assert_equivariant(net.eval(), images)


def test_a_residual_block_adds_to_its_input() -> None:
    block, features = ResidualBlock(3, 5, 4), torch.randn(2, 3, 4, 7, 7)
    torch.testing.assert_close(block(features), features + block.body(features))


def test_depth_dropout_and_options_arrive() -> None:
    block = ResidualBlock(3, 5, 4, depth=3, dropout=0.5, engine="atomic")
    convolutions = [module for module in block.modules() if isinstance(module, GroupConv2d)]
    assert len(convolutions) == 3
    assert {conv.engine for conv in convolutions} == {"atomic"}
    assert sum(isinstance(module, nn.Dropout3d) for module in block.modules()) == 3
    assert all(conv.bias is None for conv in convolutions)
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        ResidualBlock(3, 5, 4, depth=0)
