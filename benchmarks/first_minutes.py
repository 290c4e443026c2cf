"""The first minutes of training on own images: steerable U-Nets compared with a plain one with as many parameters.

Thin bright vessels are drawn on a textured background: 20 images for training, 6 for testing. All networks train in
parallel for the same time, one thread each, with the same loss and crops; the learning rate decays to zero.

    python benchmarks/first_minutes.py [--minutes 6] [--out benchmarks/results/first_minutes.json]
"""

import argparse
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from sfcnn.io.provenance import provenance
from sfcnn.models import count_parameters
from sfcnn.segmentation import CropConfig, SegmentationConfig, Slices, SlicesConfig, UNetConfig
from sfcnn.segmentation.crops import standardize
from sfcnn.segmentation.data import resolve
from sfcnn.segmentation.losses import prior_logits
from sfcnn.segmentation.network import build_network, start_at_prior
from sfcnn.segmentation.synthetic import smooth_noise
from sfcnn.segmentation.task import make_task
from sfcnn.segmentation.tiles import predict_image
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.task import Share

TRAIN, TEST, SIZE = 20, 6, 256

#: The networks to compare; "paper" is the earlier read-out.
NETWORKS = {
    "steerable": UNetConfig(orientations=8, channels=6, levels=4, input_kernel_size=7, kernel_size=5, dropout=0.0),
}
NETWORKS["steerable, the paper's read-out"] = replace(NETWORKS["steerable"], readout="paper")
NETWORKS["plain, same parameters"] = replace(NETWORKS["steerable"], kind="plain-parameters")


def draw_vessels(count: int, seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Images (1, S, S) in [0, 1] and masks (S, S) of vessels: smooth random walks, one to four pixels thick."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    images, masks = [], []
    for _ in range(count):
        thickness = torch.zeros(SIZE, SIZE)
        for _ in range(9):
            place = torch.rand(2, generator=generator) * SIZE
            direction = float(torch.rand((), generator=generator)) * 2 * math.pi
            radius = 0.9 + 1.3 * float(torch.rand((), generator=generator))
            bends = smooth_noise((), 512, 60.0, generator)[0]
            for bend in bends[:400:2]:
                place = place + 2 * torch.tensor([math.sin(direction), math.cos(direction)])
                direction += 0.08 * float(bend)
                distance = (rows - place[0]) ** 2 + (columns - place[1]) ** 2
                thickness = torch.maximum(thickness, torch.exp(-distance / (2 * radius**2)))
        mask = thickness > 0.6
        ground = 0.4 + 0.07 * smooth_noise((), SIZE, 40.0, generator) + 0.06 * smooth_noise((), SIZE, 4.0, generator)
        contrast = 0.12 + 0.06 * torch.rand((), generator=generator)
        image = ground + contrast * thickness + 0.05 * torch.randn(SIZE, SIZE, generator=generator)
        images.append(image.clamp(0, 1)[None])
        masks.append(mask.long())
    return images, masks


def measure(name: str, minutes: float, seed: int) -> dict[str, Any]:
    """Train one network for a number of minutes and test it."""
    torch.set_num_threads(1)
    images, masks = draw_vessels(TRAIN, 0)
    slices = Slices("vessels", images, masks, ("vessels",))
    config = SegmentationConfig(
        model=NETWORKS[name],
        images=SlicesConfig(validation=1),
        crops=CropConfig(size=128, margin=16),
        optimization=OptimizationConfig(batch_size=1, learning_rate=0.01),
        seed=seed,
    )
    config = resolve(config, slices)
    task = make_task(config, slices)
    torch.manual_seed(seed)
    net = start_at_prior(build_network(config), prior_logits(config.loss, task.frequencies))
    optimizer = torch.optim.Adam(net.parameters(), config.optimization.learning_rate)
    start, steps = time.perf_counter(), 0
    while (done := (time.perf_counter() - start) / (60 * minutes)) < 1:
        optimizer.param_groups[0]["lr"] = config.optimization.learning_rate * (1 + math.cos(math.pi * done)) / 2
        outcome = task.outcome(net, *task.batch(0, steps, Share()))
        optimizer.zero_grad()
        outcome.loss.backward()
        optimizer.step()
        steps += 1
    net.eval()
    images, masks = draw_vessels(TEST, 1)
    found = torch.stack([predict_image(net, standardize(image), margin=16)[0] for image in images]).numpy()
    truth = torch.stack(masks).numpy()
    yes = found > 0.5
    return {
        "network": name,
        "parameters": count_parameters(net),
        "steps": steps,
        "average_precision": float(average_precision_score(truth.ravel(), found.ravel())),
        "f1_at_half": float(2 * (yes & (truth > 0)).sum() / max(1, yes.sum() + truth.sum())),
        "largest_probability": float(found.max()),
        "share_of_vessels": float(np.mean(truth)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6.0, help="of training per network (default 6)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/first_minutes.json"))
    arguments = parser.parse_args()
    with ProcessPoolExecutor(len(NETWORKS), get_context("spawn")) as pool:
        jobs = [pool.submit(measure, name, arguments.minutes, arguments.seed) for name in NETWORKS]
        rows = [job.result() for job in jobs]
    for row in rows:
        print(
            f"{row['network']:<34} AP {row['average_precision']:.3f}  F1 at ½ {row['f1_at_half']:.3f}  "
            f"largest probability {row['largest_probability']:.3f}  {row['steps']:,} steps  "
            f"{row['parameters']:,} parameters"
        )
    result = {"minutes": arguments.minutes, "seed": arguments.seed, "networks": rows, "provenance": provenance()}
    arguments.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
