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
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import ResourceLimitError
from veilgraph.ir.party import ops
from veilgraph.ir.party.legality import odd_draw
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.ops import Holds
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.roles import Collusion
from veilgraph.passes import _native as native
from veilgraph.passes._native import Dependencies, Witnesses
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.sums import Sum, Sums
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


@dataclass(frozen=True)
class Claim:
    """What is to be hidden: a message, or a masked value of which messages carry bits."""

    messages: tuple[int, ...]
    value: int  # the node of which it is: `_View.depends` has what it depends on
    witnesses: tuple[int, ...]  # draws that hide it


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
    view = _View(schedule, frozenset(coalition), sums or Sums(schedule.program))
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
        self.hidden = [not (d.holders & coalition) for d in self.program.draws]
        self.trees = TreeRoots(schedule, self.walks, self.hidden)
        # Of a draw's number, if it is hidden: bit 0 is that of what others hold.
        self.bit = list(accumulate(self.hidden, initial=1))
        self.depends = self._dependencies()
        self.determined = self._determined()

    def _dependencies(self) -> Dependencies:
        """Of each node the hidden draws that are in it, by their bits, and whether others' inputs
        or weights are.
        """
        columns = self.schedule.columns
        source = np.full(len(columns), -1, np.int32)
        draws = columns.rows_of(ops.DRAW)
        hidden = np.array(self.hidden, bool)[columns.number[draws]]
        source[draws[hidden]] = np.array(self.bit, np.int32)[columns.number[draws[hidden]]]
        secrets = columns.rows_of(*(op for op in ops.ALL if op.masking.holds is Holds.SECRET))
        source[secrets[~np.isin(columns.party[secrets], list(self.coalition))]] = 0
        try:
            return Dependencies(source, self.bit[-1] + 1, columns.first, columns.args, MOST_WORDS)
        except ValueError as error:
            reason = "its program has more nodes and draws than a host checks"
            raise TooManyDraws(reason) from error

    def _appears(self, claim: Claim) -> npt.NDArray[np.uint8]:
        """Of each hidden draw, whether the claim depends on it."""
        return np.unpackbits(self.depends.words(claim.value).view(np.uint8), bitorder="little")

    def verify(self) -> None:
        claims = sorted(self._claims(), key=lambda claim: claim.messages[0])
        if not self._have_order(claims):
            self._report(self._unordered(claims))

    def _have_order(self, claims: Sequence[Claim]) -> bool:
        """Whether the claims have an order that is found at once, as in most programs."""
        bits = [self.bit[witness] for claim in claims for witness in claim.witnesses]
        return self.depends.have_order(
            np.array([claim.value for claim in claims], np.int32),
            np.cumsum([0, *(len(claim.witnesses) for claim in claims)], dtype=np.int64),
            np.array(bits, np.int32),
        )

    def _unordered(self, claims: Sequence[Claim]) -> list[Claim]:
        """The claims that are left when one after another goes whose witness is in no other."""
        counts = np.zeros(64 * (self.bit[-1] // 64 + 1), np.int64)
        for claim in claims:
            counts += self._appears(claim)
        left, todo = dict.fromkeys(range(len(claims))), list(range(len(claims)))
        waiting: dict[int, list[int]] = {}  # claims by the bits of their witnesses
        for row, claim in enumerate(claims):
            for witness in claim.witnesses:
                waiting.setdefault(self.bit[witness], []).append(row)
        while todo:  # from the last on: a message's witness is seldom in an earlier one
            row = todo.pop()
            if row in left and any(counts[self.bit[w]] == 1 for w in claims[row].witnesses):
                del left[row]
                appears = self._appears(claims[row])
                counts -= appears
                for bit in np.flatnonzero(appears & (counts == 1)).tolist():
                    todo.extend(waiting.get(bit, ()))
        return [claims[row] for row in left]

    def _report(self, unhidden: list[Claim]) -> None:
        if unhidden:
            node = self.program.nodes[unhidden[0].messages[0]]
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

    def _claims(self) -> list[Claim]:
        whole: list[Claim] = []
        parts: dict[tuple[object, ...], list[int]] = {}
        sources: dict[tuple[object, ...], Node] = {}
        told: set[int] = set()
        todo = [(i, self._original(i)) for i in reversed(self.received) if i not in self.determined]
        met: set[tuple[int, int]] = set()
        phases = self.schedule.columns.phase.data
        while todo:
            i, value = todo.pop()
            if (value, phases[i]) in met:  # the same thing to hide, of an earlier message
                continue
            met.add((value, phases[i]))
            witnesses = self._witnesses(value, phases[i])
            source = None if witnesses else self._masked_source(self.sums.of(value))
            if source is not None:
                masked = self._without_known(self.sums.of(source.id)).key()
                parts.setdefault(masked, []).append(i)
                sources[masked] = source
            elif not witnesses and self.program.nodes[value].op.masking.of_each:
                todo.extend((i, self._original(a)) for a in self.program.nodes[value].args)
            elif not self.depends.is_empty(value) and value not in told:
                # The same value sent to two members of the coalition is one thing to hide.
                told.add(value)
                whole.append(Claim((i,), value, witnesses))
        for key, messages in parts.items():
            source = sources[key]
            whole.append(
                Claim(tuple(messages), source.id, self._witnesses(source.id, source.phase))
            )
        return whole

    def _original(self, node: int) -> int:
        """The node whose value a message is, behind any messages that brought it to the sender.

        Of a section of words, or of bits of one, the words: they are hidden as one.
        """
        source = self.walks.whole[node]
        return source if self._has_roots[source] else self.walks.passed[node]

    @cached_property
    def _has_roots(self) -> memoryview:
        """Of each node, whether it is words of trees."""
        has_roots = np.array([bool(op.masking.roots) for op in ops.ALL])
        return has_roots[self.schedule.columns.op].data

    @cached_property
    def received(self) -> dict[int, None]:
        """The messages to the coalition from outside, in order."""
        columns = self.schedule.columns
        rows = self.schedule.rows_of(ops.SEND)
        senders = columns.party[columns.args[columns.first[rows]]]
        own = list(self.coalition)
        rows = rows[np.isin(columns.party[rows], own) & ~np.isin(senders, own)]
        return dict.fromkeys(rows.tolist())

    def _without_known(self, total: Sum) -> Sum:
        known = {k: s for k, s in total.terms.items() if not self._is_known(k)}
        return Sum(known, total.by_xor)

    def _is_known(self, key: int) -> bool:
        if key < 0:
            return not self.hidden[-1 - key]
        return self.program.nodes[key].op.masking.holds is Holds.PUBLIC

    def _witnesses(self, value: int, phase: int) -> tuple[int, ...]:
        """Hidden draws that its sum has an odd number of times, and in none of its other terms: as
        wide as the value, and made as often, in setup only once.

        Of the words of a point or comparison function, its hidden roots.
        """
        if self._has_roots[value]:
            return self.trees.hiding(self.program.nodes[value], Phase(phase))
        return self._hiding.of(value, phase)

    @cached_property
    def _hiding(self) -> Witnesses:
        columns = self.schedule.columns
        draws = self.schedule.rows_of(ops.DRAW)
        makers = np.full(len(self.hidden), -1, np.int32)
        makers[columns.number[draws]] = draws
        return Witnesses(
            self.sums.native,
            self.depends,
            np.array(self.hidden, np.uint8),
            np.array(self.bit[: len(self.hidden)], np.int32),
            makers,
            columns.phase,
            np.asarray(self.walks.selected),
        )

    def _masked_source(self, total: Sum) -> Node | None:
        """The value whose bits the sum is, once what the coalition knows is taken away."""
        terms = list(self._without_known(total).terms)
        if len(terms) != 1 or terms[0] < 0:
            return None
        node = self.program.nodes[self.walks.masked[terms[0]]]
        return node if self._witnesses(node.id, node.phase) else None
