"""Memory and processor time of a volume that is segmented slice by slice.

    python benchmarks/volume.py --out volume-benchmark

A volume of 64 × 2048 × 2048 pixels is drawn, and its first slices are segmented by the network that ships, with cells
and links. Then all its slices go through a network of a few parameters, without cells, so that little but reading and
writing is left. Both start in processes of their own, which tell the largest memory that they ever had (ru_maxrss)
after each slice.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def draw(path: Path, slices: int, side: int) -> None:
    """Write synthetic membranes slice by slice: a few drawn tiles, shifted from slice to slice."""
    import zarr

    from sfcnn.io.zarr_volumes import VoxelSize, create_pyramid, image_attributes, open_pyramid
    from sfcnn.segmentation import synthetic_membranes

    tile = (255 * synthetic_membranes(1, 512, seed=0, cell=60).images[0].numpy()).astype(np.uint8)
    image = np.tile(tile, (-(-side // 512), -(-side // 512)))[:side, :side]
    group = zarr.create_group(str(path))
    voxel = VoxelSize((0.05, 0.004, 0.004), "micrometer")
    levels = create_pyramid(group, "", (slices, side, side), "uint8", name="em", voxel=voxel)
    group.attrs.update(image_attributes(levels))
    pyramid = open_pyramid(group, "")
    for z in range(slices):
        pyramid.write(z, np.roll(image, 2 * z, axis=(0, 1)))


def tiny_run(directory: Path) -> None:
    """A run as training leaves it, of a small network that has learned nothing."""
    import torch

    from sfcnn.io.settings import write_settings
    from sfcnn.io.state import write_state
    from sfcnn.segmentation.config import SegmentationConfig, SlicesConfig, UNetConfig
    from sfcnn.segmentation.crops import CropConfig
    from sfcnn.segmentation.network import build_network

    torch.manual_seed(0)
    model = UNetConfig("plain-channels", 1, 1, 2, input_kernel_size=3, kernel_size=3, dropout=0.0)
    config = SegmentationConfig(model, SlicesConfig(classes=("membranes",), channels=1), CropConfig(16, margin=4))
    write_settings(directory / "config.yaml", config, task="segmentation")
    write_state(directory / "best.safetensors", {"model": build_network(config).state_dict()})


def measure(run: str, source: Path, out: Path, slices: int, cells: bool) -> None:
    """Segment the first slices, and print what each took as a line of JSON."""
    import sfcnn

    told: list[dict[str, float]] = []

    def report(name: str, done: float) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
        told.append({"part": name, "done": done, "gigabytes": peak, "seconds": time.process_time()})  # type: ignore[dict-item]

    network = sfcnn.load(run, device="cpu")
    sfcnn.volumes.segment_volume(
        network, source, out, cells=cells, stack=cells, slices=range(slices), report=report, overwrite=True
    )
    print(json.dumps(told))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("volume-benchmark"))
    parser.add_argument("--slices", type=int, default=64)
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--real", type=int, default=3, help="slices through the network that ships")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    source = arguments.out / "em.zarr"
    if arguments.measure:
        run, out, slices, cells = arguments.measure
        measure(run, source, Path(out), int(slices), cells == "True")
        return
    if not source.exists():
        draw(source, arguments.slices, arguments.side)
        tiny_run(arguments.out / "tiny")
    for run, slices, cells in (("isbi2012", arguments.real, True), (arguments.out / "tiny", arguments.slices, False)):
        out = arguments.out / f"{Path(run).name}.zarr"
        words = [sys.executable, __file__, "--out", str(arguments.out), "--measure"]
        done = subprocess.run(
            [*words, str(run), str(out), str(slices), str(cells)], capture_output=True, text=True, check=True
        )
        print(f"{Path(run).name}, {slices} slices, {'cells and links' if cells else 'no cells'}")
        lines = json.loads(done.stdout.splitlines()[-1])
        shown = lines if cells else lines[:: max(1, len(lines) // 8)] + lines[-1:]
        for line in shown:
            print("  {part:<8}{done:5.0%}  {gigabytes:.2f} GB  {seconds:.1f} s".format(**line))


if __name__ == "__main__":
    main()
