"""Parties whose steps are on two devices: the wire is that of one, whatever the partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_plans import W, X, small_plan
from whole_plans import Partitioning, check_devices, check_prepared, heterogeneous

from veilgraph.ir.errors import ResourceLimitError
from veilgraph.ir.plan.plan import Plan
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.heterogeneous import (
    GPU,
    HOST,
    HeterogeneousDevice,
    HeterogeneousReady,
)


def every(second: int) -> Partitioning:
    return lambda count: [GPU if step % second == 0 else HOST for step in range(count)]


def some(seed: int) -> Partitioning:
    return lambda count: np.random.default_rng(seed).integers(0, 2, count).tolist()


PARTITIONS = {
    "host": lambda count: [HOST] * count,
    "gpu": lambda count: [GPU] * count,
    "second": every(2),
    "third": every(3),
    **{f"some {seed}": some(seed) for seed in range(6)},
}


@pytest.mark.parametrize("ring_bits", [32, 40])
@pytest.mark.parametrize("name", PARTITIONS)
def test_any_partition_computes_the_same(name: str, ring_bits: int) -> None:
    """Two processors' memories, no step in both; three inferences, so that what one left is old."""
    devices = [heterogeneous(PARTITIONS[name])] * 3
    check_devices(small_plan(ring_bits), [{"x": X}, {"x": -X}, {"x": X}], {"w": W}, devices)


@pytest.mark.parametrize("name", ["second", "some 1"])
def test_any_partition_from_a_store(name: str) -> None:
    devices = [heterogeneous(PARTITIONS[name]), "cpu", heterogeneous(PARTITIONS["gpu"])]
    check_prepared(small_plan(), [{"x": X}, {"x": -X}], {"w": W}, devices)


@pytest.mark.parametrize("name", ["second", "some 2"])
def test_half_on_a_gpu(name: str, emulator_cache: None) -> None:
    devices = [
        "cpu",
        heterogeneous(PARTITIONS[name], "host-emulator"),
        heterogeneous(PARTITIONS[name], "host-emulator"),
    ]
    check_devices(small_plan(), [{"x": X}, {"x": -X}], {"w": W}, devices)


def opened(partitioning: Partitioning) -> tuple[Plan, HeterogeneousDevice]:
    plan = small_plan()
    made = heterogeneous(partitioning)
    assert callable(made)
    keys = bytes(16 * len(plan.party("alice").keys))
    device = made(plan, "alice").open(keys)
    assert isinstance(device, HeterogeneousDevice)
    return plan, device


def test_only_what_is_old_is_copied(monkeypatch: Any) -> None:
    """What lies on the GPU stays there until the host needs it."""
    plan, device = opened(PARTITIONS["gpu"])
    copied: list[tuple[int, int]] = []
    real = device._sides[GPU].copy_out
    monkeypatch.setattr(
        device._sides[GPU], "copy_out", lambda place: copied.append(place) or real(place)
    )
    last = len(plan.party("alice").steps)
    kernels = plan.party("alice").steps["kernel"]
    last_step = next(i for i in range(last) if kernels[i] > 6)  # to the first round
    device.run(0, last_step, 1)
    assert not copied
    device.copy_out((0, 8))
    first = len(copied)
    device.copy_out((0, 8))
    assert len(copied) == first <= 1
    device.close()


def test_what_was_copied_is_wiped(monkeypatch: Any) -> None:
    _, device = opened(PARTITIONS["gpu"])
    copied = []
    real = device._sides[HOST].copy_out
    monkeypatch.setattr(
        device._sides[HOST], "copy_out", lambda place: copied.append(real(place)) or copied[-1]
    )
    device.copy_in(0, b"\x01" * 64)
    device.bring(GPU, np.arange(len(device._segments)))
    assert copied
    assert not any(content.any() for content in copied)
    assert device._sides[GPU].copy_out((0, 64)).tobytes() == b"\x01" * 64
    device.close()


def test_bytes_in_the_middle_of_a_value() -> None:
    """A copy in or out at any place leaves what is around it as it was."""
    plan, device = opened(PARTITIONS["gpu"])
    size = plan.party("alice").arena_bytes
    whole = np.arange(size, dtype=np.uint64).astype(np.uint8)
    device.copy_in(0, whole)
    device.wrote(GPU, np.arange(len(device._segments)))
    device._sides[GPU].copy_in(0, whole[::-1].copy())
    device.copy_in(5, b"\x07\x08\x09")
    expected = whole[::-1].copy()
    expected[5:8] = 7, 8, 9
    assert device.copy_out((0, size)).tobytes() == expected.tobytes()
    assert device.copy_out((3, 9)).tobytes() == expected[3:12].tobytes()
    device.close()


def test_times_of_both_are_told() -> None:
    plan, device = opened(PARTITIONS["second"])
    device.trace()
    steps = plan.party("alice").steps
    last_step = next(i for i in range(len(steps)) if steps["kernel"][i] > 6)
    device.run(0, last_step, 1)
    device.note(last_step, 1 << 62, (1 << 62) + 1)
    device.finish()
    assert sorted(step for step, _, _ in device.spans) == list(range(last_step + 1))
    assert sum(calls for calls, _ in device.profile.values()) == last_step
    device.reset_profile()
    assert not any(calls for calls, _ in device.profile.values())
    device.close()


def test_a_gpu_that_can_not_be_opened_leaves_no_keys(monkeypatch: Any) -> None:
    plan = small_plan()
    program = plan.party("alice")
    host = ready("cpu", plan, "alice")
    closed = []

    class Refusing:
        def open(self, keys: bytes) -> Any:
            raise ResourceLimitError("no memory")

    monkeypatch.setattr(
        "veilgraph.runtime.devices.cpu.CpuDevice.close", lambda self: closed.append(self)
    )
    with pytest.raises(ResourceLimitError, match="no memory"):
        HeterogeneousReady(program, host, Refusing(), [HOST] * len(program.steps)).open(
            bytes(16 * len(program.keys))
        )
    assert len(closed) == 1


def test_a_partition_is_of_its_program() -> None:
    with pytest.raises(AssertionError, match="another program"):
        opened(lambda count: [HOST] * (count - 1))
