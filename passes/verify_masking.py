"""verify_masking: every message hides what it carries, or the plan is not emitted.

For each coalition that the suite protects against, each message to it from outside needs a
**witness**: a draw that the coalition does not know and that is added (or XORed) to the rest of
the message, which does not depend on it. Bits of a value that is so masked need no other witness
than the value's. The messages must have an order in which each one's witness appears in none
before it: then the map from witnesses to messages is triangular, and what the coalition sees is
uniform whatever the secrets are. A draw of the setup is the same in every inference, and hides
nothing that is sent in one. An output that is a sum of what its receiver holds and of revealed
messages determines one of them, which needs no witness: it says nothing that the output does not.
Of a weight that was dealt before the session a coalition has to lack a part: the parts are as many
uniform numbers but one, and nothing else says what they are.

    accepted:  %3 = draw @alice @bob   %4 = add %1 %3   send %4 @carol
    refused:   send %1 @carol          (a share of a product without its zero sharing)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import Node, Program
from veilgraph.ir.plan import Phase
from veilgraph.ir.types import Kind
from veilgraph.passes.batch_rounds import Schedule
from veilgraph.targets.target import Target

# How operands count in a sum, of words and of bits: XOR of words would not be a sum.
SIGNS: dict[Kind, dict[str, tuple[int, ...]]] = {
    Kind.WORDS: {"add": (1, 1), "sub": (1, -1), "neg": (-1,)},
    Kind.PLANES: {"xor": (1, 1)},
}
SAME = frozenset(("send", "reshape"))
MOST_TERMS = 64  # a longer sum is left as it is: its deeper draws are no witnesses of this message


def coalitions(target: Target) -> list[tuple[int, ...]]:
    """The sets of parties that the suite protects against, smaller ones too.

    A coalition may see what its own members' secrets explain; fewer of them must not see as much.
    """
    count = len(target.parties)
    sizes = range(1, target.coalition + 1)
    dealer = [(count,)] if target.dealer else []
    return [*(c for n in sizes for c in combinations(range(count), n)), *dealer]


class MaskingError(AssertionError):
    """A message that no draw hides, or a weight that no part does: a bug in a protocol. Nothing is
    emitted."""


@dataclass(frozen=True)
class Claim:
    """What is to be hidden: a message, or a masked value of which messages carry bits."""

    messages: tuple[int, ...]
    depends: int  # bit set of draws that the coalition does not know, as `_View.bit` numbers them
    witnesses: tuple[int, ...]  # draws that hide it


@dataclass
class Sum:
    """A value as a sum: node ids, how often each is added, never zero (for bits: never even)."""

    terms: dict[int, int] = field(default_factory=dict)

    def add(self, key: int, times: int, kind: Kind) -> None:
        total = self.terms.pop(key, 0) + times
        if total % 2 if kind is Kind.PLANES else total:
            self.terms[key] = total

    def key(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(self.terms.items()))


def verify_masking(schedule: Schedule, coalitions: Iterable[Sequence[int]]) -> None:
    """Checks all messages to every coalition.

    Raises:
        MaskingError: naming the first message without a witness, and its layer; or a weight of
            which a coalition is dealt all parts.
    """
    for coalition in coalitions:
        members = frozenset(coalition)
        _verify_dealt(schedule, members)
        _View(schedule, members).verify()


def _verify_dealt(schedule: Schedule, coalition: frozenset[int]) -> None:
    """That the files of a coalition lack a part of each weight."""
    program = schedule.program
    shares = (n for n in program.nodes if n.op == "share" and n.party in coalition)
    parts: dict[str, set[int]] = {}
    for node in shares:
        held = parts.setdefault(node["name"], set())
        held.add(node["part"])
        if len(held) >= node["of"]:
            names = ", ".join(program.parties[i] for i in sorted(coalition))
            raise MaskingError(f"weight {node['name']!r} is not hidden from {names}")


def _union(a: int, b: int) -> int:
    """a | b, one of them itself where it has all."""
    if not b or a is b:
        return a
    both = a | b
    if both == a:
        return a
    return b if both == b else both


class _View:
    """What one coalition sees."""

    def __init__(self, schedule: Schedule, coalition: frozenset[int]) -> None:
        self.program: Program = schedule.program
        self.schedule = schedule
        self.coalition = coalition
        self.hidden = [not (d.holders & coalition) for d in self.program.draws]
        self.bit = list(accumulate(self.hidden, initial=0))  # of a draw's number, if it is hidden
        self.depends = self._dependencies()

    def _dependencies(self) -> list[int]:
        """Of each node, the hidden draws as a bit set.

        Nodes that depend on the same ones share a set: a large program has hundreds of thousands
        of nodes, and tens of thousands of draws.
        """
        depends = [0] * len(self.program.nodes)
        for i in self.schedule.live:
            node = self.program.nodes[i]
            if node.op == "draw" and self.hidden[node["number"]]:
                depends[i] = 1 << self.bit[node["number"]]
            for arg in node.args:
                depends[i] = _union(depends[i], depends[arg])
        return depends

    def _appears(self, claim: Claim) -> npt.NDArray[np.uint8]:
        """Of each hidden draw, whether the claim depends on it."""
        size = self.bit[-1] // 8 + 1
        packed = np.frombuffer(claim.depends.to_bytes(size, "little"), np.uint8)
        return np.unpackbits(packed, bitorder="little")

    def verify(self) -> None:
        claims = self._claims()
        counts = np.zeros(8 * (self.bit[-1] // 8 + 1), np.int64)
        for claim in claims:
            counts += self._appears(claim)
        left, before = list(range(len(claims))), -1
        while left and len(left) != before:
            before, kept = len(left), []
            # From the last on: a message's witness is seldom in an earlier one.
            for row in reversed(left):
                if any(counts[self.bit[w]] == 1 for w in claims[row].witnesses):
                    counts -= self._appears(claims[row])
                else:
                    kept.append(row)
            left = kept[::-1]
        self._report([claims[row] for row in left])

    def _report(self, unhidden: list[Claim]) -> None:
        if unhidden:
            node = self.program.nodes[unhidden[0].messages[0]]
            names = ", ".join(self.program.parties[i] for i in sorted(self.coalition))
            layer = self.program.layers[node.layer]
            raise MaskingError(f"message %{node.id} of layer {layer!r} is not hidden from {names}")

    def _determined(self) -> frozenset[int]:
        """For each output to the coalition, the last revealed message that no other output has."""
        nodes = self.program.nodes
        later: set[int] = set()
        sums = []
        for i in self.schedule.live:
            if self._is_reveal(i) or not later.isdisjoint(nodes[i].args):
                later.add(i)
            if nodes[i].op == "output" and nodes[i].party in self.coalition:
                terms = self._sum(nodes[i].args[0], behind_messages=False).terms
                revealed = [key for key in terms if key in later]
                if all(self._is_reveal(key) for key in revealed):
                    sums.append(
                        {k for k in revealed if terms[k] % 2 and nodes[k].type == nodes[i].type}
                    )
        counts = Counter(key for revealed in sums for key in revealed)
        alone = ([key for key in revealed if counts[key] == 1] for revealed in sums)
        return frozenset(max(keys) for keys in alone if keys)

    def _is_reveal(self, i: int) -> bool:
        node = self.program.nodes[i]
        return self._is_received(node) and node["declared"] == "reveal"

    # Claims

    def _claims(self) -> list[Claim]:
        whole: list[Claim] = []
        parts: dict[tuple[tuple[int, int], ...], list[int]] = {}
        sums: dict[tuple[tuple[int, int], ...], tuple[Node, Sum]] = {}
        determined = self._determined()
        told: set[int] = set()
        for i in self.schedule.live:
            node = self.program.nodes[i]
            if i in determined or not self._is_received(node):
                continue
            total = self._sum(node.args[0])
            witnesses = self._witnesses(node, total)
            source = None if witnesses else self._masked_source(total)
            if source is not None:
                masked = self._without_known(self._sum(source.id))
                parts.setdefault(masked.key(), []).append(i)
                sums[masked.key()] = source, masked
            elif self._original(node) not in told:
                # The same value sent to two members of the coalition is one thing to hide.
                told.add(self._original(node))
                whole.append(Claim((i,), self.depends[i], witnesses))
        for key, messages in parts.items():
            source, masked = sums[key]
            witnesses = self._witnesses(source, masked)
            whole.append(Claim(tuple(messages), self.depends[source.id], witnesses))
        return whole

    def _original(self, node: Node) -> int:
        """The node whose value a message is, behind any messages that brought it to the sender."""
        while node.op == "send":
            node = self.program.nodes[node.args[0]]
        return node.id

    def _is_received(self, node: Node) -> bool:
        if node.op != "send" or node.party not in self.coalition:
            return False
        return self.program.nodes[node.args[0]].party not in self.coalition

    def _sum(self, start: int, behind_messages: bool = True) -> Sum:
        """`start` as a sum of values and draws; a message as what was sent, or as it is."""
        total = Sum()
        todo = [(start, 1)]
        steps = 0
        while todo:
            i, sign = todo.pop()
            node = self.program.nodes[i]
            steps += 1
            signs = SIGNS[node.type.kind].get(node.op)
            if node.op == "send" and not behind_messages:
                total.add(i, sign, node.type.kind)
            elif steps < MOST_TERMS and self._is_transparent(node):
                todo.append((node.args[0], sign))
            elif steps < MOST_TERMS and signs and all(self._same_size(node, a) for a in node.args):
                todo.extend((a, sign * s) for a, s in zip(node.args, signs, strict=True))
            else:
                total.add(self._canonical(node), sign, node.type.kind)
        return total

    def _is_transparent(self, node: Node) -> bool:
        """A value read as it is: passed on, or reduced to fewer bits."""
        if node.op == "cast":
            return node.type.bits <= self.program.nodes[node.args[0]].type.bits
        return node.op in SAME

    def _same_size(self, node: Node, arg: int) -> bool:
        operand = self.program.nodes[arg]
        return operand.elements == node.elements or operand.op == "const"

    def _canonical(self, node: Node) -> int:
        """One id for the copies of a draw: minus its number, minus one."""
        return -1 - int(node["number"]) if node.op == "draw" else node.id

    def _without_known(self, total: Sum) -> Sum:
        return Sum({key: s for key, s in total.terms.items() if not self._is_known(key)})

    def _is_known(self, key: int) -> bool:
        if key < 0:
            return not self.hidden[-1 - key]
        return self.program.nodes[key].op in ("const", "constant")

    def _witnesses(self, value: Node, total: Sum) -> tuple[int, ...]:
        """Hidden draws that the sum has an odd number of times, and in none of its other terms."""
        found = []
        for key, times in total.terms.items():
            if key >= 0 or times % 2 == 0 or not self.hidden[-1 - key]:
                continue
            draw = -1 - key
            others = (t for t in total.terms if t >= 0)
            bit = self.bit[draw]
            if self._covers(draw, value) and not any(self.depends[t] >> bit & 1 for t in others):
                found.append(draw)
        return tuple(found)

    def _covers(self, draw: int, value: Node) -> bool:
        """Whether the draw is as wide as the value, and made as often: in setup, only once."""
        node = self._draw_nodes()[draw]
        if node.phase == Phase.SETUP < value.phase:
            return False
        wide = node.type.bits >= value.type.bits
        if value.type.kind is Kind.PLANES:
            wide = node.type.bits == value.type.bits
        return node.type.kind is value.type.kind and wide and node.elements == value.elements

    def _draw_nodes(self) -> dict[int, Node]:
        if not hasattr(self, "_by_number"):
            nodes = (self.program.nodes[i] for i in self.schedule.live)
            self._by_number = {n["number"]: n for n in nodes if n.op == "draw"}
        return self._by_number

    def _masked_source(self, total: Sum) -> Node | None:
        """The value whose bits the sum is, once what the coalition knows is taken away."""
        terms = list(self._without_known(total).terms)
        if len(terms) != 1 or terms[0] < 0:
            return None
        node = self.program.nodes[terms[0]]
        while node.op in ("pack", "planes", "shr", "not", "unpack", "cast", *SAME):
            node = self.program.nodes[node.args[0]]
        masked = self._without_known(self._sum(node.id))
        return node if self._witnesses(node, masked) else None
