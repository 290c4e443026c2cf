"""The passes over memory between the convolutions of a training step, by the compiled kernel where it covers them."""

from sfcnn.ops.passes.blur import TAPS, blurred_maximum
from sfcnn.ops.passes.coverage import is_covered
from sfcnn.ops.passes.halve import halve
from sfcnn.ops.passes.normalize import normalize_rectify

__all__ = ["TAPS", "blurred_maximum", "halve", "is_covered", "normalize_rectify"]
