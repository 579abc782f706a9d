"""The grammar of the party level: what a pass or a suite may leave behind, and all that a host
believes of a stranger's text before it looks at masks.

Per operation (ir/party/ops.py) how many operands it takes, which attributes, what becomes of types,
and which shapes go together, as ir/meaning/party.py computes with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node, base_of, broadcast_pattern
from veilgraph.ir.party.ops import DECLARED, Runs
from veilgraph.ir.party.program import Program
from veilgraph.ir.party.rules import LARGEST
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind


class IllegalParty(AssertionError):
    """A node that the party level doesn't allow: a bug of a suite or a pass, or a false text."""


def check_party(program: Program) -> None:
    """Every node reads what its own party has, made before it; only sends cross.

    Raises:
        IllegalParty: with the node and the reason.
    """
    drawn: dict[int, tuple[object, ...]] = {}
    for node in program.nodes:
        reason = _illegal(program, node, drawn)
        if reason:
            raise IllegalParty(f"%{node.id} = {node.op.name}: {reason}")


def _illegal(program: Program, node: Node, drawn: dict[int, tuple[object, ...]]) -> str:
    nodes, number = program.nodes, node.id
    for arg in node.args:
        if arg >= number:
            return "it reads what is made after it"
    operands = [nodes[i] for i in node.args]
    if node.entry and node.phase == Phase.SETUP:
        return "what setup makes is of every entry"
    if not _has_attributes(node):
        return "its attributes are others"
    if node.op.operands == 0:
        return _illegal_source(program, node, drawn)
    if node.op is ops.SEND:
        return _illegal_send(node, operands)
    if not (operands if node.op.operands is None else len(operands) == node.op.operands):
        return "it has another number of operands"
    op = node.op
    if op is ops.KEEP and base_of(program.nodes, node.args[0]).op is ops.STATE:
        return "it keeps what lies where a state does"
    phase, party, entry = operands[0].phase, node.party, node.entry
    for operand in operands:
        if operand.party != party:
            return "it reads what another party has"
        if operand.entry != entry and operand.phase != Phase.SETUP:
            return "it reads what another entry makes"
        if operand.phase > phase:
            phase = operand.phase
    if phase > node.phase:
        return "it reads what a later phase makes"
    if op.phase is not None and op.phase != node.phase:
        return "it is there in another phase"
    if phase < node.phase and op.phase is None:
        return "its operands are made in an earlier phase"
    return _illegal_kind(node) or _illegal_form(program, node, operands)


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


def _illegal_source(program: Program, node: Node, drawn: dict[int, tuple[object, ...]]) -> str:
    if node.args:
        return "a source has no operands"
    if node.op is ops.DRAW:
        return _illegal_draw(program, node, drawn)
    if node.phase != node.op.phase:
        return "it is there in another phase"
    if node.op is ops.CONST:
        is_element = 0 <= node["value"] < node.type.modulus
        return _illegal_kind(node) if is_element else "its value is no element"
    return _illegal_kind(node)


def _illegal_draw(program: Program, node: Node, drawn: dict[int, tuple[object, ...]]) -> str:
    number = node["number"]
    if not 0 <= number < len(program.draws):
        return "there is no such draw"
    if node.party not in program.draws[number].holders:
        return "a party draws from a key that it does not have"
    form = (node.shape, node.type, node.phase, node.entry)
    if drawn.setdefault(number, form) != form or node.phase != program.draws[number].phase:
        return "the same draw is another elsewhere"
    return ""


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


def _illegal_form(program: Program, node: Node, operands: Sequence[Node]) -> str:
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
    if op is ops.LOOKUP:
        index, table = operands
        is_sound = index.type == node.type and _is_table(program, table, node)
        return "" if is_sound else "it looks up in no table, or at no words"
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
