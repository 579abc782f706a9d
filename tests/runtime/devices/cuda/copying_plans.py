"""Plans of hand-made tables whose steps only copy and fill: all of a device, little to compute.

Two parties hold an arena of 64-bit words and send stretches of it to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from small_interpreters import step, words
from small_plans import small_plan

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import (
    BUFFER,
    KEPT,
    MESSAGE,
    ROUND,
    STEP,
    Direction,
    Layer,
    PartyPlan,
    Phase,
)
from veilgraph.runtime.devices.cuda.device import CudaDevice
from veilgraph.runtime.devices.cuda.drivers.interface import Driver
from veilgraph.runtime.devices.cuda.program import CudaProgram

COUNT = 1000  # words of a copy
BYTES = 8 * COUNT
# Of the streams of steps, of what goes out and of what comes in, those that work at once.
HASTY = ((), (0,), (1,), (2,), (1, 2))


def fill(buffer: int, param: int, **fields: int) -> Any:
    """Every word of a buffer becomes a parameter."""
    return step(
        "fill", first_buffer=buffer, buffer_count=1, first_param=param, param_count=1, **fields
    )


def copying_plan(
    steps: Sequence[Any],
    messages: Sequence[tuple[int, ...]] = (),
    buffers: Sequence[Any] = (),
    params: Sequence[int] = (),
    places: int = 4,
    **fields: Any,
) -> Plan:
    """A plan of which only alice's program matters, all of its steps online.

    Args:
        steps: STEP records; `fill` and `copy` over `buffers`.
        messages: direction, peer, round, offset and bytes.
        buffers: BUFFER records; unless given, `places` stretches of COUNT words each.
        params: of the steps.
        places: how many times COUNT words the arena has.
    """
    tables = np.array(list(steps), STEP)
    tables["phase"] = Phase.ONLINE
    online = Phase.ONLINE
    rows = [(online, d, peer, r, at, size, 0, 0, 0) for d, peer, r, at, size in messages]
    laid = buffers or [words(BYTES * i, COUNT) for i in range(places)]
    program = PartyPlan(
        party="alice",
        steps=tables,
        buffers=np.array(laid, BUFFER),
        messages=np.array(rows, MESSAGE),
        params=np.array(list(params), np.int64),
        kept=np.zeros(0, KEPT),
        arena_bytes=BYTES * places,
        keys=(),
    )
    whole = small_plan()
    programs = {**whole.programs, "alice": replace(program, **fields)}
    return replace(
        whole, programs=programs, layers=(Layer("conv1", "conv2d"), Layer("relu1", "relu"))
    )


def rounds(count: int) -> list[Any]:
    return [step(ROUND, buffer_count=0, round=i) for i in range(count)]


SEND, RECEIVE = Direction.SEND, Direction.RECEIVE


def opened(plan: Plan, driver: Driver, graphs: bool = True) -> CudaDevice:
    """Alice's device; her keys, if she has any, are of bytes 0, 1, 2 and so on."""
    keys = bytes(range(16 * len(plan.party("alice").keys)))
    return CudaDevice(CudaProgram.prepared(plan, "alice", driver), keys, graphs)


def whole(device: CudaDevice, plan: Plan) -> npt.NDArray[np.uint64]:
    """All of the party's memory."""
    return device.copy_out((0, plan.party("alice").arena_bytes)).view(np.uint64)
