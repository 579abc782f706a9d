"""emit_plan, the whole: every party's tables, public constants, and what each layer costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from veilgraph.ir.party import Node, Program
from veilgraph.ir.plan import Layer, Manifest, PartyPlan, Phase, Plan, Tensor
from veilgraph.passes.assign_buffers import Memory, message_bytes
from veilgraph.passes.batch_rounds import Schedule
from veilgraph.passes.cut_messages import cut_messages
from veilgraph.passes.emit_party import emit_party
from veilgraph.passes.expand_protocols import Expanded
from veilgraph.passes.fuse_local import LocalSteps


def emit_plan(
    expanded: Expanded,
    steps: LocalSteps,
    memories: Sequence[Memory],
    manifest: Manifest,
    tensors: Sequence[Tensor],
    ir: Mapping[str, str],
) -> Plan:
    """The plan of a program whose memory is assigned.

    Args:
        manifest: suite, parties, owners, encoding, disclosures.
        tensors: inputs, weights and outputs, their offsets zero.
        ir: text of the levels.
    """
    offsets, constants = pack_constants(expanded)
    programs: dict[str, PartyPlan] = {}
    pieces = cut_messages(steps, memories)
    for party, name in enumerate(manifest.parties):
        memory, own = memories[party], pieces[party]
        programs[name] = emit_party(steps, memory, own, party, offsets, tensors)
    return Plan(manifest, programs, layers(expanded, steps.schedule), constants, dict(ir))


def pack_constants(expanded: Expanded) -> tuple[list[int], bytes]:
    """Public tensors as words, each from a multiple of 64 bytes; their offsets."""
    offsets, packed = [], bytearray()
    for value, bits in zip(expanded.constants, expanded.constant_rings, strict=True):
        packed.extend(bytes(-len(packed) % 64))
        offsets.append(len(packed))
        words = value.astype(np.int64).view(np.uint64) & np.uint64((1 << bits) - 1)
        packed.extend(words.astype("<u4" if bits <= 32 else "<u8").tobytes())
    return offsets, bytes(packed)


@dataclass
class Count:
    """What a layer costs all parties together."""

    bits: dict[Phase, int]
    rounds: set[int]
    multiply_adds: int = 0


def layers(expanded: Expanded, schedule: Schedule) -> tuple[Layer, ...]:
    """One row a layer, with its costs as scheduled; rows that nothing is left of are empty."""
    program = expanded.program
    counts: dict[int, Count] = defaultdict(lambda: Count(defaultdict(int), set()))
    for i in schedule.live:
        node = program.nodes[i]
        count = counts[node.layer]
        if node.op == "send":
            count.bits[node.phase] += 8 * message_bytes(node.type, node.elements)
            if node.phase == Phase.ONLINE:
                count.rounds.add(schedule.round_of(node))
        elif node.op in ("matmul", "conv2d"):
            count.multiply_adds += multiply_adds(program, node)
    rows = []
    for number, note in enumerate(expanded.notes):
        count = counts[number]
        row = Layer(
            note.name,
            note.op,
            online_bits=count.bits[Phase.ONLINE],
            offline_bits=count.bits[Phase.OFFLINE],
            multiply_adds=count.multiply_adds,
            rounds=len(count.rounds),
        )
        if note.tensor is not None:
            encoding = note.tensor.encoding
            row = replace(row, ring_bits=encoding.ring_bits, frac_bits=encoding.frac_bits)
        if note.range is not None:
            low, high, source = note.range.low, note.range.high, note.range.source.value
            row = replace(row, range_low=low, range_high=high, range_source=source)
        rows.append(row)
    return tuple(rows)


def multiply_adds(program: Program, node: Node) -> int:
    """Ring multiplications of a matmul or conv2d node, over all its pairs."""
    pairs = len(node.args) // 2
    operand = program.nodes[node.args[0 if node.op == "matmul" else 1]].shape
    inner = operand[-1] if node.op == "matmul" else prod(operand[1:])
    return pairs * node.elements * inner
