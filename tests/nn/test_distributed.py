"""Two processes with DistributedDataParallel give the gradients of one process on the joined batch."""

import os
import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from sfcnn import GroupConv2d, LiftConv2d, OrientationPool
from sfcnn.train.distributed import leave_job

IMAGES = 4


def make_net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        LiftConv2d(1, 3, 3, 4), nn.ReLU(), GroupConv2d(3, 2, 3, 4, engine="atomic"), OrientationPool(), nn.Flatten()
    )


def gradients(net: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    net(images).square().sum(1).mean().backward()
    return [parameter.grad for parameter in net.parameters() if parameter.grad is not None]


def worker(rank: int, port: int, images: torch.Tensor, directory: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    found = gradients(nn.parallel.DistributedDataParallel(make_net()), images.chunk(2)[rank])
    torch.save(found, Path(directory) / f"{rank}.pt")
    leave_job()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    images = torch.randn(IMAGES, 1, 8, 8)
    spawn(worker, (port, images, str(tmp_path)), nprocs=2)
    expected = gradients(make_net(), images)
    for rank in range(2):
        for ours, reference in zip(torch.load(tmp_path / f"{rank}.pt"), expected, strict=True):
            torch.testing.assert_close(ours, reference)
