"""What a coalition sees of a protocol, and whether it depends on the secrets.

Exactly, where the draws that the coalition doesn't know can be enumerated; else by statistics of
two samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from conformance import Setting

from veilgraph.ir.meaning.party import DrawSource, Evaluation, evaluate, uniform_draws
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Draw, Shape
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind, Type, words
from veilgraph.passes.party.batch_rounds import Schedule, batch_rounds
from veilgraph.targets.parties import Form, Parties, Sharing

Array = npt.NDArray[Any]
Body = Callable[[Parties, int], Iterable[Value]]  # parties, elements -> what the protocol ends with

ENUMERATED_BITS = 18
TOGETHER = 1 << 14  # runs that are evaluated at once: their arrays are near the processor
SIGNIFICANCE = 1e-6
MOST_BITS = 48  # whose parities are taken by threes


@dataclass
class Protocol:
    """A protocol traced on `elements` independent runs of itself.

    Args:
        body: gets parties and the number of elements, and returns the values it ends with.
        program: what to trace into (a mutant, for instance), given the parties' names.
        constants: public tensors, by number.
    """

    setting: Setting
    body: Body
    program: Callable[[Sequence[str]], Program] = Program
    constants: Sequence[Array] = ()
    traced: dict[int, Schedule] = field(default_factory=dict)  # by elements: nothing else matters
    parts: dict[tuple[int, tuple[int, ...]], Part] = field(default_factory=dict)

    def trace(self, elements: int) -> Schedule:
        if elements not in self.traced:
            self.traced[elements] = self._trace(elements)
        return self.traced[elements]

    def seen(self, elements: int, coalition: Sequence[int]) -> Part:
        """What makes a coalition's view."""
        key = elements, tuple(coalition)
        if key not in self.parts:
            self.parts[key] = Part.seen(self.trace(elements), coalition)
        return self.parts[key]

    def _trace(self, elements: int) -> Schedule:
        program = self.program(self.setting.target.everyone)
        parties = self.setting.target.placed(program)
        for number, value in enumerate(self.body(parties, elements)):
            for party in value.at:
                program.output(needed(value), party, f"end{number}", 0)
        return batch_rounds(program)


def needed(value: Value) -> Value:
    """What makes a value needed and tells nothing simple of it: no part of a sharing is told."""
    value = value if value.type.kind is Kind.WORDS else value.to_words(value.type.bits)
    return value * value


def given(p: Parties, name: str, elements: int, bits: int, form: Form) -> Sharing:
    """A sharing that is there already: its part j is the source `name.j` of each of its holders."""
    count = len(p)

    def part(j: int, holders: Iterable[int]) -> Value:
        attrs = {"name": f"{name}.{j}"}
        shape, type = (elements,), words(bits)
        at = {
            i: p.program.node(ops.INPUT, i, (), shape, type, Phase.ONLINE, **attrs) for i in holders
        }
        return Value(p.program, at, shape, type)

    holders = [form.holders(j, count) for j in range(count)]
    return Sharing(tuple(part(j, sorted(h)) for j, h in enumerate(holders)), form)


def parts_of(
    secret: int, bits: int, form: Form, count: int, coalition: Sequence[int], seed: int
) -> list[int]:
    """Parts of a secret; those that the coalition holds depend on the seed alone.

    Of those that it doesn't hold all but one depend on the secret too.
    """
    held = {j for j in range(count) if not form.holders(j, count).isdisjoint(coalition)}
    own, others = np.random.default_rng([seed]), np.random.default_rng([seed, secret + (1 << 20)])
    parts = [int((own if j in held else others).integers(1 << bits)) for j in range(count)]
    free = max(j for j in range(count) if j not in held)
    parts[free] = (secret - sum(parts) + parts[free]) % (1 << bits)
    return parts


# Sources of randomness


def is_known(draw: Draw, coalition: Sequence[int]) -> bool:
    return not draw.holders.isdisjoint(coalition)


def draw_nodes(schedule: Schedule) -> dict[int, tuple[Draw, Type]]:
    """The draws that are made, by number."""
    program = schedule.program
    nodes = (program.nodes[i] for i in schedule.live)
    return {n["number"]: (program.draws[n["number"]], n.type) for n in nodes if n.op is ops.DRAW}


def unknown_bits(schedule: Schedule, coalition: Sequence[int]) -> int:
    """Bits of randomness, an element, that the coalition does not know."""
    made = draw_nodes(schedule).values()
    return sum(type.bits for draw, type in made if not is_known(draw, coalition))


def every_draw(
    schedule: Schedule, coalition: Sequence[int], seed: int, first: int = 0
) -> DrawSource:
    """Element i has choice `first` + i of all that is unknown; all have what is known."""
    place, places = 0, {}
    for number, (draw, type) in sorted(draw_nodes(schedule).items()):
        if not is_known(draw, coalition):
            places[number] = place
            place += type.bits

    def source(draw: Draw, shape: Shape, type: Type) -> Array:
        index = np.arange(first, first + shape[0], dtype=np.uint64)
        index = index.reshape(shape)  # rows are of one element
        if draw.number in places:
            value = index >> np.uint64(places[draw.number])
        else:
            rng = np.random.default_rng([seed, draw.number])
            value = np.full(shape, rng.integers(1 << 63), np.uint64)
        if type.kind is Kind.WORDS:
            return value & np.uint64((1 << type.bits) - 1)
        planes = [value >> np.uint64(j) & np.uint64(1) for j in range(type.bits)]
        return np.array(planes, np.uint8).reshape(type.bits, *shape)

    return source


# Views


@dataclass(frozen=True)
class Part:
    """What is computed for a view: its messages and draws, and what these are made of.

    What other parties compute between themselves, and what a protocol ends with, is left out.

    Attributes:
        messages, draws: numbers of nodes of the program.
    """

    program: Program
    messages: Sequence[int]
    draws: Sequence[int]

    @staticmethod
    def seen(schedule: Schedule, coalition: Sequence[int]) -> Part:
        """Messages to a coalition from outside, and the draws of one of its parties."""
        nodes = schedule.program.nodes
        messages = [
            i
            for i in schedule.live
            if nodes[i].op is ops.SEND
            and nodes[i].party in coalition
            and nodes[nodes[i].args[0]].party not in coalition
        ]
        draws = [
            i for i in schedule.live if nodes[i].op is ops.DRAW and nodes[i].party == min(coalition)
        ]
        needed = {*messages, *draws}
        for i in reversed(schedule.live):
            if i in needed:
                needed.update(nodes[i].args)
        place = {i: number for number, i in enumerate(sorted(needed))}
        program = Program(schedule.program.parties)
        program.draws = schedule.program.draws
        program.nodes = [
            replace(nodes[i], id=number, args=tuple(place[a] for a in nodes[i].args))
            for i, number in place.items()
        ]
        return Part(program, [place[i] for i in messages], [place[i] for i in draws])

    def received(self, evaluation: Evaluation) -> Iterator[Array]:
        """Each message as numbers (planes as the bits of one)."""
        return self._numbers(self.messages, evaluation)

    def known(self, evaluation: Evaluation) -> Iterator[Array]:
        """Each draw as numbers."""
        return self._numbers(self.draws, evaluation)

    def _numbers(self, nodes: Iterable[int], evaluation: Evaluation) -> Iterator[Array]:
        for i in nodes:
            yield as_numbers(evaluation.values[i], self.program.nodes[i].type)


def as_numbers(value: Array, type: Type) -> npt.NDArray[np.uint64]:
    if type.kind is Kind.WORDS:
        return value.astype(np.uint64).ravel()
    weights = np.uint64(1) << np.arange(type.bits, dtype=np.uint64)
    return np.tensordot(weights, value.astype(np.uint64), axes=1).ravel()


Sources = Mapping[str, Sequence[int]]  # the parts of each given sharing


def run(
    program: Program,
    elements: int,
    sources: Sources,
    draws: DrawSource,
    constants: Sequence[Array] = (),
) -> Evaluation:
    arrays = {
        f"{name}.{j}": np.full(elements, part, np.uint64)
        for name, parts in sources.items()
        for j, part in enumerate(parts)
    }
    return evaluate(program, arrays, draws, constants)


def exact_view(
    protocol: Protocol, coalition: Sequence[int], sources: Sources, seed: int
) -> npt.NDArray[np.uint64]:
    """The view for every choice of the unknown draws: a hash of each, sorted."""
    bits = unknown_bits(protocol.trace(1), coalition)
    assert bits <= ENUMERATED_BITS, f"{bits} bits to enumerate"
    size = min(1 << bits, TOGETHER)
    part = protocol.seen(size, coalition)
    digest = np.zeros(1 << bits, np.uint64)
    for first in range(0, 1 << bits, size):
        draws = every_draw(protocol.trace(size), coalition, seed, first)
        evaluation = run(part.program, size, sources, draws, protocol.constants)
        own = digest[first : first + size]
        for message in part.received(evaluation):
            own[:] = (own ^ message) * np.uint64(0x9E3779B97F4A7C15)
            own ^= own >> np.uint64(29)
    return np.sort(digest)


def sampled_view(
    protocol: Protocol, coalition: Sequence[int], sources: Sources, runs: int, seed: int
) -> tuple[list[Array], list[Array]]:
    """Messages of many runs, and what the coalition knows of the randomness."""
    draws, part = uniform_draws(np.random.default_rng(seed)), protocol.seen(runs, coalition)
    evaluation = run(part.program, runs, sources, draws, protocol.constants)
    return _columns(part.received(evaluation), runs), _columns(part.known(evaluation), runs)


def _columns(arrays: Iterable[Array], runs: int) -> list[Array]:
    """One number of each run at a time, where arrays have several."""
    return [column for array in arrays for column in array.reshape(runs, -1).T]


# Two samples of a view


class Sample:
    """Statistics of a view over many runs.

    Histograms of each message, and of its difference and XOR with every other number; and the
    parity of every three of the outermost bits of everything (of 48 of them, where more).
    """

    def __init__(self) -> None:
        self.runs = 0
        self.counts: dict[str, npt.NDArray[np.int64]] = {}
        self.parities = np.zeros(0, np.int64)

    def add(self, messages: Sequence[Array], known: Sequence[Array]) -> None:
        view = [*messages, *known]
        low = [(column & np.uint64(255)).astype(np.uint8) for column in view]
        wide = [i for i, column in enumerate(view) if column.max() > 3]
        for i in range(len(messages)):
            self._count(f"message {i}", low[i])
            for j in (j for j in wide if i in wide and j > i):
                self._count(f"{i} - {j}", low[i] - low[j])
                self._count(f"{i} ^ {j}", low[i] ^ low[j])
        outermost = [*map(_top, view), *(m & np.uint64(1) for m in messages if m.max() > 1)]
        chosen = np.random.default_rng(0).permutation(len(outermost))[:MOST_BITS]
        found = parities([outermost[i] for i in sorted(chosen)])
        self.parities = self.parities + found if self.runs else found
        self.runs += len(view[0])

    def _count(self, name: str, values: npt.NDArray[np.uint8]) -> None:
        counts = np.bincount(values, minlength=256)
        self.counts[name] = self.counts.get(name, np.zeros(256, np.int64)) + counts

    def differences(self, other: Sample) -> list[str]:
        """What is distributed differently, at 1e-6 for all tests together."""
        tests = len(self.counts) + self.parities.size
        limit = NormalDist().inv_cdf(1 - SIGNIFICANCE / tests)
        found = [n for n, c in self.counts.items() if deviation(c, other.counts[n]) > limit]
        apart = np.abs(self.parities - other.parities) / sqrt(self.runs / 2)
        return [*found, *(f"parity {i}" for i in np.flatnonzero(apart > limit))]


def _top(column: Array) -> Array:
    """The highest bit that a column ever has."""
    return column >> np.uint64(max(int(column.max()).bit_length() - 1, 0))


def parities(bits: Sequence[Array]) -> npt.NDArray[np.int64]:
    """Over runs, how often any three or fewer of the bits have an odd sum."""
    rows = np.array([*bits, bits[0] * 0], np.uint8)
    packed = np.packbits(rows, axis=1).view(np.uint64)
    pairs = np.concatenate([packed[j:] ^ packed[j] for j in range(len(packed))])
    first = np.cumsum([0, *range(len(packed), 1, -1)])  # where the pairs of each begin
    triples = (pairs[start:] ^ row for start, row in zip(first, packed, strict=True))
    return np.concatenate([np.bitwise_count(t).sum(-1, np.int64) for t in triples])


def deviation(a: Array, b: Array) -> float:
    """Chi-square of two samples of one size, as standard deviations of a normal variable.

    Wilson and Hilferty, PNAS 1931.
    """
    total = (a + b).astype(np.float64)
    seen = total > 0
    cells = int(seen.sum()) - 1
    if cells < 1:
        return 0.0
    statistic = float(((a - b)[seen] ** 2 / total[seen]).sum())
    spread = 2 / (9 * cells)
    return float(((statistic / cells) ** (1 / 3) - 1 + spread) / sqrt(spread))
