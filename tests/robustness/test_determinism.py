"""The same seed on the same machine with the same number of threads gives the same weights, to the last bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

#: Trains both tasks and prints digests of all that is left. What must not matter differs: see the environments below.
SCRIPT = """
import hashlib, json, random, sys, time
from pathlib import Path

import numpy, torch

torch.set_num_threads(2)
random.seed(time.time()), numpy.random.seed(int(time.time()) % 2**31), torch.manual_seed(int(time.time()))
torch.rand(int(sys.argv[2])).sort()

from train.conftest import splits, train
from train.test_resume import CONFIG, final_state
from sfcnn import segmentation
from sfcnn.io.state import _digest
from sfcnn.segmentation import CropConfig, SegmentationConfig, SlicesConfig, UNetConfig
from sfcnn.train.config import OptimizationConfig

root = Path(sys.argv[1])
train(CONFIG, splits(), root / "digits")
config = SegmentationConfig(
    model=UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=3, kernel_size=3),
    images=SlicesConfig(validation=1),
    crops=CropConfig(size=16, margin=4),
    optimization=OptimizationConfig(epochs=2, batch_size=2, learning_rate=0.01),
    steps=4,
)
segmentation.train(config, root / "membranes")
digests = {}
for name in ("digits", "membranes"):
    state = final_state(root / name)
    moments = {f"{i}.{k}": v for i, part in state["optimizer"]["state"].items() for k, v in part.items()}
    digests[name] = [_digest(state["model"], ""), _digest(moments, ""), _digest({"g": state["generators"][0]}, "")]
    digests[name].append(hashlib.sha256((root / name / "best.safetensors").read_bytes()).hexdigest())  # the file too
print(json.dumps(digests))
"""


def digests(directory: Path, hash_seed: int) -> dict[str, list[str]]:
    """Those of a process whose sets have another order, in another directory, after other work."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "2"}
    words = [sys.executable, "-c", SCRIPT, str(directory), str(10 + hash_seed)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_two_processes_end_with_the_same_bits(tmp_path: Path) -> None:
    first, second = (digests(tmp_path / name, seed) for seed, name in enumerate(("one", "another place")))
    assert first == second
    assert len({digest for parts in first.values() for digest in parts}) == 8  # they are of different things
