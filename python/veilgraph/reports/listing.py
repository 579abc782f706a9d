"""The text of the plan level: every party's steps, as an auditor of its host reads them.

    alice: 5 steps, 1024 bytes
      offline
            0  fused      arena+0:words32[6]u32  # x
            1  round 1
               send to bob: 24 bytes at 512

A buffer is region+offset:kind[shape]u with its bits an element; what follows # is the layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from veilgraph.ir.harmless import harmless
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import (
    ROUND,
    BufferKind,
    Direction,
    PartyPlan,
    Phase,
    Region,
    rows_of,
)
from veilgraph.kernels import KERNELS


def listing(plan: Plan) -> str:
    """All steps of all parties, a line each whatever layers and parties are called."""
    lines = [line for program in plan.programs.values() for line in _party(plan, program)]
    return "\n".join(map(harmless, lines))


def _party(plan: Plan, program: PartyPlan) -> Iterator[str]:
    yield f"{program.party}: {len(program.steps)} steps, {program.arena_bytes} bytes"
    phase = ""
    for number, step in enumerate(program.steps):
        if phase != (phase := _phase(plan, step)):
            yield f"  {phase}"
        if step["kernel"] == ROUND:
            yield f"    {number:5}  round {int(step['round']) + 1}"
            yield from _messages(plan, program, step)
        else:
            yield f"    {number:5}  {_kernel(plan, program, step)}"


def _kernel(plan: Plan, program: PartyPlan, step: np.void) -> str:
    buffers = " ".join(_buffer(row) for row in program.buffers_of(step))
    layer = plan.layers[int(step["layer"])].name if step["layer"] < len(plan.layers) else ""
    kernel = int(step["kernel"])
    name = KERNELS[kernel] if kernel < len(KERNELS) else f"kernel {kernel}"
    return f"{name:10} {buffers}{f'  # {layer}' if layer else ''}"


def _buffer(row: npt.NDArray[np.void]) -> str:
    shape = "x".join(str(extent) for extent in row["shape"][: int(row["rank"])])
    kind, region = _name(BufferKind, int(row["kind"])), _name(Region, int(row["region"]))
    return f"{region}+{int(row['offset'])}:{kind}[{shape}]u{int(row['bits'])}"


def _phase(plan: Plan, step: np.void) -> str:
    """Of a step, with its entry where there are several."""
    name, entry = _name(Phase, int(step["phase"])), int(step["entry"])
    entries = plan.manifest.entries
    is_one_of_several = len(entries) > 1 and step["phase"] != Phase.SETUP
    return f"{name} of {entries[entry]}" if is_one_of_several and entry < len(entries) else name


def _messages(plan: Plan, program: PartyPlan, step: np.void) -> Iterator[str]:
    table = rows_of(program.messages, int(step["phase"]), int(step["entry"]))
    for row in table[table["round"] == step["round"]]:
        verb = "send to" if row["direction"] == Direction.SEND else "receive from"
        peer = plan.manifest.parties[int(row["peer"])]
        place = f"{int(row['bytes'])} bytes at {int(row['offset'])}"
        yield f"           {verb} {peer}: {place}{_moment(program, row)}"


def _moment(program: PartyPlan, row: npt.NDArray[np.void]) -> str:
    """From when on a piece may be sent or received, if that is before its round."""
    step, elements = int(row["step"]), int(row["elements"])
    if program.steps["kernel"][step] == ROUND:
        return ""
    if row["direction"] == Direction.RECEIVE:
        return f", from step {step} on"
    return f", after {elements} elements of step {step}" if elements else f", after step {step}"


def _name(kind: type[IntEnum], value: int) -> str:
    """A number's name; the number of one that has none, since plans are untrusted."""
    known = {int(each): each.name.lower() for each in kind}
    return known.get(value, f"{kind.__name__.lower()} {value}")
