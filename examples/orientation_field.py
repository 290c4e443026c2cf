"""Keep orientation as an output: read the direction of stripes at every pixel."""

import math

import torch

from sfcnn import LiftConv2d, OrientationReadout

layer = LiftConv2d(1, 1, 7, orientations=16, padding="same", padding_mode="reflect", bias=False)
with torch.no_grad():
    layer.weight.zero_()
    layer.weight[0, 0, -2] = 1.0  # the last pair of weights is k = 2 on the outer ring: a line detector
readout = OrientationReadout("soft", symmetry=2)  # lines look the same after half a turn

y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
for degrees in (0, 30, 60, 120):
    phi = math.radians(degrees)
    stripes = torch.cos(0.5 * ((x - 32) * -math.sin(phi) + (32 - y) * math.cos(phi)))
    with torch.no_grad():
        response, angle = readout(layer(stripes[None, None]))
    print(f"stripes at {degrees:3d}°, read {math.degrees(angle[0, 0, 32, 32]):6.1f}°, strength {response.amax():.2f}")
