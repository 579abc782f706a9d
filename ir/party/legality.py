"""The grammar of the party level: what a pass or a suite may leave behind, and all that a host
believes of a stranger's text before it looks at masks.

Per operation (ir/party/ops.py) how many operands it takes, which attributes, what becomes of types,
and which shapes go together, as ir/meaning/party.py computes with them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party._native import first_of_forms
from veilgraph.ir.party.columns import NUMBERS, Columns, Int32s, columns_of
from veilgraph.ir.party.node import Node, base_of, broadcast_pattern, holders_of
from veilgraph.ir.party.ops import DECLARED, Runs
from veilgraph.ir.party.program import Program
from veilgraph.ir.party.rules import LARGEST
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind


class IllegalParty(AssertionError):
    """A node that the party level doesn't allow: a bug of a suite or a pass, or a false text."""


# What is asked of each node apart: its rule looks further than its operands.
_FAR = (ops.LOOKUP, ops.KEEP)


def check_party(program: Program) -> None:
    """Every node reads what its own party has, made before it; only sends cross.

    The rules but those of draws, look-ups and kept states ask for nothing but a node's form: its
    operation, attributes, place and tensor, and its operands' places and tensors; of what may be
    fused, where all of these have one shape, for their types in place of tensors. So each form is
    looked at once, at its first node. Places are looked at of all nodes together: where they fit,
    as in most programs, forms are told apart without them.

    Raises:
        IllegalParty: with the node and the reason.
    """
    columns = columns_of(program.nodes)
    readers = np.repeat(np.arange(len(columns)), np.diff(columns.first))
    if (late := readers[columns.args >= readers]).size:
        raise _illegal_at(program, int(late[0]), "it reads what is made after it")
    for row in _first_of_forms(columns, by_place=not _places_fit(columns)):
        if reason := _illegal(program, program.nodes[row]):
            raise _illegal_at(program, row, reason)
    for row in columns.rows_of(*_FAR).tolist():
        if reason := _illegal_far(program, program.nodes[row]):
            raise _illegal_at(program, row, reason)
    if odd := odd_draw(program, columns):
        raise _illegal_at(program, *odd)


def _illegal_at(program: Program, row: int, reason: str) -> IllegalParty:
    return IllegalParty(f"%{row} = {program.nodes[row].op.name}: {reason}")


def _places_fit(columns: Columns) -> bool:
    """Whether no node's place, or its operands' places, break a rule of `_illegal`."""
    party, phase, entry = columns.party, columns.phase, columns.entry
    counts = np.diff(columns.first)
    readers = np.repeat(np.arange(len(columns)), counts)
    args, is_send = columns.args, columns.op == NUMBERS[ops.SEND]
    crosses = party[args] != party[readers]
    fits = np.array_equal(crosses, is_send[readers])
    fits = fits and not ((entry[args] != entry[readers]) & (phase[args] != Phase.SETUP)).any()
    fits = fits and not entry[phase == Phase.SETUP].any()
    fixed = _PHASES[columns.op]
    fits = fits and bool(((fixed == _ANY_PHASE) | (fixed == phase)).all())
    # Operands are of no later phase, and some of the node's own where its operation has none.
    fits = fits and not (phase[args] > phase[readers]).any()
    own = np.zeros(len(columns), bool)
    own[readers[phase[args] == phase[readers]]] = True
    return bool(fits and own[(counts > 0) & (fixed == _ANY_PHASE)].all())


_ANY_PHASE = -1
_PHASES = np.array([_ANY_PHASE if op.phase is None else op.phase for op in ops.ALL])


def _first_of_forms(columns: Columns, *, by_place: bool) -> list[int]:
    """The first node of each form that there is."""
    is_const = (columns.op == NUMBERS[ops.CONST]).astype(np.int32)
    found = first_of_forms(
        [*([columns.place] if by_place else []), is_const],
        [columns.op.astype(np.int32), columns.attributes],
        _BY_TYPE[columns.op],
        columns.tensor,
        _numbers(shape for shape, _ in columns.tensors),
        _numbers(type for _, type in columns.tensors),
        columns.first,
        columns.args,
    )
    rows: list[int] = found.tolist()
    return rows


_BY_TYPE = np.array([op.fusible for op in ops.ALL], np.uint8)


def _numbers(values: Iterable[Hashable]) -> Int32s:
    """The same for the same value."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in values], np.int32)


def odd_draw(program: Program, columns: Columns) -> tuple[int, str] | None:
    """The row of a node whose draw is not one and the same for all who make it, and for nobody
    else; and what is wrong with it.
    """
    rows = columns.rows_of(ops.DRAW)
    numbers = columns.number[rows]
    if (odd := rows[(numbers < 0) | (numbers >= len(program.draws))]).size:
        return int(odd[0]), "there is no such draw"
    holders, own = holders_of(program.draws)
    holds = np.zeros((len(holders), len(program.parties)), bool)
    for number, each in enumerate(holders):
        holds[number, list(each)] = True
    holds = holds[np.array(own, np.int64)]
    if (odd := rows[~holds[numbers, columns.party[rows]]]).size:
        return int(odd[0]), "a party draws from a key that it does not have"
    phases = np.array([draw.phase for draw in program.draws], np.int64)
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    first = rows[first][which]  # for each node the first one of its draw
    same = columns.tensor[rows] == columns.tensor[first]
    same &= columns.entry[rows] == columns.entry[first]
    if (odd := rows[~same | (columns.phase[rows] != phases[numbers])]).size:
        return int(odd[0]), "the same draw is another elsewhere"
    return None


def _illegal(program: Program, node: Node) -> str:
    operands = [program.nodes[i] for i in node.args]
    if node.entry and node.phase == Phase.SETUP:
        return "what setup makes is of every entry"
    if not _has_attributes(node):
        return "its attributes are others"
    if node.op.operands == 0:
        return _illegal_source(node)
    if node.op is ops.SEND:
        return _illegal_send(node, operands)
    if not (operands if node.op.operands is None else len(operands) == node.op.operands):
        return "it has another number of operands"
    for operand in operands:
        if operand.party != node.party:
            return "it reads what another party has"
        if operand.entry != node.entry and operand.phase != Phase.SETUP:
            return "it reads what another entry makes"
    phase = max(operand.phase for operand in operands)
    if phase > node.phase:
        return "it reads what a later phase makes"
    if node.op.phase is not None and node.op.phase != node.phase:
        return "it is there in another phase"
    if phase < node.phase and node.op.phase is None:
        return "its operands are made in an earlier phase"
    return _illegal_kind(node) or _illegal_form(node, operands)


def _illegal_far(program: Program, node: Node) -> str:
    if node.op is ops.KEEP and base_of(program.nodes, node.args[0]).op is ops.STATE:
        return "it keeps what lies where a state does"
    if node.op is ops.LOOKUP:
        index, table = (program.nodes[i] for i in node.args)
        if index.type != node.type or not _is_table(program, table, node):
            return "it looks up in no table, or at no words"
    return ""


def _has_attributes(node: Node) -> bool:
    known = node.op.attributes
    if len(known) != len(node.attrs):
        return False
    for name, value in node.attrs:
        if type(value) is not known.get(name):
            return False
        if type(value) is tuple and not all(
            type(each) is int and abs(each) < LARGEST for each in value
        ):
            return False
    return True


def _illegal_source(node: Node) -> str:
    if node.args:
        return "a source has no operands"
    if node.op is not ops.DRAW and node.phase != node.op.phase:
        return "it is there in another phase"
    if node.op is ops.CONST and not 0 <= node["value"] < node.type.modulus:
        return "its value is no element"
    return _illegal_kind(node)


def _illegal_send(node: Node, operands: Sequence[Node]) -> str:
    same = len(operands) == 1 and operands[0].party != node.party
    if not same or (operands[0].type, operands[0].shape) != (node.type, node.shape):
        return "it does not cross, or changes"
    if operands[0].stage != node.stage:
        return "it is sent in another phase"
    return "" if node["declared"] in DECLARED else "it declares what there is not"


def _illegal_kind(node: Node) -> str:
    if node.type.kind in node.op.makes:
        return ""
    if node.op.masking.moves and node.type.kind is Kind.PLANES:
        return "it moves words alone: planes are padded"
    return f"it makes {' or '.join(sorted(kind.value for kind in node.op.makes))}"


def _illegal_form(node: Node, operands: Sequence[Node]) -> str:
    """Whether types or shapes of the operands are not those of the operation."""
    op, shape = node.op, node.shape
    if op.alike:
        type = node.type
        for x in operands:
            if x.type is not type and x.type != type:
                return "it changes a type"
    if op.elementwise:
        for x in operands[:1] if op is ops.LOOKUP else operands:
            if x.shape is not shape and x.shape != shape and not _spreads(x, node):
                return "its operands do not fit its shape"
    fits = op.fits
    return "" if fits is None or fits(node, operands) else "its operands do not fit it"


def _spreads(x: Node, node: Node) -> bool:
    """Whether element-wise kernels read an operand as it is, or repeat it in passing."""
    if x.op is ops.CONST and x.elements == 1:
        return True
    if x.type.kind is not Kind.WORDS or len(x.shape) > len(node.shape):
        return False
    lead = len(node.shape) - len(x.shape)
    broadcasts = all(n in (1, node.shape[lead + i]) for i, n in enumerate(x.shape))
    return broadcasts and (not x.shape or broadcast_pattern(x.shape, node.shape) is not None)


def _is_table(program: Program, table: Node, node: Node) -> bool:
    """A public tensor of 2^j entries, or a view of one: it lies in memory, as no `const` does."""
    entries, type = table.elements, table.type
    while table.op.runs is Runs.VIEW:
        table = program.nodes[table.args[0]]
    is_public = table.op is ops.CONSTANT
    return is_public and entries > 0 and not entries & (entries - 1) and type == node.type
