"""The fused programs of actions: registers, instructions and streams, from party nodes.

Words above a ring's width are junk until something reads them; what does (a shift right, an
extension) masks first. Stacking planes and taking some of them costs nothing: a value of planes is
a list of bit registers. Registers are freed after their last use. Programs are made by native code
(passes/native/fused/); what becomes of an operation is said here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import Columns, Flags, Int32s, Int64s
from veilgraph.ir.party.node import broadcast_pattern, holders_of
from veilgraph.ir.party.program import Program
from veilgraph.ir.types import Kind, Type
from veilgraph.kernels.fused.instructions import Op
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.plan.fuse_local import Actions, Lists, LocalSteps

_BINARY = {ops.ADD: Op.ADD, ops.SUB: Op.SUB, ops.MUL: Op.MUL, ops.AND: Op.AND, ops.XOR: Op.XOR}
_UNARY = {ops.NEG: Op.NEG, ops.NOT: Op.NOT, ops.SHL: Op.SHL, ops.SHR: Op.SHR}
_OTHER = {ops.SELECT: Op.SELECT, ops.UNPACK: Op.UNPACK, ops.LOOKUP: Op.LOOKUP}
ON_WORDS = {**_BINARY, **_UNARY, **_OTHER}
# A difference with a constant is a sum with its negative.
WITH_CONST = {
    ops.ADD: Op.ADD_CONST,
    ops.SUB: Op.ADD_CONST,
    ops.MUL: Op.MUL_CONST,
    ops.AND: Op.AND_CONST,
}
ON_BITS = {ops.AND: Op.AND_BITS, ops.XOR: Op.XOR_BITS, ops.NOT: Op.NOT_BITS, ops.PACK: Op.PACK}
_OPCODES = np.array(
    [[of.get(op, 0) for of in (ON_WORDS, WITH_CONST, ON_BITS)] for op in ops.ALL], np.int64
)
_ATTRIBUTES = ("value", "bits", "low", "start", "step")
Keys = dict[frozenset[int], int]  # numbers of a party's keys, by their holders


@dataclass(frozen=True)
class Code:
    """A fused program.

    Attributes:
        params: of its kernel.
        streams: nodes whose memory its buffers are, or sends in whose messages they lie.
        messages: which streams are messages.
        draws: the instructions that draw.
        drawn: the nodes that these make.
    """

    params: Int64s
    streams: Int32s
    messages: Flags
    draws: Int64s
    drawn: Int32s


def keys_of(program: Program) -> list[Keys]:
    """The keys that each party holds, numbered."""
    holders, _ = holders_of(program.draws)
    in_order = sorted(holders, key=sorted)
    return [
        {each: number for number, each in enumerate(own for own in in_order if party in own)}
        for party in range(len(program.parties))
    ]


def keys_of_draws(columns: Columns, program: Program, keys: Sequence[Keys]) -> Int32s:
    """Of each node that draws the number of its key at its party; 0 for all else.

    Args:
        keys: of each party, as `keys_of`.
    """
    found = np.zeros(len(columns), np.int32)
    rows = columns.rows_of(ops.DRAW)
    if len(rows):
        holders, which = holders_of(program.draws)
        table = np.array([[own.get(each, 0) for own in keys] for each in holders], np.int32)
        found[rows] = table[np.array(which)[columns.number[rows]], columns.party[rows]]
    return found


def fused_code(steps: LocalSteps, keys: Int32s, actions: Actions) -> list[Code]:
    """The programs of some fused actions.

    Args:
        keys: of all nodes that draw, as `keys_of_draws`.

    Raises:
        ValueError: a program that no kernel runs; the text of a stranger's plan may ask for it.
    """
    columns = steps.schedule.columns
    made = native.fused_code(
        facts_of(columns),
        columns.party,
        columns.stage,
        columns.elements,
        columns.op,
        columns.tensor,
        columns.attributes,
        columns.number,
        keys,
        steps.is_stored,
        steps.is_unpacked,
        columns.first,
        columns.args,
        _OPCODES,
        _table([_type(type) for _, type in columns.tensors], 5),
        columns.integers(*_ATTRIBUTES),
        _repeats(columns, actions.nodes.rows),
        actions.party,
        actions.place,
        *actions.nodes,
    )
    return [Code(*each) for each in made]


def _table(rows: Sequence[Sequence[int]], width: int) -> Int64s:
    return np.array(rows, np.int64).reshape(-1, width)


def _type(type: Type) -> tuple[int, ...]:
    is_planes = type.kind is Kind.PLANES
    return is_planes, type.bits, type.stored.bits, type.word_bits, type.per_element


def _repeats(columns: Columns, nodes: Int32s) -> Int64s:
    """How LOAD reads operands of these nodes that have fewer elements: as `native.fused_code`."""
    operands = Lists(columns.first, columns.args).take(nodes.astype(np.int64))
    args, users = operands.rows, np.repeat(nodes, np.diff(operands.first))
    differ = columns.elements[args] != columns.elements[users]
    count = len(columns.tensors)
    pairs = columns.tensor[args[differ]].astype(np.int64) * count + columns.tensor[users[differ]]
    found = []
    for source, target in (divmod(pair, count) for pair in np.unique(pairs).tolist()):
        pattern = broadcast_pattern(columns.tensors[source][0], columns.tensors[target][0])
        if pattern is not None:
            found.append((source, target, *pattern))
    return _table(found, 4)
