"""What `python -m benchmarks.gpu.matmul --tune` measures: every way of many calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.calls import PAIRS, Call, Filtered, Product, Way
from benchmarks.kernels import Layer
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.tuning import Row

GRID = (1, 64, 512, 2048, 8192)  # rows and columns; depths without the first
RINGS = (64, 56, 48, 40, 32, 24)


def candidates(bench: Bench, call: Call, bits: int) -> Iterator[tuple[Row, Way]]:
    """What may be fastest for a call, and how it is launched."""
    ring = limbs.Ring.of(64 if bits > 32 else 32, bits)
    extents, depths = call.extents, call.depths
    row = Row(
        ring.word_bits, ring.limbs, *extents, sum(depths), "integers",
        pairs=len(depths), kernel=call.kernel,
    )  # fmt: skip
    for name, way in call.ways(bits).items():
        yield replace(row, way=name), way
    for name, tile in limbs.NAMES.items():
        if not call.has_tilings or tile not in limbs.tiles_of(ring, bench.shape):
            continue
        stages = limbs.stages_worth(ring, tile, bench.shape)
        for stage, parts in product(stages, (1, 2, 4, 8, 16, 32, 64)):
            made = limbs.tiling_of(ring, tile, stage, parts, extents, depths)
            blocks = made.grid[0] * extents[0] * made.parts
            if made.parts == parts and (parts == 1 or blocks <= 4 * bench.shape.multiprocessors):
                found = replace(row, way="limbs", tile=name, stages=stage, parts=parts)
                yield found, call.by_limbs(made)


def fastest(bench: Bench, call: Call, bits: int) -> Row:
    """The best row of a call; the integer units only where they would not take minutes."""
    times = {}
    for row, way in candidates(bench, call, bits):
        if row.way == "integers" and call.multiply_adds > 1 << 34:
            continue
        times[row] = bench.seconds(way, call.buffers(bits), call.params(bits), repeats=8)
    return min(times, key=lambda row: times[row])


def tuned(bench: Bench, calls: Iterable[Call]) -> list[Row]:
    return [fastest(bench, call, bits) for call, bits in product(calls, RINGS)]


def grid_calls() -> list[Call]:
    """Products of many forms, for what no network here has."""
    return [Product(1, m, n, k) for m, n, k in product(GRID, GRID, GRID[1:])]


QUICK: list[Call] = [
    Filtered(Layer(4, 8, 8, 3), 1, PAIRS),
    Filtered(Layer(4, 8, 8, 1), 2),
    Product(1, 1, 64, 64),
]
