"""Products by residues, or in parts, whose sums the next program makes: the same memory as on the
CPU, and where it is not done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from copying_plans import copying_plan
from layer_plans import check_layer, layer_plan
from small_interpreters import image, step, words

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import KEPT, ROUND, BufferKind, Phase, Tensor
from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.conv2d.declaration import Params
from veilgraph.kernels.conv2d.residues.residues import by_residues as convolution_by_residues
from veilgraph.kernels.cuda import DeviceShape
from veilgraph.kernels.fused.declaration import instruction, program
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.residues import by_residues
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.cuda.device import CudaDevice
from veilgraph.runtime.devices.cuda.drivers.emulator import EMULATOR, EmulatorDriver
from veilgraph.runtime.devices.cuda.program import CudaProgram, sources

KEY = bytes(range(16))
PLACE = 1 << 16  # bytes of each operand's place


def three_parts(
    ring: limbs.Ring,
    extents: tuple[int, int, int],
    depths: Sequence[int],
    device: DeviceShape,
    kernel: str = "matmul",
) -> limbs.Tiling:
    """A part a step of the depth, three at most."""
    return limbs.tiling_of(ring, limbs.SMALL, 1, 3, extents, depths)


WAYS = {
    "residues": (by_residues, convolution_by_residues),
    "parts": (matmul.by_limbs, conv2d.by_limbs),
}


@pytest.fixture(autouse=True, params=WAYS)
def by_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products too go by a way that leaves something for the next program to add up."""
    of_matrices, of_images = WAYS[request.param]
    monkeypatch.setattr(matmul, "launches", of_matrices)
    monkeypatch.setattr(conv2d, "launches", of_images)
    monkeypatch.setattr(limbs, "tiling", three_parts)


def followed(elements: int, word: int, *more: tuple[int, ...]) -> list[int]:
    """A program of streams sums, bias, message and bits: sums plus bias plus a draw, packed to 24
    bits, and its lowest three planes."""
    w: dict[str, Any] = {"word": word}
    lines = [
        instruction(op=Op.LOAD, dst=0, a=0, **w),
        instruction(op=Op.LOAD, dst=1, a=1, b=3, c=5, **w),
        instruction(op=Op.DRAW, dst=2, a=0, count=word, immediate=7, **w),
        instruction(op=Op.ADD, dst=1, a=0, b=1, **w),
        instruction(op=Op.ADD, dst=1, a=1, b=2, **w),
        instruction(op=Op.STORE, a=2, b=1, **w),
        instruction(op=Op.PACK, dst=0, dst_step=1, a=1, count=3, **w),
        instruction(op=Op.STORE_BITS, a=3, a_step=1, b=0, b_step=1, count=3),
        *more,
    ]
    return [int(value) for value in program(elements, 3, 3, lines)]


def plan_of(
    shape: tuple[int, int, int, int] = (1, 5, 7, 70),
    word: int = 64,
    between: Sequence[Any] = (),
    after: Sequence[Any] = (),
    params: Sequence[int] | None = None,
    **fields: Any,
) -> Plan:
    """[batch, rows, depth] x [batch, depth, columns], then a program of its sums."""
    batch, rows, columns, depth = shape
    shapes = (batch, rows, columns), (batch, rows, depth), (batch, depth, columns)
    return plan_with("matmul", [word], shapes, word, between, after, params, **fields)


def plan_with(
    kernel: str,
    ring: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
    word: int,
    between: Sequence[Any] = (),
    after: Sequence[Any] = (),
    params: Sequence[int] | None = None,
    **fields: Any,
) -> Plan:
    """A product's output and factors of these shapes, its parameters, and the same program."""
    elements = int(np.prod(shapes[0]))
    kind = {"kind": BufferKind.WORDS64 if word == 64 else BufferKind.WORDS32, "bits": word}
    packed = {"kind": BufferKind.PACKED, "bits": 24}
    planes = {"kind": BufferKind.PLANES, "bits": 3}
    made = followed(elements, word) if params is None else params
    buffers = [
        *(image(number * PLACE, *shape, **kind) for number, shape in enumerate(shapes)),
        words(0, elements, **kind),
        words(3 * PLACE, 5, **kind),
        words(4 * PLACE, elements, **packed),
        words(5 * PLACE, elements, **planes),
        words(6 * PLACE, 4),
        words(0, 4),
        *(image(at * PLACE, *shape, **kind) for at, shape in zip((6, 1, 2), shapes, strict=True)),
    ]
    steps = [
        step(kernel, buffer_count=3, first_param=0, param_count=len(ring)),
        *between,
        step(
            "fused",
            first_buffer=3,
            buffer_count=4,
            first_param=len(ring),
            param_count=len(made),
        ),
        *after,
    ]
    keys = (("alice",),)
    every = [*ring, *made]
    return copying_plan(steps, (), buffers, every, keys=keys, arena_bytes=7 * PLACE, **fields)


def memory(plan: Plan, device: Any, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """What the steps leave, but for the sums themselves, of an arena of noise."""
    size = plan.party("alice").arena_bytes
    noise = np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)
    device.copy_in(0, noise)
    device.run(0, len(plan.party("alice").steps), 3)
    return device.copy_out((PLACE, size - PLACE))


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("shape", [(1, 1, 1, 40), (2, 3, 43, 70), (3, 5, 64, 65), (1, 1, 129, 33)])
def test_memory_is_as_on_the_cpu(
    emulator: EmulatorDriver, word: int, shape: tuple[int, int, int, int]
) -> None:
    check_joined(plan_of(shape, word), emulator)


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("groups", [1, 3])
def test_memory_is_as_on_the_cpu_after_a_convolution(
    emulator: EmulatorDriver, word: int, groups: int
) -> None:
    """Images with gaps between rows, of two phases."""
    shapes = (2, 12, 5, 4), (2, 12, 9, 7), (12, 12 // groups, 3, 3)
    params = Params(word, 2, 2, 1, 1, groups=groups).values()
    check_joined(plan_with("conv2d", [int(value) for value in params], shapes, word), emulator)


def check_joined(plan: Plan, emulator: EmulatorDriver) -> None:
    """The product's sums are made by the program that follows, and all else is as on the CPU."""
    made = CudaProgram.prepared(plan, "alice", emulator)
    assert [(each.product, each.follower) for each in made.epilogues] == [(0, 1)]
    device = CudaDevice(made, KEY)
    expected = ready("cpu", plan, "alice").open(KEY)
    for seed in range(2):
        found = memory(plan, device, seed)
        np.testing.assert_array_equal(found, memory(plan, expected, seed))


def test_a_launch_less_where_both_steps_are_run(emulator: EmulatorDriver) -> None:
    """Each by itself leaves the sums where the plan says."""
    plan = plan_of()
    device = CudaDevice(CudaProgram.prepared(plan, "alice", emulator), KEY)
    together, before = memory(plan, device, 1), emulator.launches
    device.run(0, 1, 3)
    assert emulator.launches == before + before
    sums = device.copy_out((0, 8 * 35)).view(np.uint64).reshape(5, 7)
    left = device.copy_out((PLACE, 8 * 350)).view(np.uint64).reshape(5, 70)
    right = device.copy_out((2 * PLACE, 8 * 490)).view(np.uint64).reshape(70, 7)
    np.testing.assert_array_equal(sums, left @ right)
    device.run(1, 2, 3)
    np.testing.assert_array_equal(device.copy_out((PLACE, 6 * PLACE)), together)


COPY_OUT = step("copy", first_buffer=7)  # reads the sums
PRODUCT = step("matmul", buffer_count=3, param_count=1)
ELSEWHERE = step("matmul", first_buffer=9, buffer_count=3, param_count=1)
LOAD = {"op": Op.LOAD, "word": 64}
REPEATING = [instruction(a=0, b=1, c=35, **LOAD), instruction(op=Op.STORE, word=64, a=2)]
OTHERS = {
    "read later": {"after": [COPY_OUT]},
    "read before it is written again": {"after": [COPY_OUT, PRODUCT]},
    "a round between": {"between": [step(ROUND, buffer_count=0)]},
    "made again between": {"between": [PRODUCT]},
    "another product between": {"between": [ELSEWHERE]},
    "an output": {"outputs": (Tensor("y", (4,), 64, 0, "alice", 8),)},
    "kept": {"kept": np.array([(Phase.ONLINE, 0, (0,) * 6, 16, 8)], KEPT)},
    "fewer elements": {"params": followed(34, 64)},
    "loaded twice": {"params": followed(35, 64, instruction(dst=0, a=0, **LOAD))},
    "repeated": {"params": [int(value) for value in program(35, 1, 0, REPEATING)]},
}


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS)
def test_where_sums_are_stored(emulator: EmulatorDriver, fields: dict[str, Any]) -> None:
    made = CudaProgram.laid_out(plan_of(**fields), "alice", emulator, {})
    assert not [each for each in made.epilogues if each.product == 0]


def test_a_step_between_that_needs_no_scratch_memory(emulator: EmulatorDriver) -> None:
    """Sums wait in scratch memory; what is written over them later ends them."""
    other = step("fill", first_buffer=7, buffer_count=1, param_count=1)
    over = step("fill", first_buffer=0, buffer_count=1, param_count=1)
    plan = plan_of(between=[other], after=[over, COPY_OUT])
    made = CudaProgram.prepared(plan, "alice", emulator)
    assert [(each.product, each.follower) for each in made.epilogues] == [(0, 2)]
    found = memory(plan, CudaDevice(made, KEY), 5)
    np.testing.assert_array_equal(found, memory(plan, ready("cpu", plan, "alice").open(KEY), 5))


def test_what_is_compiled_ahead_is_enough_for_any_gpu(
    emulator: EmulatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be their multiprocessors too few to cut the depth, or what lies between in the way or not."""
    monkeypatch.undo()
    for between in ((), (ELSEWHERE,)):
        plan = plan_of((1, 5, 7, 512), 32, between)
        ahead = {source.digest for source in sources(plan.party("alice"), 0, EMULATOR.arch)}
        joined = set()
        for multiprocessors in (1, 2, 132):
            gpu = replace(EMULATOR, multiprocessors=multiprocessors)
            made = CudaProgram.laid_out(plan, "alice", EmulatorDriver(emulator._folder, gpu), {})
            joined.add(len(made.epilogues))
            needed = {source.digest for source in made.sources}
            assert needed <= ahead
        assert joined == ({0} if between else {0, 1})


@pytest.mark.parametrize(("suite", "ring"), [("rep3", 32), ("rep3", 64), ("additive", 40)])
@pytest.mark.parametrize(("op", "batch"), [("matmul", 1), ("matmul", 8), ("conv", 1), ("conv", 8)])
def test_whole_layers(
    emulator: EmulatorDriver,
    monkeypatch: pytest.MonkeyPatch,
    suite: str,
    ring: int,
    op: str,
    batch: int,
) -> None:
    """The wire is that of parties on the CPU, and some of them have sums made by what follows."""
    plan = layer_plan(suite, op, ring, batch)
    made = [CudaProgram.laid_out(plan, party, emulator, {}) for party in plan.manifest.parties]
    assert any(each.epilogues for each in made)
    monkeypatch.setenv("XDG_CACHE_HOME", str(emulator._folder))
    check_layer(plan, op, batch)
