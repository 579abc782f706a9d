"""Factors that setup makes: found by the tables alone, packed once, and again when they change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from copying_plans import RECEIVE, copying_plan, opened
from small_interpreters import image, step, words
from small_plans import W, X, small_plan
from whole_plans import check_devices, check_prepared, heterogeneous

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import BUFFER, KEPT, ROUND, Phase
from veilgraph.kernels import KERNELS
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.residues import by_residues
from veilgraph.runtime.devices.cuda.device import CudaDevice
from veilgraph.runtime.devices.cuda.drivers.emulator import EMULATOR, EmulatorDriver
from veilgraph.runtime.devices.cuda.packing import Freshness, Places, fixed_buffers
from veilgraph.runtime.devices.cuda.program import CudaProgram, needed_bytes

COPY = step("copy", first_buffer=3, phase=Phase.SETUP)  # makes the right factor
PRODUCT = step("matmul", buffer_count=3, param_count=1, phase=Phase.ONLINE)
OUT, LEFT, RIGHT, SOURCE = 0, 64, 1024, 8000
WEIGHTS = 8 * 40  # bytes
KEPT_RIGHT = np.array([(Phase.SETUP, 0, (0,) * 6, RIGHT, WEIGHTS)], KEPT)
BUFFERS = [
    image(OUT, 1, 3, 2),
    image(LEFT, 1, 3, 20),
    image(RIGHT, 1, 20, 2),
    words(RIGHT, 40),
    words(SOURCE, 40),
]


@pytest.fixture(params=[by_residues, matmul.by_limbs], ids=["residues", "limbs"])
def by_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products too are on tensor cores."""
    monkeypatch.setattr(matmul, "launches", request.param)


def plan_of(steps: Sequence[Any], kept: npt.NDArray[np.void] = KEPT_RIGHT, **fields: Any) -> Plan:
    """Alice's steps in their own phases, where copying_plan has all of them online."""
    plan = copying_plan(steps, buffers=BUFFERS, params=[64], kept=kept, **fields)
    plan.party("alice").steps["phase"] = [each["phase"] for each in steps]
    return plan


def random(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.uint64]:
    return rng.integers(0, 2**64, shape, np.uint64)


def answer(device: CudaDevice, left: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Step 1 as an inference, on a left factor of its own."""
    device.copy_in(LEFT, left)
    device.run(1, 2, 1)
    return device.copy_out((OUT, 48)).view(np.uint64).reshape(3, 2)


# What is fixed


def test_right_factors_of_a_layer_are_found() -> None:
    """Sums of weights' shares are; shares of the input are not."""
    for party in ("alice", "bob", "carol"):
        program = small_plan().party(party)
        product = next(s for s in program.steps if s["kernel"] == KERNELS.index("matmul"))
        first, count = int(product["first_buffer"]), int(product["buffer_count"])
        assert sorted(fixed_buffers(program)) == list(range(first + 2, first + count, 2))


def test_what_is_not_fixed() -> None:
    """Neither what nothing keeps, nor what an inference writes, nor what setup multiplies."""
    late = step("copy", first_buffer=3, phase=Phase.OFFLINE)
    early = step("matmul", buffer_count=3, param_count=1, phase=Phase.SETUP)
    assert fixed_buffers(plan_of([COPY, PRODUCT]).party("alice")) == {2: (RIGHT, WEIGHTS)}
    assert not fixed_buffers(plan_of([COPY, PRODUCT], KEPT_RIGHT[:0]).party("alice"))
    for steps in ([COPY, PRODUCT, late], [COPY, early]):
        assert not fixed_buffers(plan_of(steps).party("alice"))


def test_what_a_round_of_an_inference_brings_is_not_fixed() -> None:
    came = [(RECEIVE, 1, 0, RIGHT + 8, 8)]
    steps = [COPY, step(ROUND, buffer_count=0, round=0), PRODUCT]
    plan = copying_plan(steps, came, BUFFERS, [64], kept=KEPT_RIGHT)
    assert not fixed_buffers(plan.party("alice"))


def test_public_constants_are_fixed() -> None:
    plan = plan_of([COPY, PRODUCT])
    alice = plan.party("alice")
    buffers = np.array(BUFFERS, BUFFER)
    buffers["region"][2], buffers["offset"][2] = 1, 0
    assert fixed_buffers(replace(alice, buffers=buffers, kept=KEPT_RIGHT[:0])) == {2: None}


def test_places() -> None:
    places = Places([(16, 8), (0, 4), (20, 12)])
    assert [places.touch((at, 4)) for at in (0, 4, 12, 13, 31, 32)] == [1, 0, 0, 1, 1, 0]
    assert [places.hold(place) for place in ((0, 4), (16, 16), (3, 2), (31, 2))] == [1, 1, 0, 0]
    assert not places.touch((17, 0))
    assert not Places([]).touch((0, 100))


# Once a session


@pytest.mark.parametrize(("way", "launches"), [(by_residues, 3), (matmul.by_limbs, 1)])
def test_weights_are_packed_once(
    emulator: EmulatorDriver, monkeypatch: pytest.MonkeyPatch, way: Any, launches: int
) -> None:
    """The first inference has a launch more."""
    monkeypatch.setattr(matmul, "launches", way)
    rng = np.random.default_rng(1)
    device = opened(plan_of([COPY, PRODUCT]), emulator, graphs=False)
    weights = random(rng, 20, 2)
    device.copy_in(SOURCE, weights)
    device.run(0, 1, 0)
    found = []
    for _ in range(3):
        left, before = random(rng, 3, 20), emulator.launches
        np.testing.assert_array_equal(answer(device, left), left @ weights)
        found.append(emulator.launches - before)
    assert found == [launches + 1, launches, launches]


@pytest.mark.usefixtures("by_way")
@pytest.mark.parametrize("how", ["copied in", "made by setup", "received"])
def test_weights_that_change_are_packed_again(emulator: EmulatorDriver, how: str) -> None:
    rng = np.random.default_rng(2)
    device = opened(plan_of([COPY, PRODUCT]), emulator)
    left = random(rng, 3, 20)
    answer(device, left)
    weights = random(rng, 20, 2)
    if how == "copied in":
        device.copy_in(RIGHT, weights)
    elif how == "made by setup":
        device.copy_in(SOURCE, weights)
        device.run(0, 1, 0)
    else:
        whole = device.round({}, {1: [(RIGHT, WEIGHTS)]})
        whole.fetch()
        np.copyto(whole.receives[1], weights.reshape(-1).view(np.uint8))
        whole.deliver()
    np.testing.assert_array_equal(answer(device, left), left @ weights)


def test_what_is_written_elsewhere_keeps_it_fresh() -> None:
    fresh = Freshness(plan_of([COPY, PRODUCT]).party("alice"), [(RIGHT, WEIGHTS)])
    assert [fresh.is_due(1, 2) for _ in range(2)] == [True, False]
    fresh.wrote((SOURCE, WEIGHTS))
    assert not fresh.is_due(1, 2)
    fresh.wrote((RIGHT + WEIGHTS - 1, 1))
    assert [fresh.is_due(0, 1), fresh.is_due(1, 2), fresh.is_due(1, 2)] == [False, True, False]


# Memory


@pytest.mark.usefixtures("by_way")
def test_packed_memory_counts_and_is_cleared(emulator: EmulatorDriver) -> None:
    plan = plan_of([COPY, PRODUCT])
    made = CudaProgram.prepared(plan, "alice", emulator)
    assert made.laid.bytes > 0
    assert made.laid.beside_bytes == made.laid.scratch_bytes + made.laid.bytes
    device = CudaDevice(made, b"")
    device.copy_in(SOURCE, random(np.random.default_rng(3), 20, 2))
    device.run(0, 1, 0)
    answer(device, np.ones((3, 20), np.uint64))
    packed = next(block for block in emulator.blocks if len(block) == made.laid.bytes)
    assert packed.any()
    device.close()
    assert not packed.any()


@pytest.mark.parametrize("by_way", [matmul.by_limbs], ids=["limbs"], indirect=True)
@pytest.mark.usefixtures("by_way")
def test_a_gpu_without_the_memory_packs_nothing(emulator_folder: Path) -> None:
    """Limbs come on top of a product's memory; residues of one product in place of scratch."""
    plan = plan_of([COPY, PRODUCT])
    alice = plan.party("alice")
    made = CudaProgram.prepared(plan, "alice", EmulatorDriver(emulator_folder))
    plain = CudaProgram.prepared(plan_of([COPY, PRODUCT], KEPT_RIGHT[:0]), "alice", made.driver)
    enough, little = (needed_bytes(plan, alice, m.laid.beside_bytes) for m in (made, plain))
    assert little < enough
    found = [
        CudaProgram.prepared(
            plan, "alice", EmulatorDriver(emulator_folder, replace(EMULATOR, memory_bytes=free))
        ).laid.bytes
        for free in (enough, enough - 1)
    ]
    assert found == [made.laid.bytes, 0]


# Whole plans


DEVICES = {
    "alone": ("host-emulator",) * 3,
    "beside the CPU": ("cpu", "host-emulator", "cpu"),
    "in turns": [heterogeneous(lambda count: [step % 2 for step in range(count)], "host-emulator")]
    * 3,
}


@pytest.mark.usefixtures("by_way", "emulator_cache")
@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_a_layer(devices: Any) -> None:
    check_devices(small_plan(), [{"x": X}, {"x": -X}, {"x": X}], {"w": W}, devices)


@pytest.mark.usefixtures("by_way", "emulator_cache")
@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_a_layer_from_a_store(devices: Any) -> None:
    check_prepared(small_plan(), [{"x": X}, {"x": -X}], {"w": W}, devices)
