"""Sums that products make while they load them: the same memory as on the CPU, and where it is not
done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copying_plans import copying_plan
from onnx import helper
from small_interpreters import image, step, words
from tiny_models import model_of
from whole_plans import check_devices

import veilgraph
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import KEPT, ROUND, BufferKind, Phase, Tensor
from veilgraph.kernels.fused.declaration import instruction, program
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.residues import by_residues
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.cuda.device import CudaDevice, CudaReady
from veilgraph.runtime.devices.cuda.drivers.emulator import EmulatorDriver
from veilgraph.runtime.devices.cuda.drivers.gpus import Gpu
from veilgraph.runtime.devices.cuda.program import CudaProgram
from veilgraph.runtime.devices.heterogeneous import HeterogeneousReady

WAYS = {"limbs": matmul.by_limbs, "residues": by_residues}
PLACE = 1 << 16  # bytes of each operand's place
HOPPER = Gpu("emulator of a Hopper", "sm_90", multiprocessors=2, memory_bytes=4 << 30)
OUT, LEFT, ONE, OTHER, SUM, RIGHT, SECOND, SPARE = (PLACE * i for i in range(8))


@pytest.fixture
def emulator(emulator_folder: Path) -> EmulatorDriver:
    """Of a GPU with the shared memory that sums of 64 bits need."""
    return EmulatorDriver(emulator_folder, HOPPER)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small products too go by limbs, or by residues."""
    going_by(monkeypatch, request.param)
    return str(request.param)


def going_by(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(matmul, "way_of", lambda *_: WAYS[name])


def adding(elements: int, word: int = 64, op: Op = Op.ADD, **of_load: int) -> list[int]:
    """A program of streams sum, one, and other."""
    lines = [
        instruction(op=Op.LOAD, word=word, dst=0, a=1),
        instruction(op=Op.LOAD, word=word, dst=1, a=2, **of_load),
        instruction(op=op, word=word, dst=1, a=0, b=1),
        instruction(op=Op.STORE, word=word, a=0, b=1),
    ]
    return [int(value) for value in program(elements, 2, 0, lines)]


def plan_of(
    shape: tuple[int, int, int, int] = (1, 5, 7, 20),
    word: int = 64,
    turned: bool = False,
    before: Sequence[Any] = (),
    between: Sequence[Any] = (),
    after: Sequence[Any] = (),
    params: Sequence[int] | None = None,
    out: int = OUT,
    one: int = ONE,
    sum_at: int = SUM,
    **fields: Any,
) -> Plan:
    """sum = one + other, then left x sum + second x right, as of rep3: [batch, rows, depth] x
    [batch, depth, columns]. `turned` are the sums' rows and columns in memory.

    Steps around these two have a copy of eight words from the sum (5), from other to a
    spare place (7), or of spare words over other (9); a product of spare factors (11), the second
    one of the same sum (14), one that makes an addend of the least shape (20), and what adds to the
    result of that (23).
    """
    batch, rows, columns, depth = shape
    elements = batch * depth * columns
    kind = {"kind": BufferKind.WORDS64 if word == 64 else BufferKind.WORDS32, "bits": word}
    made = adding(elements, word) if params is None else params
    strides = (depth * columns, 1, depth) if turned else (depth * columns, columns, 1)
    right = {**kind, "strides": strides}
    product = [
        image(out, batch, rows, columns, **kind),
        image(LEFT, batch, rows, depth, **kind),
        image(sum_at, batch, depth, columns, **right),
        image(SECOND, batch, rows, depth, **kind),
        image(RIGHT, batch, depth, columns, **right),
    ]
    buffers = [
        *product,
        words(SPARE, 8), words(sum_at, 8),
        words(SPARE, 8), words(OTHER, 8),
        words(OTHER, 8), words(SPARE, 8),
        image(SPARE, 1, 2, 2), image(RIGHT, 1, 2, 2), image(RIGHT, 1, 2, 2),
        image(SPARE, batch, rows, columns, **kind), *product[1:3],
        words(sum_at, elements, **kind), words(one, elements, **kind),
        words(OTHER, elements, **kind),
        image(ONE, 1, 20, 7), image(SPARE, 1, 20, 2), image(RIGHT, 1, 2, 7),
        words(SPARE, 35), words(OUT, 35), words(LEFT, 35),
    ]  # fmt: skip
    steps = [
        *before,
        step("fused", first_buffer=17, buffer_count=3, first_param=1, param_count=len(made)),
        *between,
        step("matmul", buffer_count=5, param_count=1),
        *after,
    ]
    every = [word, *made, *adding(35)]
    return copying_plan(steps, (), buffers, every, arena_bytes=8 * PLACE, **fields)


SUM_OUT = step("copy", first_buffer=5)
READ_OTHER, WRITE_OTHER = step("copy", first_buffer=7), step("copy", first_buffer=9)
SPARE_PRODUCT = step("matmul", first_buffer=11, buffer_count=3, param_count=1)
SECOND_PRODUCT = step("matmul", first_buffer=14, buffer_count=3, param_count=1)
ADDEND_PRODUCT = step("matmul", first_buffer=20, buffer_count=3, param_count=1)
LENGTH = len(adding(35))
FOLLOWER = step(
    "fused", first_buffer=23, buffer_count=3, first_param=1 + LENGTH, param_count=LENGTH
)


def joined(plan: Plan, emulator: EmulatorDriver) -> list[tuple[tuple[int, ...], list[int]]]:
    made = CudaProgram.laid_out(plan, "alice", emulator, {})
    return [(each.sums, list(each.products)) for each in made.prologues]


def memory(plan: Plan, device: Any, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """What the steps leave, but for the sum itself, of an arena of noise."""
    size = plan.party("alice").arena_bytes
    noise = np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)
    device.copy_in(0, noise)
    device.run(0, len(plan.party("alice").steps), 3)
    left: np.ndarray[Any, np.dtype[np.uint8]] = device.copy_out((0, size))
    left[SUM : SUM + PLACE] = 0
    return left


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 43, 70), (3, 5, 64, 9)])
def test_memory_is_as_on_the_cpu(
    emulator: EmulatorDriver, way: str, word: int, turned: bool, shape: tuple[int, int, int, int]
) -> None:
    plan = plan_of(shape, word, turned)
    assert joined(plan, emulator) == [((0,), [1])]
    device = CudaDevice(CudaProgram.prepared(plan, "alice", emulator), b"")
    expected = ready("cpu", plan, "alice").open(b"")
    for seed in range(2):
        found = memory(plan, device, seed)
        np.testing.assert_array_equal(found, memory(plan, expected, seed))


def test_a_launch_less_where_both_steps_are_run(emulator: EmulatorDriver, way: str) -> None:
    """The sum is not stored then; each step by itself leaves what the plan says."""
    plan = plan_of()
    made = CudaProgram.prepared(plan, "alice", emulator)
    device = CudaDevice(made, b"")
    together = memory(plan, device, 1)
    steps = sum(map(len, made.laid.steps))
    assert emulator.launches == steps - 1
    noise = np.random.default_rng(1).integers(0, 256, 8 * PLACE).astype(np.uint8)
    np.testing.assert_array_equal(device.copy_out((SUM, PLACE)), noise[SUM : SUM + PLACE])
    device.copy_in(0, noise)
    device.run(0, 1, 3)
    one, other = (noise[at : at + 8 * 140].view(np.uint64) for at in (ONE, OTHER))
    stored = device.copy_out((SUM, 8 * 140)).view(np.uint64)
    np.testing.assert_array_equal(stored, one + other)
    device.run(1, 2, 3)
    assert emulator.launches == 2 * steps - 1
    np.testing.assert_array_equal(device.copy_out((OUT, PLACE)), together[:PLACE])


def test_products_that_read_the_same_sum(emulator: EmulatorDriver, way: str) -> None:
    """With a step in between that leaves addends alone, and one behind that does not."""
    plan = plan_of(between=[SECOND_PRODUCT, READ_OTHER], after=[WRITE_OTHER])
    assert joined(plan, emulator) == [((0,), [1, 3])]
    device = CudaDevice(CudaProgram.prepared(plan, "alice", emulator), b"")
    expected = memory(plan, ready("cpu", plan, "alice").open(b""), 4)
    np.testing.assert_array_equal(memory(plan, device, 4), expected)


OTHERS: dict[str, Callable[[], Plan]] = {
    "read later": lambda: plan_of(after=[SUM_OUT]),
    "read by another step too": lambda: plan_of(between=[SUM_OUT]),
    "read by the next inference": lambda: plan_of(before=[SUM_OUT]),
    "a round between": lambda: plan_of(between=[step(ROUND, buffer_count=0)]),
    "an addend written in between": lambda: plan_of(between=[WRITE_OTHER]),
    "a product behind an addend's end": lambda: plan_of(
        between=[SECOND_PRODUCT, WRITE_OTHER],
    ),
    "an output": lambda: plan_of(outputs=(Tensor("y", (4,), 64, 0, "alice", SUM),)),
    "kept": lambda: plan_of(kept=np.array([(Phase.ONLINE, 0, (0,) * 6, SUM + 16, 8)], KEPT)),
    "fewer elements": lambda: plan_of(params=adding(139)),
    "repeated": lambda: plan_of(params=adding(140, b=1, c=140)),
    "words of another width": lambda: plan_of(word=32, params=adding(70)),
    "a difference": lambda: plan_of(params=adding(140, op=Op.SUB)),
    "in place": lambda: plan_of(one=SUM),
    "the product's place": lambda: plan_of(out=SUM + 8 * 100),
}


@pytest.mark.parametrize("plan", OTHERS.values(), ids=OTHERS)
def test_where_sums_are_steps(emulator: EmulatorDriver, way: str, plan: Callable[[], Plan]) -> None:
    assert not joined(plan(), emulator)


def test_a_product_in_an_addends_place(
    emulator: EmulatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Residues are made before anything is stored; limbs are loaded while other tiles are done."""
    plan = plan_of(out=ONE)
    going_by(monkeypatch, "limbs")
    assert not joined(plan, emulator)
    going_by(monkeypatch, "residues")
    assert joined(plan, emulator) == [((0,), [1])]
    device = CudaDevice(CudaProgram.prepared(plan, "alice", emulator), b"")
    expected = memory(plan, ready("cpu", plan, "alice").open(b""), 4)
    np.testing.assert_array_equal(memory(plan, device, 4), expected)


@pytest.mark.parametrize(
    ("by", "steps", "products", "followed", "unseen"),
    [
        ("residues", {"after": [FOLLOWER]}, [((0,), [1])], [(1, 2)], OUT),
        ("residues", {"before": [ADDEND_PRODUCT]}, [((1,), [2])], [], SUM),
        ("limbs", {"after": [FOLLOWER]}, [((0,), [1])], [], SUM),
    ],
)
def test_what_an_epilogue_takes(
    emulator: EmulatorDriver,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    steps: dict[str, Any],
    products: list[tuple[tuple[int, ...], list[int]]],
    followed: list[tuple[int, int]],
    unseen: int,
) -> None:
    """A product by residues may have both, one by limbs ends in no program where it makes sums; a
    sum that its products make follows none."""
    going_by(monkeypatch, by)
    plan = plan_of(**steps)
    assert joined(plan, emulator) == products
    made = CudaProgram.prepared(plan, "alice", emulator)
    assert [(each.product, each.follower) for each in made.epilogues] == followed
    found = memory(plan, CudaDevice(made, b""), 6)
    expected = memory(plan, ready("cpu", plan, "alice").open(b""), 6)
    for each in (found, expected):
        each[unseen : unseen + PLACE] = 0
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("rows", "sums"), [(16, (0, 1)), (128, (0,))])
def test_sums_on_both_sides(
    emulator: EmulatorDriver, monkeypatch: pytest.MonkeyPatch, rows: int, sums: tuple[int, ...]
) -> None:
    """Where shared memory has no room for both, one of them."""
    going_by(monkeypatch, "limbs")
    left, right = 20 * rows, 20 * 32
    buffers = [
        image(OUT, 1, rows, 32), image(SUM, 1, rows, 20), image(SECOND, 1, 20, 32),
        words(SUM, left), words(ONE, left), words(OTHER, left),
        words(SECOND, right), words(RIGHT, right), words(SPARE, right),
    ]  # fmt: skip
    params = [64, *adding(left), *adding(right)]
    steps = [
        step("fused", first_buffer=3, buffer_count=3, first_param=1, param_count=LENGTH),
        step("fused", first_buffer=6, buffer_count=3, first_param=1 + LENGTH, param_count=LENGTH),
        step("matmul", buffer_count=3, param_count=1),
    ]
    plan = copying_plan(steps, (), buffers, params, arena_bytes=8 * PLACE)
    assert joined(plan, emulator) == [(sums, [2])]
    device = CudaDevice(CudaProgram.prepared(plan, "alice", emulator), b"")
    found, expected = (
        memory(plan, each, 7) for each in (device, ready("cpu", plan, "alice").open(b""))
    )
    np.testing.assert_array_equal(found[:PLACE], expected[:PLACE])


def test_where_the_kernel_had_better_be_given_sums(emulator: EmulatorDriver) -> None:
    """So small a product is one of the integer units."""
    assert not joined(plan_of((1, 3, 3, 2)), emulator)


@cache
def scores(ring_bits: int) -> tuple[Plan, dict[str, Any], Any]:
    """(x q) (x k)^T, its weights, and an x; so large that truncations are of thirds, and sums of
    what they leave steps of their own."""
    rng = np.random.default_rng(3)
    weights = {name: 0.5 * rng.standard_normal((16, 16)) for name in "qk"}
    nodes = [
        *(helper.make_node("MatMul", ["x", name], [f"x{name}"]) for name in weights),
        helper.make_node("Transpose", ["xk"], ["keys"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["xq", "keys"], ["y"]),
    ]
    samples = rng.standard_normal((8, 1, 16, 16), dtype=np.float32)
    model = model_of((1, 16, 16), nodes, weights)
    plan, owned = veilgraph.compile(
        model, ring=ring_bits, calibrate={"x": samples}, roles="rotated"
    )
    return plan, owned, samples[0]


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("ring_bits", [32, 40, 64])
def test_products_of_secrets(emulator_folder: Path, way: str, ring_bits: int, graphs: bool) -> None:
    """Each party's sum of shares, in rings of words and of less; replayed as graphs, or not.

    Alice's product goes into a message that opens it, packed to 40 bits: there her sum stays.
    """
    plan, weights, x = scores(ring_bits)
    joined: dict[str, list[int]] = {}

    def on_emulator(plan: Plan, party: str) -> CudaReady:
        made = CudaProgram.prepared(plan, party, EmulatorDriver(emulator_folder, HOPPER))
        joined[party] = [len(each.products) for each in made.prologues]
        return CudaReady(made, graphs)

    check_devices(plan, [{"x": x}, {"x": -x}, {"x": 2 * x}], weights, (on_emulator,) * 3)
    alone = {"alice": []} if ring_bits == 40 else {}
    assert joined == {"alice": [1], "bob": [1], "carol": [1]} | alone


def test_steps_run_one_by_one_make_the_same(emulator_folder: Path, way: str) -> None:
    """As a device of two has them: no joined launches, the same messages."""
    plan, weights, x = scores(40)

    def on_emulator(plan: Plan, party: str) -> HeterogeneousReady:
        gpu = CudaReady(CudaProgram.prepared(plan, party, EmulatorDriver(emulator_folder, HOPPER)))
        program = plan.party(party)
        partition = [step % 2 for step in range(len(program.steps))]
        return HeterogeneousReady(program, ready("cpu", plan, party), gpu, partition)

    check_devices(plan, [{"x": x}, {"x": -x}], weights, (on_emulator,) * 3)
