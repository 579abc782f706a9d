"""Stretches of steps that come again: one launch each, and new randomness every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from copying_plans import BYTES, COUNT, copying_plan, fill, opened, whole
from small_interpreters import step

from veilgraph.ir.errors import DeviceError, SecurityAbort
from veilgraph.ir.plan.plan import Plan
from veilgraph.kernels.fused.declaration import instruction, program
from veilgraph.kernels.fused.instructions import Op
from veilgraph.runtime.devices.cuda.drivers.emulator import EmulatorDriver, EmulatorStream
from veilgraph.runtime.devices.cuda.drivers.interface import Driver, DriverFault
from veilgraph.runtime.randomness import elements

COPY = step("copy", first_buffer=0)  # from the second place to the first
DRAW = 5


def filling_plan() -> Plan:
    return copying_plan([fill(1, 0), COPY, fill(1, 1)], params=[7, 9])


def drawing_plan() -> Plan:
    """A draw into the first place, zeros over it, and the draw again."""
    draw = instruction(op=Op.DRAW, word=64, dst=0, a=0, count=64, immediate=DRAW)
    store = instruction(op=Op.STORE, word=64, a=0, b=0)
    params = program(COUNT, 1, 0, [draw, store]).tolist()
    steps = [
        step("fused", first_buffer=0, buffer_count=1, param_count=len(params)),
        step("copy", first_buffer=0),
        step("fused", first_buffer=0, buffer_count=1, param_count=len(params)),
    ]
    return copying_plan(steps, params=params, keys=(("alice",),))


def drawn(run: int) -> list[int]:
    return [int(v) for v in elements(bytes(range(16)), run, DRAW, COUNT, 64)]


# How many


def test_what_comes_again_is_one_launch(emulator: EmulatorDriver) -> None:
    device = opened(filling_plan(), emulator)
    device.run(0, 3, 1)
    assert (emulator.launches, emulator.replays) == (3, 0)
    for run in (2, 3, 4):
        device.run(0, 3, run)
        assert (emulator.launches, emulator.replays) == (3, run - 1)
    found = whole(device, filling_plan())
    assert (found[: 2 * COUNT] == np.repeat([7, 9], COUNT)).all()


def test_one_launch_needs_no_graph(emulator: EmulatorDriver) -> None:
    device = opened(filling_plan(), emulator)
    for run in (1, 2, 3):
        device.run(1, 2, run)
    assert (emulator.launches, emulator.replays) == (3, 0)


def test_graphs_may_be_left_out(emulator: EmulatorDriver) -> None:
    device = opened(filling_plan(), emulator, graphs=False)
    for run in (1, 2, 3):
        device.run(0, 3, run)
    assert (emulator.launches, emulator.replays) == (9, 0)


def test_a_trace_has_each_step_all_the_same(emulator: EmulatorDriver) -> None:
    device = opened(filling_plan(), emulator)
    device.run(0, 3, 1)
    device.run(0, 3, 2)
    device.trace()
    device.run(0, 3, 3)
    device.finish()
    assert [span[0] for span in device.spans] == [0, 1, 2]
    assert (emulator.launches, emulator.replays) == (6, 1)


# What they compute


def test_a_replay_draws_anew(driver: Driver) -> None:
    """Each inference has the randomness of its own number, whether launched or replayed."""
    plan = drawing_plan()
    device = opened(plan, driver)
    seen = set()
    for run in (0, 1, 2, 3, 2**32 - 1):
        device.run(0, 3, run)
        found = whole(device, plan)[:COUNT].tolist()
        assert found == drawn(run)
        seen.add(found[0])
    assert len(seen) == 5
    device.close()


def test_inferences_may_follow_each_other_unwaited_for(driver: Driver) -> None:
    """The number of the next does not reach kernels of the one before."""
    plan = drawing_plan()
    device = opened(plan, driver)
    for run in (1, 2, 3):
        device.run(0, 1, run)
        device.run(0, 3, run)
    assert whole(device, plan)[:COUNT].tolist() == drawn(3)
    device.run(0, 1, 4)
    device.run(0, 3, 5)
    assert whole(device, plan)[:COUNT].tolist() == drawn(5)


def test_numbers_that_would_come_again_are_refused(emulator: EmulatorDriver) -> None:
    """A counter block has 32 bits for them: beyond that, masks would repeat."""
    device = opened(drawing_plan(), emulator)
    with pytest.raises(SecurityAbort, match="would repeat the randomness"):
        device.run(0, 1, 1 << 32)


# How they end


def test_closing_lets_go_of_them(emulator: EmulatorDriver, monkeypatch: Any) -> None:
    made = []
    real = emulator.graph
    monkeypatch.setattr(emulator, "graph", lambda launches: made.append(real(launches)) or made[-1])
    device = opened(filling_plan(), emulator)
    for run in (1, 2, 3):
        device.run(0, 3, run)
        device.run(0, 2, run)
    assert len(made) == 2
    assert not any(graph.closed for graph in made)
    device.close()
    assert all(graph.closed for graph in made)


def test_a_graph_that_fails_is_named_with_its_steps(
    emulator: EmulatorDriver, monkeypatch: Any
) -> None:
    device = opened(filling_plan(), emulator)
    device.run(0, 3, 1)

    def refuse(self: EmulatorStream, graph: object) -> None:
        raise DriverFault("unspecified launch failure")

    monkeypatch.setattr(EmulatorStream, "replay", refuse)
    with pytest.raises(DeviceError, match=r"one of step 0 \(fill.*\) to step 2 \(fill") as caught:
        device.run(0, 3, 2)
    assert ",no-graphs" in caught.value.hint


def test_memory_has_room_for_all(emulator: EmulatorDriver) -> None:
    """The arena, what the session has on the GPU, and no constants and no scratch."""
    device = opened(drawing_plan(), emulator)
    assert sorted(len(block) for block in emulator.blocks) == [1, 1, 1, 16 + 176, 4 * BYTES]
    device.close()
