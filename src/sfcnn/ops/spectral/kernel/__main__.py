"""Compile the kernel in its place."""

import sys

from sfcnn.ops.spectral.kernel import build

path = build()
print(path or "no library: there is no C++ compiler, or it failed", file=sys.stdout if path else sys.stderr)
sys.exit(path is None)
