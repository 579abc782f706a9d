"""What was measured to be fastest, by architecture and shape: kernels/gemm/tuned.json.

`python -m benchmarks.gpu_matmul --tune` writes the rows of the card it runs on. A product takes the
nearest row of its ring that is at most FURTHEST octaves away, rows, columns and depth together, on
a card of the same architecture. Where there is none, what costs least by count is taken
(kernels/gemm/limbs.py, kernels/matmul/residues.py). Results are the same bits in any case.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from math import log2
from pathlib import Path

TABLE = Path(__file__).with_name("tuned.json")
FURTHEST = 2.0
WAYS = ("integers", "limbs", "residues")


@dataclass(frozen=True)
class Row:
    """A measured product [batch, rows, depth] x [batch, depth, columns] and what was fastest.

    `tile`, `stages` and `parts` (of the depth) are of the way `limbs`.
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

    def octaves(self, extents: tuple[int, int, int], depth: int) -> float:
        """How far from another shape: factors of two, of all extents together."""
        mine = (self.batch, self.rows, self.columns, self.depth)
        other = (*extents, depth)
        return sum(abs(log2(max(a, 1) / max(b, 1))) for a, b in zip(mine, other, strict=True))


@cache
def table() -> dict[str, tuple[Row, ...]]:
    """The rows of each architecture."""
    read = json.loads(TABLE.read_text(encoding="utf-8"))
    return {arch: tuple(Row(**row) for row in rows) for arch, rows in read.items()}


def write(arch: str, rows: list[Row]) -> None:
    """Replaces the rows of an architecture."""
    kept = {**table(), arch: tuple(rows)}
    lines = [
        f'  "{name}": ['
        + ",".join(f"\n    {json.dumps(vars(row))}" for row in each)
        + ("\n  ]" if each else "]")
        for name, each in sorted(kept.items())
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    table.cache_clear()


def nearest(
    arch: str, word_bits: int, limbs: int, extents: tuple[int, int, int], depth: int
) -> Row | None:
    """The row for a product, if any is near enough."""
    rows = [r for r in table().get(arch, ()) if (r.word_bits, r.limbs) == (word_bits, limbs)]
    found = min(rows, key=lambda row: row.octaves(extents, depth), default=None)
    if found is None or found.octaves(extents, depth) > FURTHEST:
        return None
    return found
