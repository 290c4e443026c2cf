import pytest

from sfcnn import GroupConv2d
from sfcnn.ops import ENGINE_CHOICES, check_engine, resolve_engine


def test_an_unknown_engine_of_a_layer_is_named() -> None:
    for name in ENGINE_CHOICES:
        check_engine(name)
    with pytest.raises(
        ValueError, match=r"unknown engine 'fast', choose one of \['atomic', 'auto', 'direct', 'measured', 'spectral'\]"
    ):
        GroupConv2d(1, 1, 3, 4, engine="fast")


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown engine 'quantum', choose one of \['atomic', 'direct', 'spectral'\]"):
        resolve_engine("quantum")
