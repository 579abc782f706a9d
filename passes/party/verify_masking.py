"""verify_masking: every message hides what it carries, or the plan is not emitted.

For each coalition that the suite protects against, each message to it from outside needs a
**witness**: a draw that the coalition does not know and that is added (or XORed) to the rest of
the message, which does not depend on it. Bits of a value that is so masked need no other witness
than the value's; of a message that is put together of several values each needs its own. The
messages must have an order in which each one's witness appears in none before it: then the map
from witnesses to messages is triangular, and what the coalition sees is uniform whatever the
secrets are. A draw of the setup is the same in every inference, and hides nothing that is sent in
one, and the parts of a state, which the last run left, hide nothing at all. An output that is a sum
of what its receiver holds and of revealed messages determines one of them, which needs no witness:
it says nothing that the output does not. So outputs must be those that were asked for, and no masks
(verify_outputs.py). Of a weight that was dealt before the
session a coalition has to lack a part: the parts are as many uniform numbers but one, and nothing
else says what they are. So it is of a state.

    accepted:  %3 = draw @alice @bob   %4 = add %1 %3   send %4 @carol
    refused:   send %1 @carol          (a share of a product without its zero sharing)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import ResourceLimitError
from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import Int32s, Int64s
from veilgraph.ir.party.legality import odd_draw
from veilgraph.ir.party.ops import Holds
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.roles import Collusion
from veilgraph.passes import _native as native
from veilgraph.passes._native import Dependencies
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.sums import Sums
from veilgraph.passes.party.tree_roots import TreeRoots
from veilgraph.passes.party.verify_outputs import MaskingError as MaskingError
from veilgraph.passes.party.verify_outputs import Receivers, verify_outputs, verify_receivers
from veilgraph.passes.party.verify_states import verify_states
from veilgraph.targets.target import Target

MOST_WORDS = 1 << 28  # of 64 draws each: what sets of those that values depend on take together


class TooManyDraws(MaskingError):
    """A program that may be as good as any, and is too large to be checked."""


def verify_own(schedule: Schedule, target: Target, revealed: Sequence[str]) -> None:
    """`verify_masking` of a program that was made here, for hosts that do the same.

    Args:
        revealed: names of outputs that somebody receives.

    Raises:
        ResourceLimitError: no host would check so much.
        MaskingError: as `verify_masking`.
    """
    try:
        verify_masking(schedule, coalitions(target), target.numbers_receiving(revealed))
    except TooManyDraws as error:
        raise ResourceLimitError(
            "The model's program has more nodes and draws than hosts check: none would run it.",
            "Compile a smaller batch, or a model of fewer layers.",
        ) from error


def coalitions(target: Target) -> list[tuple[int, ...]]:
    """The sets of parties that the suite protects against, smaller ones too.

    As many computing parties as the suite tolerates, or who prepares alone, or none of these; each
    with any clients. A coalition may see what its own members' secrets explain; fewer of them must
    not see as much.
    """
    computing = target.numbered(Collusion.THRESHOLD)
    together = [c for n in range(1, target.coalition + 1) for c in combinations(computing, n)]
    alone = [(party,) for party in target.numbered(Collusion.NOBODY)]
    clients = target.numbered(Collusion.ANYONE)
    joining = [c for n in range(len(clients) + 1) for c in combinations(clients, n)]
    every = [(*group, *others) for others in joining for group in (*together, *alone, ())]
    return [group for group in every if group]


class Claims(NamedTuple):
    """What is to be hidden, in the order of the messages: a message each, or a masked value of
    which messages carry bits.

    Attributes:
        messages: the first that carries it.
        values: the node of which it is: `_View.depends` has what it depends on.
        first, witnesses: draws that hide it: claim i's are witnesses[first[i] : first[i + 1]].
    """

    messages: Int32s
    values: Int32s
    first: Int64s
    witnesses: Int32s

    def __len__(self) -> int:
        return len(self.values)


def verify_masking(
    schedule: Schedule, coalitions: Iterable[Sequence[int]], receivers: Receivers
) -> None:
    """Checks all messages to every coalition, and all outputs.

    Args:
        receivers: of each output by name, the parties that may have it.

    Raises:
        MaskingError: naming an output that was not asked for; the first message without a witness,
            and its layer; a weight or a state of which a coalition has all parts; a state that is
            not whole after each run; or an output that is a mask, or a part of a state.
    """
    _verify_draws(schedule)
    verify_receivers(schedule, receivers)
    verify_states(schedule)
    sums = Sums(schedule.program)
    for coalition in coalitions:
        _verify_dealt(schedule, frozenset(coalition))
        verify_view(schedule, coalition, sums)
    verify_outputs(schedule, sums)


def verify_view(
    schedule: Schedule, coalition: Sequence[int], sums: Sums | None = None
) -> frozenset[int]:
    """The messages to a coalition that its outputs determine; all others are uniform together.

    Args:
        sums: of the program's values, where they are at hand.

    Raises:
        MaskingError: one of the others may not be.
    """
    sums = Sums(schedule.program) if sums is None else sums
    view = _View(schedule, frozenset(coalition), sums)
    view.verify()
    return view.determined


def _verify_draws(schedule: Schedule) -> None:
    """That a draw is one and the same for all who make it, and for nobody else."""
    if odd := odd_draw(schedule.program, schedule.columns):
        number = schedule.columns.number[odd[0]]
        raise MaskingError(f"draw {number} is not the same for all who make it")


def _verify_dealt(schedule: Schedule, coalition: frozenset[int]) -> None:
    """That the files of a coalition lack a part of each weight; its memory, of each state."""
    program = schedule.program
    parts: dict[tuple[str, str], set[int]] = {}
    fewest: dict[tuple[str, str], int] = {}
    for row in schedule.columns.rows_of(*(op for op in ops.ALL if op.is_part)).tolist():
        node = program.nodes[row]
        what = "weight" if node.op is ops.SHARE else "state"
        name, of = (what, node["name"]), node["of"]
        held = parts.setdefault(name, set())
        fewest[name] = min(of, fewest.get(name, of))
        if node.party in coalition:
            held.add(node["part"])
    for name, held in parts.items():
        if len(held) >= fewest[name]:
            names = ", ".join(program.parties[i] for i in sorted(coalition))
            raise MaskingError(f"{name[0]} {name[1]!r} is not hidden from {names}")


class _View:
    """What one coalition sees."""

    def __init__(self, schedule: Schedule, coalition: frozenset[int], sums: Sums) -> None:
        self.program: Program = schedule.program
        self.schedule, self.sums, self.walks = schedule, sums, sums.walks
        self.coalition = coalition
        holders, which = sums.holders
        self.hidden = np.array([not (each & coalition) for each in holders], bool)[which]
        self.trees = TreeRoots(schedule, self.walks, self.hidden.tolist())
        # Of a draw's number, if it is hidden: bit 0 is that of what others hold.
        self.bit = np.concatenate([[1], 1 + np.cumsum(self.hidden)]).astype(np.int32)
        self.depends = self._dependencies()
        self.determined = self._determined()

    def _dependencies(self) -> Dependencies:
        """Of each node the hidden draws that are in it, by their bits, and whether others' inputs
        or weights are.
        """
        columns = self.schedule.columns
        source = np.full(len(columns), -1, np.int32)
        draws = columns.rows_of(ops.DRAW)
        hidden = self.hidden[columns.number[draws]]
        source[draws[hidden]] = self.bit[columns.number[draws[hidden]]]
        secrets = columns.rows_of(*(op for op in ops.ALL if op.masking.holds is Holds.SECRET))
        source[secrets[~np.isin(columns.party[secrets], list(self.coalition))]] = 0
        try:
            size = int(self.bit[-1]) + 1
            return Dependencies(source, size, columns.first, columns.args, MOST_WORDS)
        except ValueError as error:
            reason = "its program has more nodes and draws than a host checks"
            raise TooManyDraws(reason) from error

    def _appears(self, value: int) -> npt.NDArray[np.uint8]:
        """Of each hidden draw, whether a value depends on it."""
        return np.unpackbits(self.depends.words(value).view(np.uint8), bitorder="little")

    def verify(self) -> None:
        claims = self._claims()
        bits = self.bit[claims.witnesses]
        if not self.depends.have_order(claims.values, claims.first, bits):  # as most programs do
            self._report(claims, self._unordered(claims))

    def _unordered(self, claims: Claims) -> list[int]:
        """The claims that are left when one after another goes whose witness is in no other."""
        counts = np.zeros(64 * (int(self.bit[-1]) // 64 + 1), np.int64)
        values = claims.values.tolist()
        every, ends = self.bit[claims.witnesses].tolist(), claims.first.tolist()
        bits = [every[begin:end] for begin, end in pairwise(ends)]
        for value in values:
            counts += self._appears(value)
        left, todo = dict.fromkeys(range(len(claims))), list(range(len(claims)))
        waiting: dict[int, list[int]] = {}  # claims by the bits of their witnesses
        for row, own in enumerate(bits):
            for bit in own:
                waiting.setdefault(bit, []).append(row)
        while todo:  # from the last on: a message's witness is seldom in an earlier one
            row = todo.pop()
            if row in left and any(counts[bit] == 1 for bit in bits[row]):
                del left[row]
                appears = self._appears(values[row])
                counts -= appears
                for bit in np.flatnonzero(appears & (counts == 1)).tolist():
                    todo.extend(waiting.get(bit, ()))
        return [*left]

    def _report(self, claims: Claims, unhidden: list[int]) -> None:
        if unhidden:
            node = self.program.nodes[int(claims.messages[unhidden[0]])]
            names = ", ".join(self.program.parties[i] for i in sorted(self.coalition))
            layer = self.program.layers[node.layer]
            raise MaskingError(f"message %{node.id} of layer {layer!r} is not hidden from {names}")

    def _determined(self) -> frozenset[int]:
        """For each output to the coalition, the last revealed message that no other output has.

        An input that its owner announces is an output as it is, and depends on no draw. So what is
        computed of it may go into other outputs, beside the messages that these determine.
        """
        nodes, columns = self.program.nodes, self.schedule.columns
        own = [n for n in self.schedule.nodes_of(ops.OUTPUT) if n.party in self.coalition]
        announced = {node.args[0] for node in own if self._is_announced(node.args[0])}
        start, closed = np.zeros((2, len(columns)), np.uint8)
        start[list(self._reveals)] = 1
        closed[list(announced)] = 1
        later = native.reached(start, closed, columns.first, columns.args)
        sums = []
        for node in own:
            terms = self.sums.of(node.args[0], behind_messages=False).terms
            revealed = [key for key in terms if key in announced or (key >= 0 and later[key])]
            if all(self._is_reveal(key) for key in revealed):
                sums.append({k for k in revealed if terms[k] % 2 and nodes[k].type == node.type})
        counts = Counter(key for revealed in sums for key in revealed)
        alone = ([key for key in revealed if counts[key] == 1] for revealed in sums)
        return frozenset(max(keys) for keys in alone if keys)

    def _is_reveal(self, i: int) -> bool:
        return i in self._reveals

    @cached_property
    def _reveals(self) -> frozenset[int]:
        """The messages to the coalition that are declared parts of outputs."""
        rows = np.array([*self.received], np.int64)
        declared = self.schedule.columns.having("declared", "reveal")
        return frozenset(rows[declared[rows]].tolist())

    def _is_announced(self, i: int) -> bool:
        """Whether it is an input, told as it is."""
        nodes = self.program.nodes
        return self._is_reveal(i) and nodes[nodes[i].args[0]].op is ops.INPUT

    # Claims

    def _claims(self) -> Claims:
        """What messages carry, each thing once; passes/native/masking/claims.cpp.

        A message that no draw hides may be bits of a value that one does, once what the coalition
        knows is taken away: then that value is to be hidden, for all messages with its bits. Or it
        is put together of several, each of which is.
        """
        messages = np.array([i for i in self.received if i not in self.determined], np.int64)
        return Claims(*self._view.claims(messages, *self._rooted(messages)))

    @cached_property
    def _view(self) -> native.View:
        columns, walks = self.schedule.columns, self.walks
        draws = self.schedule.rows_of(ops.DRAW)
        makers = np.full(len(self.hidden), -1, np.int32)
        makers[columns.number[draws]] = draws
        return native.View(
            self.sums.native,
            self.depends,
            self.hidden.view(np.uint8),
            self.bit[:-1],
            makers,
            columns.phase,
            np.asarray(walks.selected),
            np.asarray(walks.passed),
            np.asarray(walks.whole),
            np.asarray(walks.masked),
            _HIDES,
        )

    def _rooted(self, messages: Int64s) -> tuple[Int64s, Int64s, Int32s]:
        """The words of trees, in all phases in which they may be sent, and the roots that hide them
        then, as native code takes them.
        """
        columns, nodes = self.schedule.columns, self.program.nodes
        sent = {*columns.phase[messages].tolist()}
        rows = self.schedule.rows_of(*(op for op in ops.ALL if op.masking.roots)).tolist()
        keys, first, roots = list[int](), [0], list[int]()
        for row in rows:
            for phase in sorted({*sent, int(columns.phase[row])}):
                keys.append(native.PHASES * row + phase)
                roots += self.trees.hiding(nodes[row], Phase(phase))
                first.append(len(roots))
        return np.array(keys, np.int64), np.array(first, np.int64), np.array(roots, np.int32)

    @cached_property
    def received(self) -> dict[int, None]:
        """The messages to the coalition from outside, in order."""
        columns = self.schedule.columns
        rows = self.schedule.rows_of(ops.SEND)
        senders = columns.party[columns.args[columns.first[rows]]]
        own = list(self.coalition)
        rows = rows[np.isin(columns.party[rows], own) & ~np.isin(senders, own)]
        return dict.fromkeys(rows.tolist())


_HIDES = np.array(
    [
        native.ROOTS * bool(op.masking.roots)
        + native.PUBLIC * (op.masking.holds is Holds.PUBLIC)
        + native.OF_EACH * op.masking.of_each
        for op in ops.ALL
    ],
    np.uint8,
)
