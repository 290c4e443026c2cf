"""Segment a volume larger than memory slice by slice, resume after an interruption, and link cells through slices.

Call `main` with your own OME-Zarr volume or TIFF stack and more workers, for example
`main(Path("em.zarr"), Path("cells.zarr"), workers=4)`. Without a volume it draws one. `sfcnn segment predict isbi2012
em.zarr --out cells.zarr --stack --workers 4` does the same from the command line.
"""

from pathlib import Path

import numpy as np
import zarr

import sfcnn


def draw_volume(path: Path, slices: int = 3, side: int = 96) -> None:
    """Synthetic membranes that move a little from slice to slice, written one slice at a time."""
    image = sfcnn.segmentation.synthetic_membranes(1, side, cell=40).images[0].numpy()
    volume = zarr.create_array(str(path), shape=(slices, side, side), dtype="float32", chunks=(1, side, side))
    for z in range(slices):
        volume[z] = np.roll(image, z, axis=1)


def main(source: Path = Path("em.zarr"), out: Path = Path("cells.zarr"), workers: int = 1) -> None:
    if not source.exists():
        draw_volume(source)
    network = sfcnn.load("isbi2012", device="cpu")
    sfcnn.volumes.segment_volume(network, source, out, slices=range(1), workers=workers)  # try one slice first
    report = sfcnn.volumes.segment_volume(network, source, out, stack=True, workers=workers)
    print(f"{report.done} slices, {report.kept} of them before; {report.cells} cells")
    for z, pair in report.agreement.items():
        print(f"z = {z} and {z + 1}: {100 * pair.same:.0f} % of the pixels stay in their cell")

    cells = zarr.open_group(str(out), mode="r")["labels/cells/0"]
    assert isinstance(cells, zarr.Array)
    through = np.intersect1d(np.asarray(cells[0]), np.asarray(cells[-1]))
    print(f"{len(through)} cells go through all slices")


if __name__ == "__main__":
    main()
