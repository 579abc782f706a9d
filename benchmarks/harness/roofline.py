"""Rooflines of linear layers (Williams et al., CACM 2009): multiply-adds a second of each layer
over its multiply-adds a byte, under memory bandwidth and the rate of our matmul."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

GIGA = 1e9
Point = tuple[float, float]  # multiply-adds a byte, multiply-adds a second


def draw(
    path: Path, points: Mapping[str, Sequence[Point]], bandwidth: float, peak: float, where: str
) -> None:
    """Writes the figure as PNG.

    Args:
        points: layers by kind, a colour each.
        bandwidth: bytes a second.
        peak: multiply-adds a second.
        where: what computes: "one core", or a GPU's name.
    """
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    every = [intensity for kind in points.values() for intensity, _ in kind]
    line = np.geomspace(min(every) / 2, max(every) * 2, 200)
    axes.loglog(line, np.minimum(line * bandwidth, peak) / GIGA, color="black", linewidth=1)
    for kind, found in points.items():
        intensities, rates = zip(*found, strict=True)
        axes.loglog(intensities, np.array(rates) / GIGA, "o", markersize=4, label=kind)
    axes.set_xlabel("multiply-adds a byte of input, weights and output")
    axes.set_ylabel(f"10^9 multiply-adds a second, {where}")
    axes.legend()
    figure.savefig(path, dpi=150)
