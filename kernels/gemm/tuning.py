"""What was measured to be fastest, by architecture and shape: kernels/gemm/tuned.json.

`python -m benchmarks.gpu.matmul --tune` writes the rows of the GPU it runs on, into the checkout.
A product takes the nearest row of its ring and kernel that is at most FURTHEST octaves away, batch,
rows, columns, depth and pairs together, on a GPU of the same architecture. Where there is none,
what costs least by count is taken (kernels/gemm/limbs.py, kernels/matmul/residues.py). Results are
the same bits in any case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log2
from pathlib import Path

TABLE = Path(__file__).with_name("tuned.json")
FURTHEST = 2.0
WAYS = ("integers", "limbs", "residues", "matrices")


@dataclass(frozen=True)
class Row:
    """A measured product [batch, rows, depth] x [batch, depth, columns] and what was fastest.

    Attributes:
        batch: groups, where `kernel` is conv2d; `rows` are its filters, `columns` its pixels.
        depth: of all pairs together.
        way: one of WAYS; `matrices` is a product of matrices an image, of conv2d_matrices alone.
        tile, stages, parts: of the way `limbs`; parts are those of the depth.
        pairs: products that are added up.
        kernel: matmul or conv2d, or conv2d_matrices, whose images are matrices as they lie there.
    """

    word_bits: int
    limbs: int
    batch: int
    rows: int
    columns: int
    depth: int
    way: str
    tile: str = ""
    stages: int = 0
    parts: int = 0
    pairs: int = 1
    kernel: str = "matmul"

    def octaves(self, extents: tuple[int, int, int], depths: Sequence[int]) -> float:
        """How far from another shape: factors of two, of all extents together."""
        mine = (self.batch, self.rows, self.columns, self.depth, self.pairs)
        other = (*extents, sum(depths), len(depths))
        return sum(abs(log2(max(a, 1) / max(b, 1))) for a, b in zip(mine, other, strict=True))


def _read(path: Path) -> Mapping[str, tuple[Row, ...]]:
    read = json.loads(path.read_text(encoding="utf-8"))
    return {arch: tuple(Row(**row) for row in rows) for arch, rows in read.items()}


@cache
def table() -> Mapping[str, tuple[Row, ...]]:
    """The rows of each architecture."""
    return _read(TABLE)


def write(arch: str, rows: list[Row], path: Path) -> None:
    """Replaces the rows of an architecture in a checkout's table."""
    kept = {**_read(path), arch: tuple(rows)}
    lines = [
        f'  "{name}": ['
        + ",".join(f"\n    {json.dumps(vars(row))}" for row in each)
        + ("\n  ]" if each else "]")
        for name, each in sorted(kept.items())
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    table.cache_clear()


def nearest(
    arch: str,
    word_bits: int,
    limbs: int,
    extents: tuple[int, int, int],
    depths: Sequence[int],
    kernel: str = "matmul",
) -> Row | None:
    """The row for a product of pairs so deep, if any is near enough."""
    ring = word_bits, limbs, kernel
    rows = [r for r in table().get(arch, ()) if (r.word_bits, r.limbs, r.kernel) == ring]
    found = min(rows, key=lambda row: row.octaves(extents, depths), default=None)
    if found is None or found.octaves(extents, depths) > FURTHEST:
        return None
    return found
