"""Two processes, started by torchrun as a user would: the gradients of one process, and an end that says why."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.network import build_network
from sfcnn.train.config import recipe
from sfcnn.train.distributed import SynchronizedBatchNorm, synchronize_batch_norm

CONFIG = ClassificationConfig(
    model=ModelConfig(orientations=4, width=0.2, dropout=0.0),  # each process drops other units
    images=ImagesConfig("digits-rot", augmentation="continuous"),
    optimization=recipe("fast", epochs=1, batch_size=8, averaging=0.5),
)

SCRIPT = """
import sys, torch
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sfcnn.train.distributed import leave_job
from train.test_distributed import CONFIG, gradients
from train.conftest import splits
result = gradients(Path(sys.argv[2]))
if result is not None:
    torch.save(result, Path(sys.argv[2]) / "gradients.pt")
leave_job()
"""


class Silent:
    def step(self, progress: object, steps: int, loss: float) -> None: ...
    def epoch(self, progress: object) -> None: ...


def gradients(directory: Path) -> dict[str, torch.Tensor] | None:
    """Gradients and running statistics after one step of training, in the first process of the job."""
    from sfcnn.classification.task import Classification
    from sfcnn.train.distributed import make_accelerator, share_of
    from sfcnn.train.loop import Fit
    from train.conftest import splits

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = build_network(CONFIG.model)
    accelerator = make_accelerator("float32")
    fit = Fit(
        net,
        Classification(splits(), CONFIG),
        CONFIG.optimization,
        seed=0,
        directory=directory,
        checkpoint_steps=0,
        select_last=False,
        accelerator=accelerator,
        observer=Silent(),
    )
    fit.net.train()
    fit._step(*fit.task.batch(0, 0, share_of(accelerator)))
    assert fit.averaged is not None
    if share_of(accelerator).rank:
        return None
    found = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    averages = {f"averaged {name}": value for name, value in fit.averaged.module.state_dict().items()}
    running = {name: buffer for name, buffer in net.named_buffers() if "running" in name}
    return {**found, **running, **{name: value for name, value in averages.items() if "running" in name}}


def torchrun(*command: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]
    return [*launcher, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *command]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_two_processes_give_the_gradients_of_one_on_the_joined_batch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = torchrun(str(script), str(Path(__file__).parents[1]), str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr
    two = torch.load(tmp_path / "gradients.pt", weights_only=True)
    one = gradients(tmp_path)
    assert one is not None
    assert two.keys() == one.keys()
    assert len(one) > 20
    for name in one:
        difference = torch.linalg.vector_norm(two[name] - one[name])
        # Rounding; some gradients are 0, since batch norm takes away a shift before it.
        assert difference <= 1e-4 * torch.linalg.vector_norm(one[name]) + 1e-5, name


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the worker in /proc")
def test_a_killed_worker_ends_the_job_with_a_clear_line_and_it_can_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = {
        "images.dataset": "digits-rot",
        "images.train_images": 40,
        "images.validation_images": 10,
        "model.width": 0.1,
        "model.orientations": 2,
        "optimization.batch_size": 8,
        "optimization.epochs": 40,
    }
    settings = [f"--{name}={value}" for name, value in options.items()]
    command = torchrun("-m", "sfcnn", "train", f"--out={run}", *settings)
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    deadline = time.monotonic() + 200
    while not (run / "best.safetensors").exists():
        assert time.monotonic() < deadline
        assert job.poll() is None, job.communicate()
        time.sleep(0.1)
    os.kill(worker_of(job.pid, rank=1), signal.SIGKILL)
    output, errors = job.communicate(timeout=120)
    assert job.returncode != 0
    assert "process 0 lost contact with another process of this job" in errors or "stopped; to resume" in output
    again = torchrun("-m", "sfcnn", "train", f"--out={run}", "--resume")
    done = subprocess.run(again, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "best validation error" in done.stdout
    assert done.stdout.count("wrote") == 1  # the second process is silent


def worker_of(launcher: int, rank: int) -> int:
    """The process that a launcher started with a rank."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rsplit(")", 1)[1].split()[1]
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(parent) == launcher and f"RANK={rank}".encode() in environment:
            return int(process.name)
    raise LookupError(f"no worker of rank {rank}")


def test_synchronized_batch_norm_keeps_names_and_values() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(nn.BatchNorm3d(2, affine=False)))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    images = torch.randn(2, 1, 5, 5)
    net.eval()
    expected = net[:2](images)
    synchronize_batch_norm(net)
    assert sum(isinstance(module, SynchronizedBatchNorm) for module in net.modules()) == 2
    torch.testing.assert_close(dict(net.state_dict()), before)
    torch.testing.assert_close(net[:2](images), expected)
