"""emit_plan, the whole: every party's tables, public constants, and what each layer costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Layer, Manifest, Phase, Tensor
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.passes.plan.lower import constants_of, costs, lay_out, lower


def emit_plan(
    expanded: Expanded,
    schedule: Schedule,
    manifest: Manifest,
    tensors: Sequence[Tensor],
    ir: Mapping[str, str],
) -> Plan:
    """The plan of a program whose messages are in rounds.

    Args:
        expanded: of which `prune` has left what outputs need.
        manifest: suite, parties, owners, encoding, disclosures.
        tensors: inputs and weights, then outputs, their offsets zero.
        ir: text of the levels.
    """
    programs = lower(schedule, tensors)
    return Plan(manifest, programs, layers(expanded, schedule), pack_constants(expanded), dict(ir))


def pack_constants(expanded: Expanded) -> bytes:
    """Public tensors as words, each where `lower` has its place."""
    found = constants_of(expanded.program)
    offsets, size = lay_out(found)
    packed = bytearray(size)
    for value, (type, _), offset in zip(expanded.constants, found, offsets, strict=True):
        words = value.astype(np.int64).view(np.uint64) & np.uint64((1 << type.bits) - 1)
        content = words.astype("<u4" if type.word_bits == 32 else "<u8").tobytes()
        packed[offset : offset + len(content)] = content
    assert len(packed) == size, "a public tensor is not what its nodes read"
    return bytes(packed)


def layers(expanded: Expanded, schedule: Schedule) -> tuple[Layer, ...]:
    """One row a layer, with its costs as scheduled; rows that nothing is left of are empty."""
    found = costs(schedule)
    rows = []
    for number, note in enumerate(expanded.notes):
        cost = found[number]
        row = Layer(
            note.name,
            note.op,
            note.protocol,
            online_bits=cost.bits[Phase.ONLINE],
            offline_bits=cost.bits[Phase.OFFLINE],
            multiply_adds=cost.multiply_adds,
            rounds=len(cost.rounds),
        )
        if note.chosen is not None:
            seconds = note.chosen.next_best_seconds
            row = replace(row, next_best=note.chosen.next_best, next_best_seconds=seconds)
        if note.tensor is not None:
            encoding = note.tensor.encoding
            row = replace(row, ring_bits=encoding.ring_bits, frac_bits=encoding.frac_bits)
        if note.range is not None:
            told = note.range if note.tensor is None else note.range.rounded(note.tensor.encoding)
            source = told.source.value
            row = replace(row, range_low=told.low, range_high=told.high, range_source=source)
        rows.append(row)
    return tuple(rows)


def exact_ranges(expanded: Expanded) -> tuple[tuple[float, float], ...]:
    """Those of the layers, which stay where the plan is compiled; endless where there is none."""
    endless = (-inf, inf)
    notes = expanded.notes
    return tuple((n.range.low, n.range.high) if n.range is not None else endless for n in notes)
