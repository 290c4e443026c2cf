"""Choose the atoms of a layer: a preset, or your own rings and band limits."""

import torch
from torch import nn

from sfcnn import Basis, GroupConv2d, LiftConv2d, assert_equivariant

two_rings = Basis(radii=(0, 1.2, 2.4), sigmas=(0.5, 0.6, 0.6), cutoffs=(0, 2, 4))
net = nn.Sequential(
    LiftConv2d(3, 8, 7, orientations=12, padding="same", basis="paper"),
    nn.ReLU(),
    GroupConv2d(8, 8, 5, orientations=12, padding="same", basis=two_rings),
)
print(net)
assert_equivariant(net, torch.rand(1, 3, 21, 21))
print("quarter turns are exact")
