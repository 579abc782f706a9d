"""choose_protocols: of the variants of each op's protocol those that make the program cheapest.

A variant is priced by a trace of the op alone, on operands of its own shapes, rings and forms. The
program's price is made of these: rounds and products along the longest path, bytes of the busiest
link, of each round online and of the offline phase, and what a party computes for its messages.
`search.py` looks for the choice of least price.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np
from torch_mlir import ir

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import PUBLIC, SHARED, Phase
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import SecretOp
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Secrecy, Tensor
from veilgraph.passes.party.expand_protocols import (
    Choices,
    Chosen,
    is_revealed,
    only_receiver,
    truncated_as_revealed,
)
from veilgraph.passes.secret.function_protocols import operation_of
from veilgraph.passes.secret.protocols.calls import Call, Choice, Held, Operand, Traced, Traces
from veilgraph.passes.secret.protocols.costs import Communication
from veilgraph.passes.secret.protocols.problem import NEVER, Changes, Option, Problem, Waits
from veilgraph.passes.secret.protocols.search import search
from veilgraph.targets.machines import MACHINE
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Goal, Roles

MEGABYTE = 1_000_000
PARTS = 1024  # of a round's seconds, in which paths are counted where seconds are the price
SECONDS_DIGITS = 12  # behind the point: what the order of a sum leaves as it is


@dataclass(frozen=True)
class Node:
    """An op of the program's graph: the ops that it reads, and every choice that it has.

    Inputs and outputs are nodes too, of one choice; an output has no result.
    """

    result: ir.Value | None
    before: tuple[int, ...]
    options: Sequence[tuple[Choice, Traced]]
    kind: tuple[object, ...] = ()


@dataclass(frozen=True)
class ChooseProtocols:
    """Takes the protocols by which a program is cheapest.

    In suite rep3, on `wan`, three programs of a ReLU between products::

        %2 = truncate_relu %1  100 elements         compare=tree
        %2 = truncate_relu %1  10000 elements       compare=table
        %2 = truncate_relu %1  300000 elements      compare=merges

    Variants that promise less of roundings than the suite's first one are never taken unless the
    target names them, and neither are those that need what the target does not have.

    Attributes:
        goal: by what protocols are chosen.
        count_offline: whether the offline phase is part of the price; else it is prepared ahead.
        most_store: bytes that an inference prepared ahead may take in a party's store; None: any.
        roles: whether parties rotate through the roles of protocols.
        states: of each state, the output that it is in the next run.
    """

    target: Target
    goal: Goal = Goal.AUTO
    count_offline: bool = True
    most_store: int | None = None
    roles: Roles = Roles.AUTO
    states: Mapping[str, str] = field(default_factory=dict)

    def run(self, program: SecretProgram) -> Choices:
        """The choice of each op, and of roles; the suite's own where there is none.

        Raises:
            UsageError: a protocol that was chosen by hand, and does not take an op's ring; or a
                limit of the store that no choice holds.
            UnsupportedError: an op that the suite has no protocol for.
        """
        names = self.target.suite.protocols
        rotations = self._rotations()
        is_free = any(len(self.target.variants(name)) > 1 for name in names)
        if not self.target.protocols and not is_free and len(rotations) == 1:
            return Choices(rotates=rotations[0])
        graphs = {rotates: self.nodes(program, rotates) for rotates in rotations}
        best = {rotates: self._searched(nodes) for rotates, nodes in graphs.items()}
        rotates = min(rotations, key=lambda each: self._price(graphs[each], best[each]))
        return Choices(self._told(graphs[rotates], best[rotates]), rotates)

    def _rotations(self) -> list[bool]:
        """Whether roles may rotate; of two choices that cost the same the first is taken."""
        if self.target.suite.rotates_from is None or self.roles is Roles.ROTATED:
            return [True]
        return [False] if self.roles is Roles.FIXED else [True, False]

    def _price(self, nodes: Sequence[Node], choice: Sequence[int]) -> tuple[float, float]:
        """By the goal: rounds of one search are not as dear as those of another."""
        problem = self.problem(nodes)
        row = np.array([choice], np.int64)
        rounds, price = float(problem.rounds(row)[0]), float(problem.price(row)[0])
        own = price - rounds * problem.round_price
        return (rounds, own) if self.goal is Goal.FEWEST_ROUNDS else (price, rounds)

    def _told(self, nodes: Sequence[Node], best: Sequence[int]) -> dict[ir.Value, Chosen]:
        """Each op's choice, and the seconds that its next best would have taken more."""
        seconds = replace(self, goal=Goal.AUTO, most_store=None).problem(nodes)
        others = Changes.of(
            ([i], number)
            for i in seconds.free.tolist()
            for number in range(len(seconds.options[i]))
            if number != best[i]
        )
        own = float(seconds.price(np.array([best], np.int64))[0])
        prices: dict[int, dict[int, float]] = {}
        found = (others.ops.tolist(), others.numbers.tolist(), seconds.changed(best, others))
        for i, number, price in zip(*found, strict=True):
            prices.setdefault(i, {})[number] = float(price) - own
        return {
            node.result: Chosen(
                node.options[best[i]][0], *_next_best(node, best[i], prices.get(i, {}))
            )
            for i, node in enumerate(nodes)
            if node.result is not None
        }

    def nodes(self, program: SecretProgram, rotates: bool) -> list[Node]:
        """Every input, op and output, in the program's order.

        Args:
            rotates: whether parties rotate through roles.
        """
        receiver = only_receiver(program, self.target, self.states)
        truncated = dict(truncated_as_revealed(program, self.target, self.states))
        traces = Traces(self.target, rotates, receiver)
        graph = _Graph(traces, truncated, multiplied(program))
        for value, argument in zip(program.block.arguments, program.arguments, strict=True):
            graph.add_argument(value, argument)
        for op in program.operations:
            if op.operation.name != "secret.constant":
                graph.add(op)
        for name, value in program.outputs.items():
            if is_revealed(name, self.states, self.target):
                for who in self.target.receiver(name):
                    graph.add_output(value, who)
        return graph.nodes

    def _searched(self, nodes: Sequence[Node]) -> Sequence[int]:
        problem = self.problem(nodes)
        try:
            return search(problem)
        except ValueError as error:
            raise UsageError(
                f"An inference takes {problem.least_store / MEGABYTE:.3g} MB in a store at least, "
                f"and {(self.most_store or 0) / MEGABYTE:.3g} MB are allowed.",
                "Allow more with --most-store, or leave it out.",
            ) from error

    def problem(self, nodes: Sequence[Node]) -> Problem:
        """The search for a choice: what a round costs, and the ops that may change together."""
        # Calls of one kind have one list of choices, and here one list of options.
        made = {
            id(each): [self.option(traced) for _, traced in each]
            for each in {id(node.options): node.options for node in nodes}.values()
        }
        options = [made[id(node.options)] for node in nodes]
        kinds: dict[tuple[object, ...], list[int]] = {}
        for i, node in enumerate(nodes):
            if len(node.options) > 1:
                kinds.setdefault(node.kind, []).append(i)
        largest = (max(o.own_price for o in each) for each in options)
        round_price = {
            Goal.AUTO: self._part,
            Goal.LEAST_BYTES: 1e-6,  # of a byte: it decides between choices that send the same
            Goal.FEWEST_ROUNDS: 1 + sum(largest),
        }[self.goal]
        before = [node.before for node in nodes]
        return Problem(before, options, round_price, list(kinds.values()), self.most_store)

    def option(self, traced: Traced) -> Option:
        """A trace as the search sees it."""
        sent = traced.sent
        phases = (Phase.OFFLINE, Phase.ONLINE) if self.count_offline else (Phase.ONLINE,)
        dealt = sent.received_by(Phase.OFFLINE)
        stored = max(dealt.values(), default=0)
        if self.goal is not Goal.AUTO:
            price = sum(sent.bits.get(phase, 0) for phase in phases) / 8
            return Option(sent.waits, price, stored)
        network, parties = self.target.network, range(len(self.target.everyone))
        told, dealing = sent.sent_by(Phase.ONLINE), sent.sent_by(Phase.OFFLINE)
        loads = [[network.seconds(0, sent.busiest_bytes)]]
        if self.count_offline:
            links = ((Phase.OFFLINE, *link) for link in permutations(parties, 2))
            loads.append([network.seconds(0, sent.links.get(link, 0)) for link in links])
        loads.append([MACHINE.answering(told[i], dealt[i], sent.planes.get(i, 0)) for i in parties])
        if self.count_offline:
            made = (MACHINE.dealing(dealing[i], dealt[i]) for i in parties)
            products = (sent.multiplying.get((Phase.OFFLINE, i), 0.0) for i in parties)
            loads.append([*map(sum, zip(made, products, strict=True))])
        own = tuple(tuple(each) for each in loads if each)
        return Option(self._waits(sent), 0.0, stored, own)

    @property
    def _part(self) -> float:
        """Seconds of a part of a round."""
        return MACHINE.round_on(self.target.network) / PARTS

    def _waits(self, sent: Communication) -> Waits:
        """In parts of a round, what a party multiplies counted: others may wait for it."""
        more = [
            round(sent.multiplying.get((Phase.ONLINE, i), 0.0) / self._part)
            for i in range(len(sent.waits))
        ]
        return tuple(
            tuple(NEVER if n < 0 else PARTS * n + more[j] for j, n in enumerate(row))
            for row in sent.waits
        )


def multiplied(program: SecretProgram) -> set[ir.Value]:
    """The values that products of secrets read, or linear maps of them."""
    found: set[ir.Value] = set()
    for op in reversed(program.operations):
        secret = [v for v in op.operation.operands if _is_secret(v)]
        is_product = isinstance(op, secret_ops.Mul) and len(secret) == 2
        is_mapped = op.facts.keeps_ring or isinstance(op, secret_ops.Reduce)
        if is_product or (is_mapped and op.operation.results[0] in found):
            found.update(secret)
    return found


def _is_secret(value: ir.Value) -> bool:
    return Tensor.of(value).encoding.secrecy is Secrecy.SECRET


class _Graph:
    """The nodes of a program.

    Attributes:
        truncated: what is truncated as it is revealed, and is no node of its own.
        multiplied: what products of secrets read.
    """

    def __init__(
        self,
        traces: Traces,
        truncated: Mapping[ir.Value, SecretOp],
        multiplied: Collection[ir.Value],
    ) -> None:
        self.traces = traces
        self.multiplied = multiplied
        self.truncated = truncated
        self.nodes: list[Node] = []
        self.arguments: dict[ir.Value, Argument] = {}
        self.made: dict[ir.Value, int] = {}  # by which node
        self.held: dict[ir.Value, Held] = {}  # of what was computed

    def add_argument(self, value: ir.Value, argument: Argument) -> None:
        """A node for what is shared online, by one who has it."""
        self.arguments[value] = argument
        is_told = argument.is_input and not argument.is_given_by_all
        if is_told and argument.owner not in (PUBLIC, SHARED):
            self.made[value] = len(self.nodes)
            self.nodes.append(Node(value, (), [({}, self.traces.shared(argument))]))

    def add(self, op: SecretOp) -> None:
        result, values = op.operation.results[0], list(op.operation.operands)
        if result in self.truncated:
            return
        operands = tuple(map(self._operand, values))
        call = Call.of(op, operands, result in self.multiplied)
        options = self.traces.options(call)
        self.made[result], self.held[result] = len(self.nodes), options[0][1].held
        self.nodes.append(Node(result, self._before(values), options, call.kind))

    def add_output(self, value: ir.Value, who: str) -> None:
        op = self.truncated.get(value)
        read = value if op is None else op.operation.operands[0]
        if read not in self.made:  # public, or a weight
            return
        truncation = None if op is None else operation_of(op)
        traced = self.traces.revealed(self._operand(read), who, truncation)
        self.nodes.append(Node(None, self._before([read]), [({}, traced)]))

    def _operand(self, value: ir.Value) -> Operand:
        tensor, argument = Tensor.of(value), self.arguments.get(value)
        if argument is None:
            return Operand(tensor, held=self.held.get(value))
        return Operand(tensor, argument.role, argument.owner)

    def _before(self, values: Sequence[ir.Value]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.made[v] for v in values if v in self.made))


def _next_best(node: Node, taken: int, more: Mapping[int, float]) -> tuple[str, float]:
    """The protocol of an op that would cost least more, and how much.

    Args:
        more: what each of its other options would cost more.
    """
    if not more:
        return "", 0.0
    next_best = min(more, key=lambda number: more[number])
    choice, own = node.options[next_best][0], node.options[taken][0]
    told = ", ".join(
        f"{name}={variant.name}"
        for name, variant in choice.items()
        if name not in own or own[name] is not variant
    )
    return told, round(more[next_best], SECONDS_DIGITS)
