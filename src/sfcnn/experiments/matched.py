"""Networks with different symmetries and about the same number of parameters.

The first, C8, has the given width. The widths of the others, in hundredths, are chosen so that their numbers of
parameters are closest to that of C8. A plain twin of C8 finds its own width when it is built (`sfcnn.models.twins`).
TI-pooling (Laptev et al. 2016) applies a plain network to eight rotations of each image, in training too, and takes the
maximum of its features.
"""

from bisect import bisect_left
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from sfcnn.classification.config import ModelConfig
from sfcnn.classification.network import build_network
from sfcnn.models.twins import count_parameters

#: The networks by name: the settings of C8, and how each of the others differs from it.
NETWORKS: dict[str, dict[str, Any]] = {
    "C8": {"orientations": 8, "kind": "steerable", "reflections": False, "restrict_after": 0},
    "D4": {"orientations": 4, "reflections": True},
    "D8": {"reflections": True},
    "C16": {"orientations": 16},
    "p4": {"orientations": 4, "basis": "pixels"},
    "p4m": {"orientations": 4, "basis": "pixels", "reflections": True},
    "plain": {"kind": "plain-parameters"},
    "TI-pooling": {"kind": "plain-parameters", "views": 8, "view_pool": "max"},
}

_WIDTHS = range(1, 401)  # in hundredths


@lru_cache(maxsize=64)  # builds networks on the meta device to count parameters, about a second in total
def make_model(network: str, base: ModelConfig, restrict_after: int) -> ModelConfig:
    """One of the `NETWORKS`, with about as many parameters as the first has with the width of `base`.

    >>> make_model("C16", ModelConfig(width=0.5), 5).width
    0.35
    """
    first = replace(base.resolved(), **NETWORKS["C8"])
    model = replace(first, **NETWORKS[network])
    model = replace(model, restrict_after=restrict_after if model.reflections else 0)
    if model.kind != "steerable" or model == first:
        return model
    wanted = _parameters(first)
    models = [replace(model, width=hundredths / 100) for hundredths in _WIDTHS]
    above = bisect_left(models, wanted, key=_parameters)
    return min(models[max(above - 1, 0) : above + 1], key=lambda model: abs(_parameters(model) - wanted))


def _parameters(model: ModelConfig) -> int:
    with torch.device("meta"):
        return count_parameters(build_network(model))
