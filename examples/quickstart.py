"""A rotation-invariant classifier in plain PyTorch: build it, check it, take one training step."""

import math

import torch
from torch import nn

from sfcnn import GroupConv2d, LiftConv2d, OrientationPool, equivariance_error

torch.manual_seed(0)
net = nn.Sequential(
    LiftConv2d(1, 16, 7, orientations=16),
    nn.BatchNorm3d(16),
    nn.ReLU(),
    GroupConv2d(16, 24, 5, orientations=16),
    nn.BatchNorm3d(24),
    nn.ReLU(),
    nn.MaxPool3d((1, 2, 2)),
    OrientationPool("max"),
    nn.AdaptiveMaxPool2d(1),
    nn.Flatten(),
    nn.Linear(24, 10),
)
images, labels = torch.rand(8, 1, 28, 28), torch.randint(0, 10, (8,))

optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
loss = nn.functional.cross_entropy(net(images), labels)
loss.backward()
optimizer.step()

net.eval()
print("logits", tuple(net(images).shape))
print(f"change of the logits under a quarter turn: {equivariance_error(net, images, math.pi / 2):.0e}")
