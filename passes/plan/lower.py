"""lower: from a scheduled party-level program every party's tables, and what each layer costs.

The compiler makes a plan's tables with it, and a host that verifies the plan makes them again from
the plan's text and compares: so it takes the program and nothing else, and needs no MLIR.

    before:  a program, its nodes in rounds
    after:   fuse_local, assign_buffers, cut_messages, emit_party: STEP, BUFFER, MESSAGE rows
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from veilgraph.ir.files.beside import together
from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import nodes_of
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import PartyPlan, Phase, Tensor
from veilgraph.ir.types import Type
from veilgraph.passes.party.batch_rounds import LEVEL_BITS, Schedule, position
from veilgraph.passes.party.products import products
from veilgraph.passes.plan.assign_buffers import assign_buffers
from veilgraph.passes.plan.cut_messages import Pieces, cut_messages
from veilgraph.passes.plan.emit_party import Emission, emit_party
from veilgraph.passes.plan.fuse_local import LocalSteps, fuse_local
from veilgraph.passes.plan.fused_templates import fused_programs

CONSTANT_ALIGNMENT = 64  # bytes


@dataclass
class Cost:
    """What a layer costs all parties together; rounds are those of the online phase."""

    bits: dict[Phase, int] = field(default_factory=lambda: defaultdict(int))
    rounds: set[int] = field(default_factory=set)
    multiply_adds: int = 0


def lower(schedule: Schedule, tensors: Sequence[Tensor]) -> dict[str, PartyPlan]:
    """The tables of each party, by name, in the program's order.

    Args:
        tensors: inputs, weights and states, then outputs; their offsets are not read.
    """
    program = schedule.program
    steps = fuse_local(schedule)
    offsets, _ = lay_out(constants_of(program))
    (pieces, emissions), fused = together(
        partial(_emitted, steps, offsets), partial(fused_programs, steps)
    )
    return {
        name: emissions[party].plan(pieces[party], fused[party], tensors)
        for party, name in enumerate(program.parties)
    }


def _emitted(steps: LocalSteps, offsets: Sequence[int]) -> tuple[list[Pieces], list[Emission]]:
    """What fused programs are not asked for: each party's messages, and its other steps."""
    memories = assign_buffers(steps)
    pieces = cut_messages(steps, memories)
    parties = enumerate(memories)
    return pieces, [emit_party(steps, memory, party, offsets) for party, memory in parties]


def constants_of(program: Program) -> list[tuple[Type, int]]:
    """Type and number of elements of each public tensor, by its number.

    Raises:
        ValueError: nodes that read one tensor as two, or numbers that are not counted from zero in
            the order of the nodes.
    """
    found: list[tuple[Type, int]] = []
    for node in nodes_of(program.nodes, ops.CONSTANT):
        number = node["number"]
        if number == len(found):
            found.append((node.type, node.elements))
        elif not 0 <= number < len(found) or found[number] != (node.type, node.elements):
            raise ValueError(f"%{node.id} reads no public tensor, or another than it is")
    return found


def lay_out(constants: Sequence[tuple[Type, int]]) -> tuple[list[int], int]:
    """Byte offsets of public tensors, each from a multiple of 64, and the bytes of all."""
    offsets, end = [], 0
    for type, elements in constants:
        end += -end % CONSTANT_ALIGNMENT
        offsets.append(end)
        end += type.stored_bytes(elements)
    return offsets, end


def costs(schedule: Schedule) -> dict[int, Cost]:
    """What each layer costs as scheduled, by its number in the program."""
    found: dict[int, Cost] = defaultdict(Cost)
    columns, sends = schedule.columns, schedule.rows_of(ops.SEND)
    layers, phases = columns.layer[sends].astype(np.int64), columns.phase[sends]
    keys, which = np.unique(layers * len(Phase) + phases, return_inverse=True)
    # A stranger's bytes may be so many that words don't hold their sum: halves are added apart.
    size, halves = columns.message_bytes[sends], np.zeros((2, len(keys)), np.int64)
    np.add.at(halves[0], which, size >> 32)
    np.add.at(halves[1], which, size & 0xFFFFFFFF)
    for key, high, low in zip(keys.tolist(), *halves.tolist(), strict=True):
        layer, phase = divmod(key, len(Phase))
        found[layer].bits[Phase(phase)] += 8 * ((high << 32) + low)
    online = phases == Phase.ONLINE
    pairs = (layers[online] << LEVEL_BITS) + schedule.levels[sends[online]] - 1
    for pair in np.unique(pairs).tolist():
        layer, number = position(pair)
        found[layer].rounds.add(number)
    for i, multiply_adds in products(columns, schedule.is_live != 0):
        found[int(columns.layer[i])].multiply_adds += multiply_adds
    return found
