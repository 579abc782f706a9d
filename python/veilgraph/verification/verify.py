"""A plan is verified where it runs: what its tables do is what its program says, and that is safe.

The plan's party text is parsed, held to its grammar, to the owners and receivers that the manifest
names, and to the masks that its suite's coalitions ask for; then it is lowered again, and every
table of every party must come out byte for byte. So nobody believes who compiled the plan: what is
revealed to whom is computed from the program. Needs no MLIR, no model and no weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import SecurityAbort, UsageError, VeilgraphError
from veilgraph.ir.files.beside import together
from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import columns_of, nodes_of
from veilgraph.ir.party.legality import check_party
from veilgraph.ir.party.node import Node, Shape
from veilgraph.ir.party.ops import Holds, PartyOp
from veilgraph.ir.party.program import Program
from veilgraph.ir.party.text import parse_program
from veilgraph.ir.plan.checks import check
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import (
    PUBLIC,
    SHARED,
    STATE,
    WEIGHTS,
    Direction,
    Layer,
    Manifest,
    PartyPlan,
    Phase,
    Tensor,
)
from veilgraph.kernels import PART_ELEMENTS
from veilgraph.passes._native import Dependencies
from veilgraph.passes.collection import paused_collection
from veilgraph.passes.party.batch_rounds import Schedule, batch_rounds
from veilgraph.passes.party.independent_rows import independent_rows
from veilgraph.passes.party.verify_masking import MOST_WORDS, coalitions, verify_masking
from veilgraph.passes.plan.cut_messages import PIECE_BYTES
from veilgraph.passes.plan.lower import Cost, constants_of, costs, lay_out, lower
from veilgraph.passes.plan.version import LOWERING_VERSION
from veilgraph.targets.suites import SUITES
from veilgraph.targets.target import Target, target_of_roles
from veilgraph.verification.findings import (
    CONSTANTS,
    OUTPUT,
    PUBLIC_WEIGHTS,
    SHARED_WEIGHTS,
    Revealed,
    Secret,
    Verified,
)

HINT = "Don't run it: ask who compiled the plan for another, and compare what `verify` says."
MOST_QUOTED = 300  # characters of a reason, which may quote the plan
# Of a party's plan: what has tensors by name.
LISTED = tuple(dict.fromkeys(op.listed for op in ops.ALL if op.listed))
# What enters, leaves or stays in a ring, and what linear layers multiply in one.
IN_RINGS = frozenset(
    {ops.INPUT, ops.WEIGHT, ops.SHARE, ops.STATE, ops.KEEP, ops.OUTPUT, ops.MATMUL, ops.CONV2D}
)
PACKAGE = "veilgraph"
TABLES = ("steps", "buffers", "messages", "params", "kept")


class _Lie(Exception):
    """What does not hold, as the start of a sentence about the plan."""


def verify(plan: Plan) -> Verified:
    """Holds a plan to its program, and its program to what its suite promises.

    Raises:
        SecurityAbort: what does not hold, the first difference by party, table and row; or a plan
            of another lowering, and which version has it.
    """
    require_lowering(plan.manifest)
    try:
        with paused_collection():
            return _verify(plan)
    except VeilgraphError:
        raise
    except Exception as error:
        # What a stranger wrote may break any assumption of a pass: it is refused all the same.
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        quoted = reason.rstrip(". ")[:MOST_QUOTED]
        raise SecurityAbort(f"The plan is refused: {quoted}.", HINT) from error


def require_lowering(manifest: Manifest) -> None:
    """Raises SecurityAbort unless the plan's tables are of this host's lowering."""
    if manifest.lowering == LOWERING_VERSION:
        return
    stated = manifest.veilgraph_version
    known = re.fullmatch(r"[0-9A-Za-z.+!-]{1,40}", stated, re.ASCII) and stated != version(PACKAGE)
    wanted = f"veilgraph {stated}" if known else "the checkout that made it"
    raise SecurityAbort(
        f"The plan is of lowering {manifest.lowering}, and this host verifies lowering "
        f"{LOWERING_VERSION}.",
        f"Install {wanted}, or ask for the plan compiled again.",
    )


def _verify(plan: Plan) -> Verified:
    chosen, program = together(partial(_checked_target, plan), partial(_program, plan))
    # The grammar is looked at beside the rounds: native passes hold any program to what they take
    # for granted.
    _, schedule = together(
        partial(_check_program, plan, program),
        partial(batch_rounds, program, plan.manifest.pace),
    )
    if not schedule.is_live.all():
        raise _Lie("its program has nodes that no output needs")
    groups = coalitions(chosen)
    seen, _ = together(
        partial(_seen, plan, chosen, schedule, groups), partial(_check_tables, plan, schedule)
    )
    _check_layers(plan.layers, seen.costs)
    names = program.parties
    return Verified(
        plan.digest,
        chosen.suite.name,
        str(chosen.suite.security),
        LOWERING_VERSION,
        tuple(tuple(names[i] for i in group) for group in groups),
        len(program.nodes),
        len(program.draws),
        len(columns_of(program.nodes).rows_of(ops.SEND)),
        len(program.layers) - 1,
        tuple(_secrets(plan.manifest, program)),
        seen.revealed,
        _rings(program),
        seen.rows,
    )


@dataclass(frozen=True)
class _Seen:
    """What a program is found to do, once its masks hold."""

    costs: Mapping[int, Cost]
    revealed: tuple[Revealed, ...]
    rows: int


def _seen(plan: Plan, chosen: Target, schedule: Schedule, groups: Sequence[Sequence[int]]) -> _Seen:
    verify_masking(schedule, groups, _receivers(plan.manifest))
    program = schedule.program
    revealed = tuple(_revealed(plan, chosen, program))
    return _Seen(costs(schedule), revealed, independent_rows(program))


# The suite, and the program


def _checked_target(plan: Plan) -> Target:
    check(plan)
    return _target(plan.manifest)


def _target(manifest: Manifest) -> Target:
    """What the plan is for, of a suite and with a table of coalitions that are this host's own."""
    if manifest.suite not in SUITES:
        known = ", ".join(SUITES)
        raise _Lie(f"this host knows no suite {manifest.suite[:40]!r}, but {known}")
    try:
        chosen = target_of_roles(
            manifest.suite, manifest.roles, manifest.owners, manifest.receivers
        )
    except UsageError as error:
        raise _Lie(error.message.rstrip(".")) from error
    if chosen.everyone != manifest.parties:
        raise _Lie("its parties are not in the order of their roles")
    if str(chosen.suite.security) != manifest.security:
        raise _Lie(f"it promises other security than suite {manifest.suite} gives")
    return chosen


def _program(plan: Plan) -> Program:
    text = plan.ir.get("party")
    if text is None:
        raise _Lie("it carries no text of its program")
    program = parse_program(text)
    if program.parties != plan.manifest.parties:
        raise _Lie("its program is for other parties")
    if tuple(layer.name for layer in plan.layers) != tuple(program.layers):
        raise _Lie("its layers are not those of its program")
    return program


def _check_program(plan: Plan, program: Program) -> None:
    check_party(program)
    _check_owners(plan.manifest, program)
    _check_receivers(plan.manifest, program)
    _check_entries(plan.manifest, program)
    _check_constants(plan, program)


# Owners, receivers, constants


def _named(program: Program, *kinds: PartyOp) -> Iterator[tuple[str, str, Node]]:
    """Name, party and node of what enters or leaves a program."""
    for node in nodes_of(program.nodes, *kinds):
        yield node["name"], program.parties[node.party], node


def _check_owners(manifest: Manifest, program: Program) -> None:
    for name, party, _ in _named(program, ops.INPUT):
        if name == WEIGHTS or manifest.owners.get(name) != party:
            raise _Lie(f"its program takes input {name!r} from {party}, who is not its owner")
    holder = manifest.owners.get(WEIGHTS)
    for name, party, _ in _named(program, ops.WEIGHT):
        if holder != party:
            raise _Lie(f"its program takes weight {name!r} from {party}, who is not its owner")
    for name, party, _ in _named(program, ops.SHARE):
        if holder != SHARED:
            raise _Lie(f"its program takes shares of {name!r} from {party}; it says of none")


def _check_receivers(manifest: Manifest, program: Program) -> None:
    stated = {(name, party) for name, to in manifest.receivers.items() for party in to}
    outputs = [(name, party, n.entry) for name, party, n in _named(program, ops.OUTPUT)]
    if len(set(outputs)) < len(outputs):
        raise _Lie("its program has an output twice")
    found = list(dict.fromkeys((name, party) for name, party, _ in outputs))
    for name, party in sorted(stated.symmetric_difference(found)):
        said = "its manifest does not" if (name, party) in found else "its manifest alone does"
        raise _Lie(f"its program and its manifest differ: output {name!r} to {party} ({said})")


def _check_entries(manifest: Manifest, program: Program) -> None:
    """That each node is of an entry that the plan names, and every state one that it names."""
    if columns_of(program.nodes).entry.max(initial=0) >= len(manifest.entries):
        raise _Lie("its program has an entry that it does not name")
    found = {name for name, _, _ in _named(program, ops.STATE, ops.KEEP)}
    if found != manifest.states.keys():
        raise _Lie("its program keeps other states than it names")


def _receivers(manifest: Manifest) -> dict[str, set[int]]:
    """The parties that may have each output, by their numbers."""
    number = manifest.parties.index
    return {name: {number(who) for who in to} for name, to in manifest.receivers.items()}


def _check_constants(plan: Plan, program: Program) -> None:
    """Their places, and that they are elements of their rings."""
    found = constants_of(program)
    offsets, size = lay_out(found)
    if len(plan.constants) != size:
        raise _Lie(f"its constants are {len(plan.constants)} bytes, and its program's {size}")
    used = 0
    for number, ((type, elements), offset) in enumerate(zip(found, offsets, strict=True)):
        dtype = "<u4" if type.word_bits == 32 else "<u8"
        words = np.frombuffer(plan.constants, dtype, elements, offset)
        if any(plan.constants[used:offset]) or (elements and int(words.max()) >> type.bits):
            raise _Lie(f"constant {number} is not of its ring")
        used = offset + words.nbytes


# Tables


def _check_tables(plan: Plan, schedule: Schedule) -> None:
    """That each party's tables are what its program is lowered to."""
    program = schedule.program
    _check_pieces(plan, schedule)
    tensors = list(_tensors(plan, program))
    for name, expected in lower(schedule, tensors).items():
        _compare(plan.programs[name], expected)


def _check_pieces(plan: Plan, schedule: Schedule) -> None:
    """Large messages become rows, at least half as many as this: taken only if they are there."""
    columns, rows = schedule.columns, schedule.rows_of(ops.SEND)
    in_order = np.array([type.in_order for _, type in columns.tensors], bool)
    words = rows[in_order[columns.tensor[rows]]]
    cut = columns.message_bytes[words] // PIECE_BYTES, columns.steps[words] // PART_ELEMENTS
    least = int(np.minimum(*cut).sum())
    sends = sum(
        int((p.messages["direction"] == Direction.SEND).sum()) for p in plan.programs.values()
    )
    if least > 2 * sends + len(rows):
        raise _Lie("its messages are not those of its program")


def _tensors(plan: Plan, program: Program) -> Iterator[Tensor]:
    """What the plan says of each named tensor, where it agrees with the program; once by name."""
    own = {
        (party, kind, tensor.name, tensor.entry): tensor
        for party, each in plan.programs.items()
        for kind in LISTED
        for tensor in getattr(each, kind)
    }
    given = _named(program, ops.INPUT, ops.WEIGHT, ops.SHARE, ops.STATE, ops.KEEP)
    for name, party, node in (*given, *_named(program, ops.OUTPUT)):
        entry = 0 if node.op.listed == "states" else node.entry
        tensor = own.get((party, node.op.listed, name, entry))
        if tensor is None:
            raise _Lie(f"{party} has no place for {node.op} {name!r}")
        owner = {ops.SHARE: SHARED, ops.STATE: STATE, ops.KEEP: STATE}
        owner[ops.OUTPUT] = ",".join(plan.manifest.receivers.get(name, ()))
        said = (tensor.shape, tensor.ring_bits, tensor.owner)
        if said != (node.shape, node.type.bits, owner.get(node.op, party)):
            raise _Lie(f"{party}'s {node.op} {name!r} is not what its program says")
        if node.op is ops.OUTPUT and tensor.frac_bits != node["frac_bits"]:
            raise _Lie(f"{party}'s output {name!r} is read at another scale")
        yield Tensor(**{f.name: getattr(tensor, f.name) for f in fields(Tensor)})


def _compare(stated: PartyPlan, expected: PartyPlan) -> None:
    party = expected.party
    for table in TABLES:
        rows, others = getattr(stated, table), getattr(expected, table)
        if rows.dtype == others.dtype and np.array_equal(_bytes(rows), _bytes(others)):
            continue
        same = min(len(rows), len(others))
        differs = np.flatnonzero(rows[:same] != others[:same])
        row = int(differs[0]) if len(differs) else same
        raise _Lie(f"{party}'s table {table} is not its program's, first in row {row}")
    for field in ("arena_bytes", "keys", *LISTED):
        if getattr(stated, field) != getattr(expected, field):
            raise _Lie(f"{party}'s {field.replace('_', ' ')} are not its program's")


def _bytes(table: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """A table's bytes, not copied; views of memory would be compared one by one."""
    return np.ascontiguousarray(table).view(np.uint8)


def _check_layers(layers: tuple[Layer, ...], found: Mapping[int, Cost]) -> None:
    for number, layer in enumerate(layers):
        cost = found.get(number, Cost())
        counted = (
            cost.bits[Phase.ONLINE],
            cost.bits[Phase.OFFLINE],
            cost.multiply_adds,
            len(cost.rounds),
        )
        stated = (layer.online_bits, layer.offline_bits, layer.multiply_adds, layer.rounds)
        if counted != stated:
            raise _Lie(f"layer {number} costs other than the plan says")


# What is revealed


def _secrets(manifest: Manifest, program: Program) -> Iterator[Secret]:
    for name, party, node in _named(program, ops.INPUT):
        yield Secret(name, party, node.elements)
    states = {name: node.elements for name, _, node in _named(program, ops.KEEP)}
    for name, elements in states.items():
        yield Secret(name, STATE, elements)
    yield from _weights(manifest, program)


def _weights(manifest: Manifest, program: Program) -> Iterator[Secret]:
    """All of them together, where they are secret."""
    shapes: dict[str, Shape] = {
        name: node.shape for name, _, node in _named(program, ops.WEIGHT, ops.SHARE)
    }
    if shapes:
        numbers = sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values())
        yield Secret(WEIGHTS, manifest.owners[WEIGHTS], numbers)


def _revealed(plan: Plan, chosen: Target, program: Program) -> Iterator[Revealed]:
    depends = _dependencies(program)
    receivers: dict[tuple[str, int, tuple[str, ...]], list[str]] = {}
    for name, party, node in _named(program, ops.OUTPUT):
        receivers.setdefault((name, node.elements, depends[node.id]), []).append(party)
    for (name, elements, of), to in receivers.items():
        yield Revealed(f"output {name}", elements, tuple(to), of, OUTPUT)
    constants = sum(elements for _, elements in constants_of(program))
    holder, parties = plan.manifest.owners.get(WEIGHTS), chosen.parties
    if constants:
        public = ", the weights among them" if holder == PUBLIC else ""
        kind = PUBLIC_WEIGHTS if public else CONSTANTS
        yield Revealed(f"constants of the plan{public}", constants, chosen.everyone, (), kind)
    if holder == SHARED:
        numbers = sum(secret.numbers for secret in _weights(plan.manifest, program))
        least = chosen.coalition + 1
        what = f"the weights, by {least} of these together"
        yield Revealed(what, numbers, parties, (), SHARED_WEIGHTS)


def _rings(program: Program) -> tuple[int, ...]:
    return tuple(sorted({node.type.bits for node in nodes_of(program.nodes, *IN_RINGS)}))


def _dependencies(program: Program) -> dict[int, tuple[str, ...]]:
    """Of each output's node, the inputs and states that it is computed from, and "weights".

    A state is computed from all that any run may have kept in it.
    """
    columns, nodes = columns_of(program.nodes), program.nodes
    names: dict[str, int] = {}
    source = np.full(len(columns), -1, np.int32)
    for node in nodes_of(nodes, *(op for op in ops.ALL if op.masking.holds is Holds.SECRET)):
        is_weight = node.op is ops.WEIGHT or node.op is ops.SHARE
        name = WEIGHTS if is_weight else node["name"]
        source[node.id] = names.setdefault(name, len(names))
    for node in nodes_of(nodes, ops.KEEP):
        names.setdefault(node["name"], len(names))
    every = Dependencies(source, len(names), columns.first, columns.args, MOST_WORDS)

    def found(node: Node) -> int:
        return int.from_bytes(every.words(node.id).tobytes(), "little")

    kept: dict[int, int] = {}  # of each state what is kept in it, in any entry
    for node in nodes_of(nodes, ops.KEEP):
        state = names[node["name"]]
        kept[state] = kept.get(state, 0) | found(node)
    outputs = {node.id: found(node) for node in nodes_of(nodes, ops.OUTPUT)}
    ended = {number: _behind_states(bits, kept) for number, bits in outputs.items()}
    return {i: tuple(n for n, j in names.items() if bits >> j & 1) for i, bits in ended.items()}


def _behind_states(bits: int, kept: Mapping[int, int]) -> int:
    """A set of names, with what is kept in each state of it."""
    before = 0
    while bits != before:
        before = bits
        for state, behind in kept.items():
            if bits >> state & 1:
                bits |= behind
    return bits
