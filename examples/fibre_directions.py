"""Use orientation as an output: a network that predicts the direction of fibres at every pixel.

Trained on nearly horizontal fibres, it generalises to fibres of any direction, since rotating the image by φ adds φ to
the predicted angle. Lines look the same after half a turn, so angles are known up to multiples of 180°
(`symmetry=2`).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from sfcnn import GroupConv2d, LiftConv2d, OrientationReadout, OrientedResponse


def draw_fibres(directions: Tensor, size: int = 28) -> tuple[Tensor, Tensor]:
    """Noisy, curved fibres with directions (B,) in radians: images and true angles, both (B, 1, size, size)."""
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(-axis, axis, indexing="ij")  # y upward
    cos, sin = directions.cos().view(-1, 1, 1, 1), directions.sin().view(-1, 1, 1, 1)
    along, across = cos * x + sin * y, cos * y - sin * x
    bend, spacing, phase = torch.rand(3, len(directions), 1, 1, 1)
    bend, spacing = bend - 0.5, 0.35 + 0.3 * spacing
    images = torch.cos(2 * math.pi * ((across + bend * along**2) / spacing + phase)) > 0.5
    angles = directions.view(-1, 1, 1, 1) - torch.atan(2 * bend * along)
    return images + 0.2 * torch.randn(images.shape), angles


class FibreNet(nn.Module):
    """Images (B, 1, H, W) → strength of the evidence for a fibre and its angle in [0, π), each (B, 1, H, W)."""

    def __init__(self, channels: int, orientations: int) -> None:
        super().__init__()
        options: dict[str, Any] = {"padding": "same", "padding_mode": "reflect"}
        self.features = nn.Sequential(
            LiftConv2d(1, channels, 7, orientations, **options),
            nn.BatchNorm3d(channels),
            nn.ReLU(),
            GroupConv2d(channels, 1, 5, orientations, **options),
        )
        self.readout = OrientationReadout("soft", symmetry=2)

    def forward(self, images: Tensor) -> OrientedResponse:
        """Images → response and angle."""
        result: OrientedResponse = self.readout(self.features(images))
        return result


def train(net: FibreNet, steps: int, batch_size: int) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for step in range(1, steps + 1):
        directions = math.radians(20) * (2 * torch.rand(batch_size) - 1)  # within 20° of the horizontal
        images, angles = draw_fibres(directions)
        # 1 − cos 2Δ is the same for angles that differ by 180°, and is differentiable everywhere.
        loss = (1 - torch.cos(2 * (net(images).angle - angles))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 4) == 0:
            print(f"step {step}, loss {loss.item():.3f}")


@torch.no_grad()
def mean_error(net: FibreNet, degrees: float, count: int = 4) -> float:
    """Mean difference between predicted and true angle, in degrees, for fibres of one direction."""
    images, angles = draw_fibres(torch.full((count,), math.radians(degrees)))
    difference = torch.remainder(net(images).angle - angles + math.pi / 2, math.pi) - math.pi / 2
    return math.degrees(difference.abs().mean())


def main(steps: int = 40, batch_size: int = 4, channels: int = 3, orientations: int = 8) -> dict[int, float]:
    torch.manual_seed(0)
    net = FibreNet(channels, orientations)
    train(net, steps, batch_size)
    net.eval()
    errors = {degrees: mean_error(net, degrees) for degrees in range(0, 180, 30)}
    for degrees, error in errors.items():
        print(f"fibres at {degrees:3d}°: mean error {error:4.1f}°")
    return errors


if __name__ == "__main__":
    main()
