"""The device `cuda` over the emulator: order, copies, rounds, times, refusals, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copying_plans import (
    BYTES,
    COUNT,
    HASTY,
    RECEIVE,
    SEND,
    copying_plan,
    fill,
    opened,
    rounds,
    whole,
)
from small_interpreters import image, step, words

from veilgraph.ir.errors import DeviceError, ResourceLimitError, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import KEPT, Phase, Tensor
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.residues import by_residues
from veilgraph.runtime.devices.cuda.device import CudaDevice
from veilgraph.runtime.devices.cuda.drivers.emulator import (
    EMULATOR,
    EmulatorDriver,
    EmulatorEvent,
    EmulatorStream,
)
from veilgraph.runtime.devices.cuda.drivers.interface import Driver, DriverFault
from veilgraph.runtime.devices.cuda.program import CudaProgram

COPY = step("copy", first_buffer=0)  # from the second place to the first


# Steps and copies


def test_memory_is_zero_at_first(driver: Driver) -> None:
    plan = copying_plan([COPY])
    assert not whole(opened(plan, driver), plan).any()


def test_steps_run_in_order(driver: Driver) -> None:
    plan = copying_plan([fill(1, 0), COPY, fill(1, 1)], params=[7, 9])
    device = opened(plan, driver)
    device.run(0, 3, 1)
    found = whole(device, plan)
    assert (found[:COUNT] == 7).all()
    assert (found[COUNT : 2 * COUNT] == 9).all()
    assert not found[2 * COUNT :].any()


def test_part_of_the_steps(driver: Driver) -> None:
    plan = copying_plan([fill(1, 0), COPY, fill(1, 1)], params=[7, 9])
    device = opened(plan, driver)
    device.run(2, 3, 1)
    device.run(1, 1, 1)
    assert (whole(device, plan)[: 2 * COUNT] == np.repeat([0, 9], COUNT)).all()
    with pytest.raises(AssertionError, match="out of range"):
        device.run(2, 4, 1)


def test_constants_are_on_the_gpu(driver: Driver) -> None:
    plan = copying_plan([COPY], buffers=[words(0, 4), words(8, 4, region=1)])
    constants = np.arange(5, dtype=np.uint64)
    device = opened(replace(plan, constants=constants.tobytes()), driver)
    device.run(0, 1, 1)
    assert whole(device, plan)[:4].tolist() == [1, 2, 3, 4]


PRODUCT = step("matmul", buffer_count=3, param_count=1)
FACTORS = [image(0, 1, 3, 2), image(64, 1, 3, 20), image(1024, 1, 20, 2)]


def test_launches_of_a_step_share_scratch_memory(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product whose launches leave residues to the next; cleared when the device ends."""
    monkeypatch.setattr(matmul, "launches", by_residues)
    plan = copying_plan([PRODUCT], buffers=FACTORS, params=[64])
    device = opened(plan, driver)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 2**64, shape, np.uint64) for shape in ((3, 20), (20, 2)))
    device.copy_in(64, a)
    device.copy_in(1024, b)
    device.run(0, 1, 1)
    np.testing.assert_array_equal(whole(device, plan)[:6].reshape(3, 2), a @ b)
    if isinstance(driver, EmulatorDriver):
        scratch = next(s for s in driver.blocks if len(s) == scratch_bytes(plan, driver))
        assert scratch.any()
        device.close()
        assert not scratch.any()


def scratch_bytes(plan: Plan, driver: Driver) -> int:
    return CudaProgram.prepared(plan, "alice", driver).laid.scratch_bytes


def test_scratch_memory_counts(emulator_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = copying_plan([PRODUCT], buffers=FACTORS, params=[64])
    gpu = replace(EMULATOR, memory_bytes=4 * BYTES + 64)
    CudaProgram.prepared(plan, "alice", EmulatorDriver(emulator_folder, gpu))
    monkeypatch.setattr(matmul, "launches", by_residues)
    with pytest.raises(ResourceLimitError, match="alice needs"):
        CudaProgram.prepared(plan, "alice", EmulatorDriver(emulator_folder, gpu))


@pytest.mark.parametrize("places", [1, 300])  # less and more than a piece of pinned memory
def test_copies_by_place(driver: Driver, places: int) -> None:
    plan = copying_plan([fill(0, 0)], params=[3], places=places)
    device = opened(plan, driver)
    content = np.arange(BYTES * places - 16, dtype=np.uint32).astype(np.uint8)
    device.copy_in(8, content)
    assert device.copy_out((8, len(content))).tobytes() == content.tobytes()
    assert device.copy_out((0, 8)).tobytes() == bytes(8)
    assert device.copy_out((8, 0)).tobytes() == b""
    device.copy_in(8, b"")


@pytest.mark.parametrize("place", [(-8, 8), (4 * BYTES, 1), (0, 4 * BYTES + 1)])
def test_places_are_inside_the_memory(driver: Driver, place: tuple[int, int]) -> None:
    device = opened(copying_plan([COPY]), driver)
    with pytest.raises(AssertionError, match="beyond"):
        device.copy_out(place)
    with pytest.raises(AssertionError, match="beyond"):
        device.copy_in(place[0], bytes(place[1]))


# Rounds


def test_a_round_fetches_what_steps_left_and_delivers_to_those_after(driver: Driver) -> None:
    messages = [(SEND, 1, 0, 0, BYTES), (RECEIVE, 1, 0, BYTES, BYTES), (SEND, 2, 1, 0, BYTES)]
    steps = [fill(0, 0), *rounds(1), COPY, *rounds(2)[1:]]
    plan = copying_plan(steps, messages, params=[5])
    device = opened(plan, driver)
    first = device.round({1: [(0, BYTES)]}, {1: [(BYTES, BYTES)]})
    second = device.round({2: [(0, BYTES)]}, {})
    for received in (11, 12):
        device.run(0, 1, received)
        first.fetch()
        assert (first.sends[1].view(np.uint64) == 5).all()
        first.receives[1].view(np.uint64)[:] = received
        first.deliver()
        device.run(2, 3, received)
        second.fetch()
        assert (second.sends[2].view(np.uint64) == received).all()
        second.deliver()


def test_messages_of_one_round_after_another_share_memory(driver: Driver) -> None:
    """What a round delivered is on the GPU before the next overwrites it, with no send between."""
    messages = [(RECEIVE, 1, r, BYTES * r, BYTES) for r in range(3)]
    plan = copying_plan(rounds(3), messages)
    device = opened(plan, driver)
    made = [device.round({}, {1: [(BYTES * r, BYTES)]}) for r in range(3)]
    for number, each in enumerate(made, start=1):
        each.fetch()
        each.receives[1].view(np.uint64)[:] = number
        each.deliver()
    assert (whole(device, plan)[: 3 * COUNT] == np.repeat([1, 2, 3], COUNT)).all()


def test_what_is_received_waits_for_steps_that_read_its_place(driver: Driver) -> None:
    messages = [(RECEIVE, 1, 0, BYTES, BYTES)]
    plan = copying_plan([fill(1, 0), COPY, *rounds(1)], messages, params=[5])
    device = opened(plan, driver)
    receive = device.round({}, {1: [(BYTES, BYTES)]})
    device.run(0, 2, 1)
    receive.fetch()
    receive.receives[1][:] = 255
    receive.deliver()
    found = whole(device, plan)
    assert (found[:COUNT] == 5).all()
    assert (found[COUNT : 2 * COUNT] == 2**64 - 1).all()


# Times


def test_a_profile_is_of_the_whole_without_a_trace(driver: Driver) -> None:
    plan = copying_plan([fill(1, 0), COPY], params=[7])
    device = opened(plan, driver)
    device.reset_profile()
    device.run(0, 2, 1)
    ((name, (calls, nanoseconds)),) = device.profile.items()
    assert (name, calls) == ("cuda", 2)
    assert nanoseconds > 0
    assert device.spans == []
    device.reset_profile()
    assert device.profile == {}


def test_a_trace_has_each_step(driver: Driver) -> None:
    plan = copying_plan([fill(1, 0), COPY, fill(1, 0)], params=[7])
    device = opened(plan, driver)
    device.run(0, 1, 1)
    device.trace()
    device.run(0, 3, 1)
    device.finish()
    spans = device.spans
    assert [span[0] for span in spans] == [0, 1, 2]
    times = [time for _, start, end in spans for time in (start, end)]
    assert times == sorted(times)
    assert device.profile["fill"][0] == 2
    device.note(5, times[-1] + 1, times[-1] + 2)
    device.reset_profile()
    assert [span[0] for span in device.spans] == [0, 1, 2, 5]


# The end, on the emulator, whose memory can be looked at


def test_closing_wipes_and_gives_back(emulator: EmulatorDriver) -> None:
    plan = copying_plan([fill(1, 0)], params=[7], keys=(("alice",),))
    device = CudaDevice(CudaProgram.prepared(plan, "alice", emulator), bytes(range(16)))
    device.run(0, 1, 1)
    device.finish()
    blocks = list(emulator.blocks)
    assert any(block.any() for block in blocks)
    device.close()
    device.close()
    assert not any(block.any() for block in blocks)
    assert not emulator.blocks
    with pytest.raises(AssertionError, match="closed"):
        device.run(0, 1, 1)


@pytest.mark.parametrize("hasty", HASTY)
def test_a_round_that_is_interrupted_is_wiped_too(
    emulator_folder: Path, hasty: tuple[int, ...], monkeypatch: Any
) -> None:
    """Copies that are under way are over before the memory that they fill is."""
    emulator = EmulatorDriver(emulator_folder, hasty=hasty)
    plan = copying_plan([fill(0, 0), *rounds(1)], [(SEND, 1, 0, 0, BYTES)], params=[7])
    device = opened(plan, emulator)
    send = device.round({1: [(0, BYTES)]}, {})
    device.run(0, 1, 1)
    with monkeypatch.context() as patched:
        patched.setattr(EmulatorEvent, "synchronize", interrupt)
        with pytest.raises(KeyboardInterrupt):
            send.fetch()
    device.close()
    emulator.drain()
    assert not any(block.any() for block in emulator.pinned_blocks)


def interrupt(event: EmulatorEvent) -> None:
    raise KeyboardInterrupt


def test_no_secret_is_on_a_gpu_whose_device_can_not_be_made(
    emulator: EmulatorDriver, monkeypatch: Any
) -> None:
    plan = copying_plan([COPY], keys=(("alice",),))

    def refuse(launch: Any) -> Any:
        raise UsageError("no machine code")

    monkeypatch.setattr(emulator, "kernel", refuse)
    with pytest.raises(UsageError, match="no machine code"):
        CudaDevice(CudaProgram.prepared(plan, "alice", emulator), bytes(range(16)))
    assert not any(block.any() for block in emulator.pinned_blocks)
    assert all((block == 0xA5).all() for block in emulator.blocks)  # junk, as it was


def test_a_layer_that_is_none_is_left_out(emulator: EmulatorDriver, monkeypatch: Any) -> None:
    """Of an untrusted plan: its layers are for people, and nobody checks their numbers."""
    device = opened(copying_plan([fill(1, 0, layer=99)], params=[7]), emulator)
    monkeypatch.setattr(EmulatorStream, "launch", failing("launch", 1))
    with pytest.raises(DeviceError, match=r"failed in step 0 \(fill\): "):
        device.run(0, 1, 1)


def test_keys_are_on_the_gpu_alone(emulator: EmulatorDriver) -> None:
    """Pinned memory through which their schedules went holds zeros."""
    plan = copying_plan([COPY], keys=(("alice",),))
    CudaDevice(CudaProgram.prepared(plan, "alice", emulator), bytes(range(16)))
    assert not any(block.any() for block in emulator.pinned_blocks)


# What it refuses


def test_a_step_out_of_bounds(emulator: EmulatorDriver) -> None:
    plan = copying_plan([COPY], buffers=[words(0, 4), words(4 * BYTES - 24, 4)])
    with pytest.raises(UsageError, match="can't be run: buffer 1: ends beyond its region"):
        opened(plan, emulator)
    assert not emulator.blocks


def with_batch(plan: Plan, batch: int, **fields: Any) -> Plan:
    inputs = (Tensor("x", (batch, 3), 64, 0, "alice", 0),)
    alice = replace(plan.party("alice"), inputs=inputs, **fields)
    return replace(plan, programs={"alice": alice})


@pytest.mark.parametrize(
    ("batch", "kept", "hint"),
    [
        (8, 0, "a batch of at most 2 with --shape"),
        (8, 9, "a batch of at most 1 with --shape"),
        (2, 0, "narrower --ring, or take a GPU"),
    ],
)
def test_memory_that_the_gpu_does_not_have(
    emulator_folder: Path, batch: int, kept: int, hint: str
) -> None:
    """Of 32 places where 12 are free: setup keeps some, the others are the batch's."""
    emulator = EmulatorDriver(emulator_folder, replace(EMULATOR, memory_bytes=12 * BYTES + 8))
    rows = np.array([(Phase.SETUP, 0, (0,) * 6, 0, kept * BYTES)], KEPT)
    plan = with_batch(copying_plan([COPY], places=32), batch, kept=rows)
    with pytest.raises(ResourceLimitError, match=r"alice needs 0\.00 GiB for this plan") as caught:
        opened(plan, emulator)
    assert hint in caught.value.hint
    assert not emulator.blocks


def test_memory_that_is_not_in_one_piece(emulator: EmulatorDriver, monkeypatch: Any) -> None:
    def refuse(count: int) -> int:
        raise MemoryError

    monkeypatch.setattr(emulator, "allocate", refuse)
    with pytest.raises(ResourceLimitError, match=r"has no 0\.00 GiB in one piece"):
        opened(copying_plan([COPY]), emulator)


def test_memory_that_the_host_can_not_pin(emulator: EmulatorDriver, monkeypatch: Any) -> None:
    def refuse(count: int) -> Any:
        raise MemoryError

    monkeypatch.setattr(emulator, "pinned", refuse)
    with pytest.raises(ResourceLimitError, match=r"no 0\.00 GiB of memory to pin for messages"):
        opened(copying_plan([COPY]), emulator)


# What fails


def failing(name: str, calls: int) -> Callable[..., None]:
    """A method of a stream, the last of so many calls of which fails."""
    left = [calls]
    real = getattr(EmulatorStream, name)

    def call(self: EmulatorStream, *args: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise DriverFault("unspecified launch failure")
        real(self, *args)

    return call


def test_a_kernel_that_does_not_start_is_named(emulator: EmulatorDriver, monkeypatch: Any) -> None:
    plan = copying_plan([fill(1, 0, layer=1), COPY, fill(1, 0, layer=1)], params=[7])
    device = opened(plan, emulator)
    monkeypatch.setattr(EmulatorStream, "launch", failing("launch", 3))
    with pytest.raises(DeviceError) as caught:
        device.run(0, 3, 1)
    assert caught.value.message == (
        "alice's host emulator failed in step 2 (fill of layer relu1): unspecified launch failure."
    )
    assert caught.value.exit_code == 7
    device.close()  # a GPU that failed takes no more orders
    assert emulator.blocks


def test_a_kernel_that_fails_later_is_named_with_its_steps(
    emulator: EmulatorDriver, monkeypatch: Any
) -> None:
    plan = copying_plan([fill(1, 0, layer=1), COPY], params=[7])
    device = opened(plan, emulator)
    device.run(0, 2, 1)
    monkeypatch.setattr(EmulatorStream, "record", failing("record", 1))
    with pytest.raises(DeviceError) as caught:
        device.finish()
    assert "one of step 0 (fill of layer relu1) to step 1 (copy of layer conv1)" in str(
        caught.value
    )
    assert "CUDA_LAUNCH_BLOCKING=1" in caught.value.hint


def test_a_gpu_that_fails_while_it_is_made_ready(
    emulator: EmulatorDriver, monkeypatch: Any
) -> None:
    def fail() -> int:
        raise DriverFault("cuMemGetInfo failed: unknown error")

    monkeypatch.setattr(emulator, "free_bytes", fail)
    with pytest.raises(DeviceError, match="The host emulator failed: cuMemGetInfo failed"):
        opened(copying_plan([COPY]), emulator)


def test_keys_are_the_plans(emulator: EmulatorDriver) -> None:
    made = CudaProgram.prepared(copying_plan([COPY], keys=(("alice",),)), "alice", emulator)
    with pytest.raises(AssertionError, match="other keys"):
        CudaDevice(made, bytes(32))


def test_a_gpu_that_fails_before_any_step(emulator: EmulatorDriver, monkeypatch: Any) -> None:
    monkeypatch.setattr(EmulatorStream, "clear", failing("clear", 1))
    with pytest.raises(DeviceError, match="The host emulator failed: unspecified"):
        opened(copying_plan([COPY]), emulator)
