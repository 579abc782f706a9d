"""What each step of a party's program takes on a machine, by what it multiplies, moves and draws.

Counted on the tables alone, also of a file that nobody has checked: a step that makes no sense
takes no time.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.tables import MAX_RANK, BufferKind, PartyPlan
from veilgraph.kernels import KERNELS
from veilgraph.kernels.declared import DECLARED
from veilgraph.kernels.fused.declaration import HEADER, INSTRUCTION, Params
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.kernel import no_products
from veilgraph.targets.machines import Machine

# Of a fused program's instructions, in words of 32 bits: measured as those of Machine.
LOOKUP_WORDS = 16  # an entry of a table
PACKED_WORDS = 2  # a bit that goes into a word or out of it
GATE_WORDS = 1 / 16  # an element's bit
_PLACE = [field.name for field in fields(Params)].index("elements")
_OPCODES = 1 << 16
Floats = npt.NDArray[np.float64]


def step_seconds(program: PartyPlan, machine: Machine) -> Floats:
    """Seconds of each step alone; of a round none."""
    kernels = program.steps["kernel"]
    seconds = np.where(kernels < len(KERNELS), _moved_bytes(program), 0)
    seconds /= machine.memory_bytes_per_second
    for number, name in enumerate(KERNELS):
        own = np.flatnonzero(kernels == number)
        if name == "fused":
            seconds[own] += _fused(program, own, machine)
        if DECLARED[name].multiply_adds is not no_products:
            seconds[own] += [_multiplying(program, step, machine) for step in own.tolist()]
    return seconds


def _moved_bytes(program: PartyPlan) -> Floats:
    """Of each step's buffers; an element that is read again and again counts once."""
    buffers = program.buffers
    is_axis = np.arange(MAX_RANK) < buffers["rank"][:, None]
    is_axis &= buffers["strides"] != 0
    elements = np.where(is_axis, buffers["shape"], 1).astype(np.float64).prod(axis=1)
    bits = buffers["bits"].astype(np.float64)
    for kind, word in ((BufferKind.WORDS32, 32), (BufferKind.WORDS64, 64)):
        bits[buffers["kind"] == kind] = word
    first, last = _slices(program.steps, "buffer", len(buffers))
    sums = np.concatenate(([0.0], np.cumsum(np.maximum(elements, 0) * bits / 8)))
    found: Floats = sums[last] - sums[first]
    return found


def _slices(
    steps: npt.NDArray[np.void], of: str, length: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each step's rows of a table begin and end, within it."""
    first = np.minimum(steps[f"first_{of}"], length).astype(np.int64)
    return first, np.minimum(first + steps[f"{of}_count"], length)


def _multiplying(program: PartyPlan, step: int, machine: Machine) -> float:
    row = program.steps[step]
    buffers = program.buffers_of(row)
    if not len(buffers):
        return 0.0
    shapes = [tuple(b["shape"][: b["rank"]].tolist()) for b in buffers]
    try:
        products = DECLARED[KERNELS[int(row["kernel"])]].multiply_adds(shapes)
    except (IndexError, ValueError):  # buffers that no such kernel has
        return 0.0
    return machine.multiplying(max(products, 0), int(buffers[0]["bits"]))


def _fused(program: PartyPlan, own: npt.NDArray[np.int64], machine: Machine) -> Floats:
    """Of fused programs: each instruction, for each element."""
    params = program.params
    first, last = _slices(program.steps[own], "param", len(params))
    stride = INSTRUCTION.itemsize // params.itemsize
    has_header = last - first >= HEADER
    counts = np.where(has_header, (last - first - HEADER) // stride, 0)
    elements = np.zeros(len(own))
    elements[has_header] = np.maximum(params[first[has_header] + _PLACE], 0)
    place = np.repeat(first + HEADER - stride * (np.cumsum(counts) - counts), counts)
    place += stride * np.arange(len(place))
    rows = params[place[:, None] + np.arange(stride)]
    each = _instructions(np.ascontiguousarray(rows).view(INSTRUCTION).ravel(), machine)
    sums = np.concatenate(([0.0], np.cumsum(each)))
    ends = np.cumsum(counts)
    found: Floats = elements * (sums[ends] - sums[ends - counts])
    return found


def _instructions(rows: npt.NDArray[np.void], machine: Machine) -> Floats:
    """Seconds an element."""
    words, counted, drawn = _words_by_opcode()
    ops, count = rows["op"], np.maximum(rows["count"], 1)
    needed = words[ops] * rows["word"] / 32 + counted[ops] * count
    found: Floats = needed / machine.words_per_second
    found += drawn[ops] * count / 8 / machine.drawn_bytes_per_second
    return found


@cache
def _words_by_opcode() -> tuple[Floats, Floats, Floats]:
    """By opcode: words of an instruction's own width, words for one of its bits, and bits drawn for
    one of its bits."""
    words, counted, drawn = (np.zeros(_OPCODES) for _ in range(3))
    for op in Op:
        if op.draws:
            drawn[op] = 1
        elif op in (Op.PACK, Op.UNPACK):
            counted[op] = PACKED_WORDS
        elif op is Op.LOOKUP:
            words[op] = LOOKUP_WORDS
        elif op.row.words:
            words[op] = 1
        else:
            counted[op] = GATE_WORDS
    return words, counted, drawn
