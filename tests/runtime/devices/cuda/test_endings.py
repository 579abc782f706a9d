"""Products by limbs that hand their sums to the program of words that follows: the same memory as
on the CPU, and where they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from layer_plans import check_layer, layer_plan
from small_interpreters import step
from test_epilogues import KEY, PLACE, memory, plan_of

from veilgraph.ir.plan.plan import Plan
from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.cuda import Buffer, DeviceShape, Kind
from veilgraph.kernels.fused.declaration import instruction, program
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.cuda.device import CudaDevice
from veilgraph.runtime.devices.cuda.drivers.emulator import EMULATOR, EmulatorDriver
from veilgraph.runtime.devices.cuda.program import CudaProgram, sources

TILES = {name: tile for name, tile in limbs.NAMES.items() if name in ("flat", "small", "group_64")}


@pytest.fixture(autouse=True)
def by_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of test_epilogues' own."""


@pytest.fixture(autouse=True, params=TILES)
def in_one_part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products too are by limbs, in tiles of a kind."""

    def tiling(
        ring: limbs.Ring,
        extents: tuple[int, int, int],
        depths: Sequence[int],
        device: DeviceShape,
        kernel: str = "matmul",
    ) -> limbs.Tiling:
        tile = TILES[request.param]
        if tile is limbs.GROUP_64 and ring.limbs > 5:
            tile = limbs.GROUP_32
        return limbs.tiling_of(ring, tile, 1, 1, extents, depths)

    monkeypatch.setattr(limbs, "tiling", tiling)
    monkeypatch.setattr(matmul, "launches", matmul.by_limbs)
    monkeypatch.setattr(conv2d, "launches", conv2d.by_limbs)


def of_words(elements: int, word: int, *more: tuple[int, ...]) -> list[int]:
    """Three times stream 0, the sums, plus a bias of five words for three elements each."""
    w: dict[str, Any] = {"word": word}
    lines = [
        instruction(op=Op.LOAD, dst=0, a=0, **w),
        instruction(op=Op.LOAD, dst=1, a=1, b=3, c=5, **w),
        instruction(op=Op.MUL_CONST, dst=0, a=0, immediate=3, **w),
        instruction(op=Op.ADD, dst=1, a=0, b=1, **w),
        *more,
        instruction(op=Op.STORE, a=2, b=1, **w),
    ]
    return [int(value) for value in program(elements, 3, 3, lines)]


def plan_of_words(
    shape: tuple[int, int, int, int] = (1, 5, 7, 70),
    word: int = 64,
    *more: tuple[int, ...],
    to: int = 4 * PLACE,
    **fields: Any,
) -> Plan:
    """plan_of with a program of words, whose results are words at `to`."""
    elements = shape[0] * shape[1] * shape[2]
    plan = plan_of(shape, word, params=of_words(elements, word, *more), **fields)
    row = plan.party("alice").buffers[5]
    row["kind"], row["bits"], row["offset"] = plan.party("alice").buffers[0]["kind"], word, to
    return plan


def joined(plan: Plan, emulator: EmulatorDriver) -> list[tuple[int, int]]:
    made = CudaProgram.laid_out(plan, "alice", emulator, {})
    return [(each.product, each.follower) for each in made.epilogues]


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 40), (2, 3, 43, 70), (3, 5, 64, 65), (1, 131, 60, 33), (1, 20, 140, 33)]
)
def test_memory_is_as_on_the_cpu(
    emulator: EmulatorDriver, word: int, shape: tuple[int, int, int, int]
) -> None:
    """Odd columns, and rows and columns beyond a tile: nothing beside the output is touched."""
    plan = plan_of_words(shape, word)
    assert joined(plan, emulator) == [(0, 1)]
    device = CudaDevice(CudaProgram.prepared(plan, "alice", emulator), KEY)
    expected = ready("cpu", plan, "alice").open(KEY)
    before = emulator.launches
    for seed in range(2):
        found = memory(plan, device, seed)
        np.testing.assert_array_equal(found, memory(plan, expected, seed))
    assert emulator.launches - before == 2


def test_results_may_lie_where_sums_would(emulator: EmulatorDriver) -> None:
    plan = plan_of_words(to=0)
    assert joined(plan, emulator) == [(0, 1)]
    devices = (CudaDevice(CudaProgram.prepared(plan, "alice", emulator), KEY),)
    expected = ready("cpu", plan, "alice").open(KEY)
    for device in (*devices, expected):
        memory(plan, device, 4)
    mine, theirs = (device.copy_out((0, 8 * 35)) for device in (*devices, expected))
    np.testing.assert_array_equal(mine, theirs)


W64: dict[str, Any] = {"word": 64}
OTHERS: dict[str, dict[str, Any]] = {
    "a draw": {"more": [instruction(op=Op.DRAW, dst=1, a=0, count=64, immediate=7, **W64)]},
    "bits": {"more": [instruction(op=Op.PACK, dst=0, dst_step=1, a=1, count=3, **W64)]},
    "over a factor": {"to": 2 * PLACE + 1024},
    "a factor written between": {
        "between": [step("fill", first_buffer=10, buffer_count=1, param_count=1)]
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_where_sums_are_stored(emulator: EmulatorDriver, name: str) -> None:
    more, *_ = [list(OTHERS[name].get("more", ()))]
    fields = {key: value for key, value in OTHERS[name].items() if key != "more"}
    assert joined(plan_of_words((1, 5, 7, 70), 64, *more, **fields), emulator) == []


def test_packed_results_are_stored_by_warps(emulator: EmulatorDriver) -> None:
    assert joined(plan_of(params=of_words(35, 64)), emulator) == []


def test_sums_that_go_on_are_stored() -> None:
    """Those in parts, deeper ones than 32 bits hold, which a block stores several times, and those
    of convolutions that have no register left."""
    ring = limbs.Ring(64, 8)
    out = Buffer(0, 0, Kind.WORDS64, 64, (1, 8, 8), (64, 8, 1))
    deepest = ring.exact_depth
    assert deepest is not None

    def ends(parts: int, depths: list[int]) -> bool:
        made = limbs.tiling_of(ring, limbs.FLAT, 1, parts, (1, 8, 8), depths)
        return made.ending("matmul", out, depths) is not None

    assert ends(1, [deepest])
    full = limbs.tiling_of(ring, limbs.GROUP_32, 3, 1, (1, 8, 8), [32])
    assert full.ending("matmul", out, [32]) is not None
    assert full.ending("conv2d", out, [32]) is None
    assert not ends(1, [deepest + 1])
    assert not ends(1, [deepest, 1])
    assert not ends(2, [deepest])


@pytest.mark.parametrize("in_one_part", ["small"], indirect=True)
def test_what_is_compiled_ahead_is_enough(emulator: EmulatorDriver) -> None:
    plan = plan_of_words()
    made = CudaProgram.laid_out(plan, "alice", emulator, {})
    ahead = {source.digest for source in sources(plan.party("alice"), 0, EMULATOR.arch)}
    needed = {source.digest for source in made.sources}
    assert any("followed" in each.launch.entry for each in made.epilogues)
    assert needed <= ahead


@pytest.mark.parametrize("in_one_part", ["small"], indirect=True)
@pytest.mark.parametrize("ring", [32, 40, 64])
@pytest.mark.parametrize(("op", "batch"), [("matmul", 1), ("matmul", 8), ("conv", 1), ("conv", 8)])
def test_whole_products(
    emulator: EmulatorDriver, monkeypatch: pytest.MonkeyPatch, ring: int, op: str, batch: int
) -> None:
    """The wire is that of parties on the CPU, and one of them has a product that ends in what
    follows where its results are whole words, as messages of 40 bits need not be."""
    plan = layer_plan("rep3", op, ring, batch, bits=0)
    made = [CudaProgram.laid_out(plan, party, emulator, {}) for party in plan.manifest.parties]
    assert ring == 40 or any(each.epilogues for each in made)
    monkeypatch.setenv("XDG_CACHE_HOME", str(emulator._folder))
    check_layer(plan, op, batch)
