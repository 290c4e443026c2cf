from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

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


def trained_block(dtype: torch.dtype, **options: Any) -> tuple[ConvBlock, torch.Tensor]:
    """A block whose batch norm has statistics, scale and shift of its own, and an input for it."""
    block = ConvBlock(3, 4, 5, 6, padding="same", dropout=0.3, **options).to(dtype)
    channels = (3,) if options.get("lift") else (3, 12 if options.get("reflections") else 6)
    inputs = torch.randn(4, *channels, 9, 10, dtype=dtype)
    nn.init.normal_(block[1].weight)  # type: ignore[arg-type]
    nn.init.normal_(block[1].bias)  # type: ignore[arg-type]
    block(inputs)
    return block.eval(), inputs


@pytest.mark.parametrize("options", [{}, {"lift": True}, {"reflections": True}, {"engine": "spectral"}, {"bias": True}])
def test_evaluation_in_one_pass_gives_the_same(options: dict[str, Any], dtype: torch.dtype) -> None:
    block, inputs = trained_block(dtype, **options)
    expected = nn.Sequential(*block)(inputs).detach()  # layer after layer
    with torch.no_grad():
        assert block._is_as_made(inputs)
        found = block(inputs)
    assert (expected == 0).any()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("options", [{}, {"lift": True}, {"reflections": True}, {"engine": "spectral"}])
@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_those_of_the_layers(options: dict[str, Any], training: bool, dtype: torch.dtype) -> None:
    block, inputs = trained_block(dtype, **options)
    block.train(training)
    results = []
    for net in (block, nn.Sequential(*block)):
        torch.manual_seed(2)  # of dropout
        given = inputs.clone().requires_grad_()
        output = net(given)
        gradients = torch.autograd.grad(output.square().sum(), [given, *net.parameters()])
        results.append([output.detach(), *gradients])
    for found, expected in zip(*results, strict=True):  # in training the passes of the kernel round differently
        tolerance = 0 if not training else 1e-5 if dtype == torch.float32 else 1e-11
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * expected.abs().max().item())


def test_gradients_can_be_watched() -> None:
    block, inputs = trained_block(torch.float32)
    seen: list[Any] = []
    for layer in block:
        layer.register_full_backward_hook(lambda module, inward, outward: seen.append(outward))
    block(inputs.requires_grad_()).sum().backward()
    assert len(seen) == len(block)


def test_hooks_on_all_modules_see_every_layer() -> None:
    block, inputs = trained_block(torch.float32)
    block.train()
    seen: list[torch.Tensor] = []
    handle = register_module_forward_hook(lambda module, inputs, output: seen.append(output))
    try:
        outputs = block(inputs)
    finally:
        handle.remove()
    assert len(seen) == len(block) + 1
    assert seen[-1] is outputs
    kept = seen[0].detach().clone()
    outputs.sum().backward()
    assert kept.equal(seen[0])


@torch.no_grad()
def test_what_is_watched_or_changed_runs_layer_after_layer() -> None:
    block, inputs = trained_block(torch.float32)
    seen: list[torch.Tensor] = []
    handle = block[1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    assert block(inputs).equal(block[2](seen[0]))
    handle.remove()
    block[2] = nn.ELU()
    assert (block(inputs) < 0).any()
    block[2] = nn.ReLU()
    block.train()
    before = block[1].running_mean.clone()  # type: ignore[operator]
    block(inputs)
    assert not before.equal(block[1].running_mean)  # type: ignore[arg-type]
