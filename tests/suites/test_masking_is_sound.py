"""What verify_masking accepts says no more than its outputs: random programs in a tiny ring, views
enumerated.

Most random programs are refused, some though they leak nothing: only the other way round matters.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from views import ENUMERATED_BITS, Array, as_numbers, every_draw, unknown_bits

from veilgraph.ir.meaning.party import evaluate
from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Program, Value, apply, join, select, stack
from veilgraph.ir.types import Kind, Type, planes, words
from veilgraph.passes.party.batch_rounds import Schedule, batch_rounds
from veilgraph.passes.party.verify_masking import MaskingError, verify_view

RING = words(2)
CURIOUS = 1
HOLDERS = ((0,), (2,), (0, 2), (0, 1), (1, 2))
Rows = npt.NDArray[np.uint8]


class TinyProgram:
    """Secrets of party 0, draws, and messages to party 1, most of them under some draw."""

    def __init__(self, choices: random.Random, elements: int) -> None:
        self.choices = choices
        self.shape = (elements,)
        self.program = Program(("alice", "bob", "carol"))
        self.values = [self.program.source("input", n, 0, self.shape, RING) for n in "xy"]
        self.messages: list[Value] = []
        self.revealed: list[Value] = []
        self.most_draws = choices.choice((1, 1, 2, 3, 9))  # with few, masks meet
        self.masked = choices.choice((0.1, 0.6))  # how often a message gets another mask

    def grow(self, steps: int) -> Schedule:
        self._draw()
        for _ in range(steps):
            self.choices.choice((self._draw, self._operate, self._combine, self._send))()
        for _ in range(self.choices.randrange(3)):
            self._send()
        for number, message in enumerate(self.messages):
            value = message if message.type.kind is Kind.WORDS else message.to_words(2)
            self.program.output((value * value).only(CURIOUS), CURIOUS, f"seen{number}", 0)
        self._outputs()
        return batch_rounds(self.program)

    def _outputs(self) -> None:
        """Sums of what is revealed, sometimes with what bob has."""
        if self.revealed:
            total = self.revealed[0]
            for value in self.revealed[1:]:
                total = total + value if self.choices.random() < 0.7 else total - value
            self.program.output(total.only(CURIOUS), CURIOUS, "sum", 0)
            if self.choices.random() < 0.2:
                self.program.output(self.revealed[-1].only(CURIOUS), CURIOUS, "again", 0)

    def _pick(self, want: Callable[[Value], bool] = lambda v: True) -> Value | None:
        found = [v for v in self.values if want(v)]
        return self.choices.choice(found[-8:]) if found else None

    def _draw(self) -> None:
        if len(self.program.draws) >= self.most_draws:
            return
        type: Type = self.choices.choice((RING, RING, planes(1), planes(2), words(1)))
        self.values.append(self.program.draw(self.choices.choice(HOLDERS), self.shape, type))

    def _like(self, x: Value) -> Value:
        """Of the same type, at someone who has x: another value or a fresh draw."""
        other = self._pick(lambda v: v.type == x.type and bool(v.at.keys() & x.at.keys()))
        full = len(self.program.draws) >= self.most_draws
        if other is not None and (full or self.choices.random() < 0.7):
            return other
        holder = self.choices.choice(sorted(x.at))
        fitting = [h for h in HOLDERS if holder in h]
        made = self.program.draw(self.choices.choice(fitting), self.shape, x.type)
        self.values.append(made)
        return made

    def _operate(self) -> None:
        x = self._pick()
        if x is None:
            return
        y = self._like(x)
        if x.type.kind is Kind.PLANES:
            made = [x ^ y, x ^ y, x & y, ~x, x.plane(0, 1), x.to_words(2)]
            if x.type.bits == 1:
                made.append(stack([x, y]))
        else:
            made = [x + y, x + y, x - y, y - x, x * y, x ^ y, -x, x * 3, x + 1, x >> 1, x << 1]
            made += [x.bits(0, x.type.bits)] * 3
            made += [x.bits(0, 1), x.bits(x.type.bits - 1, 1), x.mod(1), x.mod(2).mod(1)]
            bit = self._pick(lambda v: v.type == planes(1) and bool(v.at.keys() & x.at.keys()))
            if bit is not None and bit.at.keys() & x.at.keys() & y.at.keys():
                made.append(select(bit, x, y))
        self.values.append(self.choices.choice(made))

    def _combine(self) -> None:
        """A sum or difference of a few things that one party has, sometimes again and again."""
        x = self._pick()
        if x is None:
            return
        total = x
        for _ in range(self.choices.randint(1, 4)):
            y = self._like(total)
            if total.type.kind is Kind.PLANES:
                total = total ^ y
            else:
                total = self.choices.choice((total + y, total + y, total - y, total ^ y))
        if total.type == RING and self.choices.random() < 0.5:
            total = total.bits(0, 2)
        self.values.append(total)

    def _send(self) -> None:
        x = self._pick(lambda v: CURIOUS not in v.at)
        if x is None:
            return
        if self.choices.random() < self.masked:
            y = self._like(x)
            x = x ^ y if x.type.kind is Kind.PLANES else x + y
        if CURIOUS in x.at:
            return
        reveals = x.type == RING and self.choices.random() < 0.15
        declared = "reveal" if reveals else ""
        sent = self.program.send(x, self.choices.choice(sorted(x.at)), CURIOUS, declared)
        (self.revealed if reveals else self.messages).append(sent)


@dataclass
class Seen:
    """All runs of one secret, a row each: what should be uniform, bob's outputs, and what these
    determine."""

    uniform: Rows
    outputs: Rows
    determined: Rows


def seen(schedule: Schedule, determined: Set[int], elements: int) -> Iterator[Seen]:
    """What bob sees for each secret, under every choice of the draws that he does not know."""
    program, live = schedule.program, set(schedule.live)
    for secret in range(16):
        sources = {"x": np.full(elements, secret % 4), "y": np.full(elements, secret // 4)}
        done = evaluate(program, sources, every_draw(schedule, (CURIOUS,), 1))
        messages = [n for n, _ in done.received.get(CURIOUS, []) if n.id in live]
        told = {n.id: as_numbers(done.values[n.id], n.type) for n in messages}
        own = [v for (_, name), v in sorted(done.outputs.items()) if "seen" not in name]
        yield Seen(
            rows(elements, [v for i, v in told.items() if i not in determined]),
            rows(elements, own),
            rows(elements, [v for i, v in told.items() if i in determined]),
        )


def rows(elements: int, columns: Sequence[Array]) -> Rows:
    """A row for each run; one column more, so that there is one."""
    return np.column_stack([np.zeros(elements, np.uint8), *(c.astype(np.uint8) for c in columns)])


def says_no_more_than_outputs(runs: Sequence[Seen]) -> bool:
    """The undetermined messages are as likely for each secret, and with the outputs say the rest.

    Outputs may depend on draws: then on the same ones, for whoever is told the same messages.
    """
    views = [np.unique(run.uniform, axis=0, return_counts=True) for run in runs]
    if not all(np.array_equal(a, b) for view in views for a, b in zip(view, views[0], strict=True)):
        return False
    told = np.concatenate([np.hstack((run.uniform, run.outputs)) for run in runs])
    both = np.hstack((told, np.concatenate([run.determined for run in runs])))
    return len(np.unique(told, axis=0)) == len(np.unique(both, axis=0))


def is_sound(seed: int | random.Random, steps: int) -> bool | None:
    """Whether what is accepted says no more than its outputs; None: refused, or too large."""
    state = seed if isinstance(seed, random.Random) else random.Random(seed)
    first = state.randrange(1 << 62)

    def build(elements: int) -> Schedule:
        return TinyProgram(random.Random(first), elements).grow(steps)

    schedule = build(1)
    try:
        determined = verify_view(schedule, (CURIOUS,))
    except MaskingError:
        return None
    bits = unknown_bits(schedule, (CURIOUS,))
    if bits > min(12, ENUMERATED_BITS):
        return None
    return says_no_more_than_outputs(list(seen(build(1 << bits), determined, 1 << bits)))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(2, 14))
def test_accepted_programs_say_no_more_than_their_outputs(seed: int, steps: int) -> None:
    assert is_sound(seed, steps) is not False


def test_it_is_no_test_of_nothing() -> None:
    """A fair share of the random programs is accepted with messages to judge."""
    judged = [is_sound(seed, 8) for seed in range(300)]
    assert sum(found is True for found in judged) >= 20


# Masks of elements that move: runs are not elements here, so each choice of the draws is one run


class MovingProgram:
    """Two secret bits of party 0, draws, and vectors of them that are cut, joined and turned."""

    def __init__(self, choices: random.Random) -> None:
        self.choices = choices
        self.program = Program(("alice", "bob"))
        self.values = [self.program.source("input", "x", 0, (2,), words(1))]
        for _ in range(choices.choice((1, 2, 2))):
            elements = choices.choice((2, 2, 3, 4))
            self.values.append(self.program.draw((0,), (elements,), words(1)))

    def grow(self, steps: int) -> Schedule:
        for _ in range(steps):
            self.values.append(
                self.choices.choice((self._cut, self._join, self._turn, self._add))()
            )
        for number in range(self.choices.randint(1, 3)):
            value = self.choices.choice(self.values[-5:])
            sent = self.program.send(value, 0, CURIOUS)
            self.program.output((sent * sent).only(CURIOUS), CURIOUS, f"seen{number}", 0)
        return batch_rounds(self.program)

    def _cut(self) -> Value:
        x = self.choices.choice(self.values)
        if self.choices.random() < 0.5:
            return x.chunk(self.choices.randrange(x.elements - 1), 2)
        attrs = {"starts": (0,), "steps": (2,)}
        return (
            apply(ops.SLICE, (x,), (-(-x.elements // 2),), x.type, **attrs) if x.elements > 2 else x
        )

    def _join(self) -> Value:
        x, y = (self.choices.choice(self.values) for _ in "ab")
        return join([x, y], (x.elements + y.elements,)) if x.elements + y.elements < 7 else x

    def _turn(self) -> Value:
        x = self.choices.choice([v for v in self.values if v.elements == 4] or self.values)
        if x.elements != 4:
            return -x
        turned = apply(ops.TRANSPOSE, (x.reshape((2, 2)),), (2, 2), x.type, permutation=(1, 0))
        return turned.reshape((4,))

    def _add(self) -> Value:
        x = self.choices.choice(self.values)
        y = self.choices.choice([v for v in self.values if v.shape == x.shape])
        return self.choices.choice((x + y, x + y, x ^ y, x + y * 3))


def hides_moved(seed: int) -> bool | None:
    schedule = MovingProgram(random.Random(seed)).grow(6)
    try:
        verify_view(schedule, (CURIOUS,))
    except MaskingError:
        return None
    program = schedule.program
    sizes = [
        next(n.elements for n in program.nodes if n.op is ops.DRAW and n["number"] == d.number)
        for d in program.draws
    ]
    if sum(sizes) > 6:
        return None
    found = []
    for secret in range(4):
        views = []
        for choice in itertools.product((0, 1), repeat=sum(sizes)):
            made = np.split(np.array(choice, np.uint64), np.cumsum(sizes)[:-1])
            x = np.array([secret % 2, secret // 2])
            done = evaluate(program, {"x": x}, lambda d, shape, type, made=made: made[d.number])
            views.append(b"".join(v.tobytes() for _, v in done.received.get(CURIOUS, [])))
        found.append(sorted(views))
    return all(view == found[0] for view in found)


def test_masks_of_moved_elements_hide() -> None:
    judged = [hides_moved(seed) for seed in range(400)]
    assert False not in judged
    assert judged.count(True) >= 40
