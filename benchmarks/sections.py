"""What is measured: each section is a list of comparisons, and the jobs of a comparison take turns."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from job import WITHOUT_KERNEL, Job
from workers import Plan

from sfcnn import GroupConv2d
from sfcnn.models import BASELINE, BENCHMARK, MATCHES, ClassifierSizes

#: A name and the plans to compare under it.
Comparison = tuple[str, list[Plan]]


def engine_exists(name: str) -> bool:
    """Whether this version of the library has the engine."""
    try:
        GroupConv2d(1, 1, 3, 2, engine=name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Scale:
    """The extent of the benchmark."""

    threads: int = 2
    quick: bool = False  #: one step of small jobs, only to check that it runs
    peer: bool = True  #: include escnn

    def fastest(self) -> tuple[str, ...]:
        """The engines with targets."""
        return ("spectral", "auto") if engine_exists("auto") else ("spectral",)

    def plans(self, job: Job, repeats: dict[str, int]) -> list[Plan]:
        """A plan for each engine, and for escnn if available."""
        job = replace(job, threads=self.threads)
        return [
            Plan(replace(job, engine=engine), repeats=1 if self.quick else count)
            for engine, count in repeats.items()
            if self.peer or engine != "escnn"
        ]


def _classifier(sizes: ClassifierSizes, scale: Scale, **options: int | str) -> Job:
    """A job with one of the paper's classifiers."""
    job = Job("classifier", "", channels=sizes.channels, kernel_sizes=sizes.kernel_sizes, hidden=sizes.hidden)
    if scale.quick:
        job = replace(job, batch=2, orientations=4)
    else:
        job = replace(job, **options)  # type: ignore[arg-type]
    return replace(job, mode=str(options.get("mode", job.mode)))


def mnist(scale: Scale) -> list[Comparison]:
    """Training step and frozen evaluation of the paper's classifiers, Λ = 16, batch 32."""
    comparisons = []
    for name, sizes in {"mnist_benchmark": BENCHMARK, "mnist_baseline": BASELINE}.items():
        for mode in ("train", "eval"):
            repeats = {"auto": 7, WITHOUT_KERNEL: 3, "escnn": 2 if mode == "train" else 3}
            comparisons.append((name, scale.plans(_classifier(sizes, scale, mode=mode, batch=32), repeats)))
    return comparisons


def plain(scale: Scale) -> list[Comparison]:
    """Training step of `mnist_benchmark`, Λ = 16, batch 16, and of plain CNNs with its channels, maps or parameters."""
    repeats = {"auto": 7} | {f"plain-{match}": 7 for match in MATCHES}
    return [("plain", scale.plans(_classifier(BENCHMARK, scale, batch=16), repeats))]


def unet(scale: Scale) -> list[Comparison]:
    """Training step of the U-Net, Λ = 17, one image of 320×320: time and memory."""
    job = Job("unet", "", orientations=17, batch=1, size=320)
    if scale.quick:
        job = replace(job, orientations=3, size=32)
    return [("membrane_unet", scale.plans(job, {"auto": 3, WITHOUT_KERNEL: 2}))]


def growth(scale: Scale) -> list[Comparison]:
    """Training step of `mnist_baseline`, batch 16, at Λ = 16 and Λ = 32, taking turns, for each engine."""
    plans: list[Plan] = []
    for engine, repeats in (("auto", 9), ("direct", 1)):
        for orientations in (4, 8) if scale.quick else (16, 32):
            job = replace(_classifier(BASELINE, scale, batch=16), orientations=orientations)
            plans += scale.plans(job, {engine: repeats})
    return [("growth", plans)]


def orientations(scale: Scale) -> list[Comparison]:
    """Training step of one layer, 16 → 24 channels, 5×5, 28×28, batch 8, against Λ."""
    job = Job("layer", "", batch=2 if scale.quick else 8, channels=(16, 24), kernel_sizes=(5,))
    if scale.quick:
        job = replace(job, size=12)
    repeats = dict.fromkeys(scale.fastest(), 9) | {"direct": 7, "atomic": 7, "escnn": 5}
    return [
        ("orientations", scale.plans(replace(job, orientations=count), repeats))
        for count in ((1, 2, 4) if scale.quick else (1, 2, 4, 8, 16, 32))
    ]


def size(scale: Scale) -> list[Comparison]:
    """Training step of one layer, Λ = 16, 12 → 12 channels, 7×7, batch 1, against height and width."""
    job = Job("layer", "", batch=1, channels=(12, 12), kernel_sizes=(7,))
    if scale.quick:
        job = replace(job, orientations=4)
    repeats = dict.fromkeys(scale.fastest(), 9) | {"direct": 7, "atomic": 7}
    sizes = (8, 16, 24) if scale.quick else (16, 24, 32, 48, 64, 96, 128, 160)
    return [("size", scale.plans(replace(job, size=pixels), repeats)) for pixels in sizes]


def reflections(scale: Scale) -> list[Comparison]:
    """Training step and evaluation of a layer on D_Λ with C channels, and of one on C_Λ with 2C: as many maps."""
    # C, kernel size, Λ, batch and side of the maps: two layers of the classifiers, and a small one
    shapes = ((2, 3, 4, 2, 8),) if scale.quick else ((12, 7, 8, 16, 28), (16, 5, 16, 8, 14), (32, 5, 4, 16, 7))
    comparisons = []
    for channels, kernel_size, count, batch, side in shapes:
        for mode in ("train", "eval"):
            job = Job("layer", "", mode, count, batch, side, (channels, channels), (kernel_size,), reflections=True)
            rotations = replace(job, channels=(2 * channels, 2 * channels), reflections=False)
            plans = [plan for each in (job, rotations) for plan in scale.plans(each, {"auto": 15})]
            comparisons.append(("reflections", plans))
    return comparisons


def memory(scale: Scale) -> list[Comparison]:
    """Peak memory of a training step of `mnist_benchmark`, batch 64: two steps, so that Adam has its averages."""
    return [("memory", scale.plans(_classifier(BENCHMARK, scale), dict.fromkeys(("auto", WITHOUT_KERNEL, "escnn"), 1)))]


#: The sections by name, in the order they are run: short ones first.
SECTIONS: dict[str, Callable[[Scale], list[Comparison]]] = {
    "size": size,
    "orientations": orientations,
    "reflections": reflections,
    "growth": growth,
    "memory": memory,
    "mnist": mnist,
    "plain": plain,
    "unet": unet,
}
