"""Variance of the signal through 12 group convolutions, by initialisation scheme.

    python benchmarks/initialization.py [--quick] [--out benchmarks/results/initialization.json] [--figure PNG]

Besides the library's `coeff` and `he`, it measures two candidates that account for the mean and the correlation of
rectified features. Write ρ(δ) = E[ζ(x)ζ(x+δ)] / E[ζ²] for the correlation within a map. Weights are independent with
mean zero, so maps do not mix in expectation, and the response of an atom to one map has the energy

    2E_q = Σ_δ a_q(δ) ρ(δ)    if E[ζ²] = 1/2,    a_q(δ) = Σ_x ψ_q(x) ψ_q(x+δ).

White maps with mean zero give 2E_q = ‖ψ_q‖², the paper's assumption; constant maps give (Σ_x ψ_q)². A layer multiplies
the variance by Σ_q Var[w_q] N E_q and, if responses are Gaussian, ρ changes to κ(c), where c is the correlation of the
responses and κ(c) = (√(1−c²) + c(π − arccos c)) / π that of their rectified halves (Cho and Saul, 2009).

    equal shares   Var[w_q] = 1 / (N Q E_q)     at the ρ that such a layer preserves (fixed point)
    common gain    Var[w_q] = 1 / (N Σ_p E_p)   likewise; here ρ tends to 1, so that 2E_q = (Σ_x ψ_q)²
"""

import argparse
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from torch import Tensor, nn

from sfcnn.harmonics import Basis, real_atoms, resolve_basis
from sfcnn.initialization import SCHEMES, init_weight_
from sfcnn.nn.conv import GroupConv2d

mpl.use("Agg")
from matplotlib import pyplot as plt

DEPTH, CHANNELS, MAP_SIZE, BLUR = 12, 16, 20, 2.0
INPUTS = ("smooth", "noise")
RESULTS = Path(__file__).parent / "results" / "initialization.json"
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "initialization.png"


def rectified_correlation(correlation: Tensor) -> Tensor:
    """κ(c): E[ζζ'] / E[ζ²] of rectified Gaussians with correlation c."""
    c = correlation.clamp(-1, 1)
    return (torch.sqrt(1 - c**2) + c * (math.pi - torch.acos(c))) / math.pi


def atom_autocorrelations(basis: Basis, kernel_size: int) -> Tensor:
    """a_q(δ) on a torus that no filter wraps around, averaged over both parts of a pair: float64 (Q, n, n)."""
    n = 8 * kernel_size
    spectra = torch.fft.rfft2(real_atoms(basis, kernel_size, dtype=torch.float64), s=(n, n)).abs() ** 2
    frequencies = torch.tensor(basis.frequencies)
    paired = frequencies.nonzero().flatten().view(-1, 2)
    # Different variances for the two parts would favour a direction and break steerability.
    spectra[paired] = spectra[paired].mean(1, keepdim=True)
    return torch.fft.irfft2(spectra, s=(n, n))


@lru_cache
def equal_shares(basis: Basis, kernel_size: int, steps: int = 60) -> Tensor:
    """1 / √(2E_q) at the fixed point of ρ: float64 (Q,)."""
    atoms = atom_autocorrelations(basis, kernel_size)
    rho = torch.full(atoms.shape[1:], 1 / math.pi, dtype=torch.float64)  # white Gaussian maps, rectified
    rho[0, 0] = 1
    energy = torch.ones(basis.size, dtype=torch.float64)
    for _ in range(steps):
        energy = (atoms * rho).sum((1, 2))
        kernel = (atoms / energy[:, None, None]).mean(0)
        response = torch.fft.irfft2(torch.fft.rfft2(kernel) * torch.fft.rfft2(rho), s=rho.shape)
        rho = rectified_correlation(response / response[0, 0])
    return energy.rsqrt()


def common_gain(basis: Basis, kernel_size: int) -> Tensor:
    """1 / √(mean_p (Σ_x ψ_p)²) for every atom: float64 (Q,)."""
    sums = real_atoms(basis, kernel_size, dtype=torch.float64).sum((1, 2))
    return torch.ones(basis.size, dtype=torch.float64) * (sums**2).mean().rsqrt()


GAINS: dict[str, Callable[[Basis, int], Tensor]] = {
    **SCHEMES,
    "equal shares": equal_shares,
    "common gain": common_gain,
}


@dataclass(frozen=True)
class Setting:
    """One network to measure."""

    scheme: str
    basis: str
    kernel_size: int
    orientations: int
    padding_mode: str
    batch_norm: bool


def rectified_maps(kind: str, orientations: int, seed: int) -> Tensor:
    """Independent Gaussian maps of variance 1, blurred if `smooth`, then rectified: (1, C, Λ, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(1, CHANNELS, orientations, MAP_SIZE, MAP_SIZE, generator=generator)
    if kind == "smooth":
        f = torch.fft.fftfreq(MAP_SIZE)
        blur = torch.exp(-2 * (math.pi * BLUR) ** 2 * (f[:, None] ** 2 + f**2))
        maps = torch.fft.ifft2(torch.fft.fft2(maps) * blur).real
        maps = maps / maps.std()
    return maps.relu()


def run(setting: Setting, features: Tensor, seed: int, backward: bool) -> tuple[Tensor, Tensor]:
    """E[y²] of each layer's responses, and E[(∂L/∂y)²] for a white gradient at the last: (DEPTH, B) each."""
    torch.manual_seed(seed)
    norm = nn.BatchNorm3d(CHANNELS, affine=False)
    responses: list[Tensor] = []
    with torch.set_grad_enabled(backward):
        for _ in range(DEPTH):
            layer = GroupConv2d(
                CHANNELS,
                CHANNELS,
                setting.kernel_size,
                setting.orientations,
                padding="same",
                padding_mode=setting.padding_mode,
                basis=setting.basis,
                bias=False,
            ).requires_grad_(False)
            fan = CHANNELS * setting.orientations * layer.basis.size
            init_weight_(layer.weight, (2 / fan) ** 0.5 * GAINS[setting.scheme](layer.basis, layer.kernel_size))
            response = layer(features.requires_grad_(backward))
            responses.append(response)
            features = (norm(response) if setting.batch_norm else response).relu()
    squares = torch.stack([y.detach().double().square().mean((1, 2, 3, 4)) for y in responses])
    if not backward:
        return squares, torch.full_like(squares, math.nan)
    gradients = torch.autograd.grad(responses[-1], responses, torch.randn_like(responses[-1]))
    return squares, torch.stack([g.double().square().mean((1, 2, 3, 4)) for g in gradients])


def measure(setting: Setting, seeds: Sequence[int], backward: bool) -> list[dict[str, Any]]:
    """One record per kind of input."""
    squares, gradients = [], []
    for seed in seeds:
        maps = [rectified_maps(kind, setting.orientations, seed) for kind in INPUTS]
        # Without batch norm samples do not interact, so that both inputs can share a pass.
        batches = maps if setting.batch_norm else [torch.cat(maps)]
        parts = [run(setting, batch, seed, backward) for batch in batches]
        squares.append(torch.cat([part[0] for part in parts], dim=1))
        gradients.append(torch.cat([part[1] for part in parts], dim=1))
    records = []
    for i, kind in enumerate(INPUTS):
        y, g = torch.stack(squares)[..., i], torch.stack(gradients)[..., i]  # (seeds, DEPTH)
        mean = y.mean(0)
        relative = mean / mean[0]
        record = {
            **asdict(setting),
            "input": kind,
            "mean_square": mean.tolist(),
            "lowest_seed": y.amin(0).tolist(),
            "highest_seed": y.amax(0).tolist(),
            "total": float(relative[-1]),
            "per_layer": float(relative[-1]) ** (1 / (DEPTH - 1)),
            # The first layers also change the correlation of the input, once; this is the asymptotic rate.
            "settled_per_layer": float(mean[-1] / mean[DEPTH // 2 - 1]) ** (2 / DEPTH),
            "within_factor_2": bool(((relative > 0.5) & (relative < 2)).all()),
        }
        if backward:
            record["gradient_total"] = float(g[:, 0].mean() / g[:, -1].mean())
        records.append(record)
    return records


def settings(quick: bool) -> list[tuple[Setting, bool]]:
    """The networks, each with a flag for measuring gradients."""
    jobs = []
    for basis in ("bandlimited", "paper"):
        for size in (5,) if quick else (5, 7):
            for scheme in GAINS:
                jobs += [(Setting(scheme, basis, size, 8, mode, False), True) for mode in ("zeros", "circular")]
                jobs.append((Setting(scheme, basis, size, 8, "zeros", True), False))
                if not quick:
                    jobs.append((Setting(scheme, basis, size, 16, "zeros", False), False))
    return jobs


def constant_map_gains() -> list[dict[str, Any]]:
    """Factor on the variance per layer for constant input maps: mean_q g_q² (Σ_x ψ_q)²."""
    rows = []
    for name in ("bandlimited", "paper"):
        for size in (3, 5, 7, 9):
            basis = resolve_basis(name, size)
            sums = real_atoms(basis, size, dtype=torch.float64).sum((1, 2))
            gains = {scheme: float((GAINS[scheme](basis, size) * sums).square().mean()) for scheme in GAINS}
            rows.append({"basis": name, "kernel_size": size, "atoms": basis.size, **gains})
    return rows


def summary(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By scheme, without normalisation: settings within a factor 2 of layer 1 at every layer, and the extremes."""
    table = {}
    for scheme in GAINS:
        rows = [r for r in records if r["scheme"] == scheme and not r["batch_norm"]]
        table[scheme] = {"settings": len(rows), "within_factor_2": sum(r["within_factor_2"] for r in rows)}
        for key in ("total", "settled_per_layer", "gradient_total"):
            values = [r[key] for r in rows if key in r]
            table[scheme][key] = [min(values), max(values)]
    return table


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Variance against layer, for both presets, with and without batch norm."""
    colours = {"coeff": "#0072b2", "he": "#d55e00", "equal shares": "#009e73", "common gain": "#777777"}
    chosen = [r for r in records if r["kernel_size"] == 5 and r["orientations"] == 8]
    chosen = [r for r in chosen if r["padding_mode"] == "zeros" and r["input"] == "smooth"]
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True, sharey="col", layout="constrained")
    layers = range(1, DEPTH + 1)
    for row, basis in enumerate(("bandlimited", "paper")):
        for column, batch_norm in enumerate((False, True)):
            axis = axes[row, column]
            axis.axhspan(0.5, 2, color="#eeeeee", zorder=0, label="½ … 2")
            for r in chosen:
                if r["basis"] == basis and r["batch_norm"] == batch_norm:
                    colour = colours[r["scheme"]]
                    axis.plot(layers, r["mean_square"], color=colour, marker="o", markersize=3, label=r["scheme"])
                    axis.fill_between(layers, r["lowest_seed"], r["highest_seed"], color=colour, alpha=0.2, lw=0)
            axis.set_yscale("log")
            axis.set_xticks(list(layers))
            axis.grid(axis="y", alpha=0.3)
            axis.set_title(f"{basis}, {'batch norm' if batch_norm else 'no normalisation'}", fontsize=10)
            if row == 1:
                axis.set_xlabel("layer")
            if column == 0:
                axis.set_ylabel("E[y²] of the responses")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def environment(seeds: Sequence[int]) -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    return {
        "command": " ".join(["python", "benchmarks/initialization.py", *sys.argv[1:]]),
        "commit": commit.stdout.strip() or None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "matplotlib": mpl.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "seeds": list(seeds),
        "layers": DEPTH,
        "channels": CHANNELS,
        "map_size": MAP_SIZE,
        "blur_sigma_of_smooth_input": BLUR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Variance through 12 group convolutions, by initial weights.")
    parser.add_argument("--quick", action="store_true", help="fewer settings and seeds, to check that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where to write the JSON")
    parser.add_argument("--figure", type=Path, default=FIGURE, help="where to write the figure")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(2) if arguments.quick else range(5)
    start = time.perf_counter()
    records: list[dict[str, Any]] = []
    print(
        "scheme       | basis        size   Λ  padding   norm  input  | E[y²] layer 1 → 12     per layer  ok  gradient"
    )
    for setting, backward in settings(arguments.quick):
        for r in measure(setting, seeds, backward):
            records.append(r)
            print(
                f"{r['scheme']:12} | {r['basis']:12} {r['kernel_size']}×{r['kernel_size']}  {r['orientations']:2}  "
                f"{r['padding_mode']:8}  {'batch' if r['batch_norm'] else 'none ':5} {r['input']:6} | "
                f"{r['mean_square'][0]:8.3g} → {r['mean_square'][-1]:8.3g}  {r['per_layer']:9.3f}  "
                f"{'yes' if r['within_factor_2'] else 'no ':3} {r.get('gradient_total', math.nan):9.3g}",
                flush=True,
            )
    seconds = round(time.perf_counter() - start, 1)
    totals = summary(records)
    for scheme, row in totals.items():
        low, high = row["total"]
        print(
            f"{scheme}: {row['within_factor_2']} of {row['settings']} within a factor 2, total {low:.3g} … {high:.3g}"
        )
    report = {
        **environment(seeds),
        "seconds": seconds,
        "without_normalisation": totals,
        "constant_map_gains": constant_map_gains(),
        "records": records,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    draw(records, arguments.figure)
    print(f"{seconds} s; wrote {arguments.out} and {arguments.figure}")


if __name__ == "__main__":
    main()
