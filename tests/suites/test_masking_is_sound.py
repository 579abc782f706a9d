"""What verify_masking accepts leaks nothing: random programs in a tiny ring, views enumerated.

Most random programs are refused, some though they leak nothing: only the other way round matters.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from receivers import asked
from views import ENUMERATED_BITS, Array, every_draw, received, unknown_bits

from veilgraph.ir.meaning.party import evaluate
from veilgraph.ir.party import Program, Value, select, stack
from veilgraph.ir.types import Kind, Type, planes, words
from veilgraph.passes.batch_rounds import Schedule, batch_rounds
from veilgraph.passes.verify_masking import MaskingError, verify_masking

RING = words(2)
CURIOUS = 1
HOLDERS = ((0,), (2,), (0, 2), (0, 1), (1, 2))
Digest = npt.NDArray[np.uint64]


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


def views(build: Callable[[int], Schedule]) -> dict[bytes, list[Digest]]:
    """The exact views for all secrets, by what bob's own outputs are."""
    bits = unknown_bits(build(1), (CURIOUS,))
    schedule = build(1 << bits)
    found: dict[bytes, list[Digest]] = defaultdict(list)
    for secret in range(16):
        sources = {"x": np.full(1 << bits, secret % 4), "y": np.full(1 << bits, secret // 4)}
        done = evaluate(schedule.program, sources, every_draw(schedule, (CURIOUS,), 1))
        digest = np.zeros(1 << bits, np.uint64)
        for message in received(schedule, done, (CURIOUS,)):
            digest = (digest ^ message) * np.uint64(0x9E3779B97F4A7C15)
            digest ^= digest >> np.uint64(29)
        own = [value for (_, name), value in sorted(done.outputs.items()) if "seen" not in name]
        found[outputs_of(own)].append(np.sort(digest))
    return found


def outputs_of(values: Sequence[Array]) -> bytes:
    """Outputs as a function of the secrets; b"random" where they depend on draws."""
    if any((value != value[0]).any() for value in values):
        return b"random"
    return bytes(int(value[0]) for value in values)


def is_sound(seed: int | random.Random, steps: int) -> bool | None:
    """Whether all secrets of equal outputs give one view; None: refused, or not to be judged."""
    state = seed if isinstance(seed, random.Random) else random.Random(seed)
    first = state.randrange(1 << 62)

    def build(elements: int) -> Schedule:
        return TinyProgram(random.Random(first), elements).grow(steps)

    schedule = build(1)
    try:
        verify_masking(schedule, [(CURIOUS,)], asked(schedule.program))
    except MaskingError:
        return None
    if unknown_bits(schedule, (CURIOUS,)) > min(12, ENUMERATED_BITS):
        return None
    found = views(build)
    if b"random" in found:
        return None
    return all(np.array_equal(view, same[0]) for same in found.values() for view in same)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(2, 14))
def test_accepted_programs_leak_nothing(seed: int, steps: int) -> None:
    assert is_sound(seed, steps) is not False


def test_it_is_no_test_of_nothing() -> None:
    """A fair share of the random programs is accepted with messages to judge."""
    judged = [is_sound(seed, 8) for seed in range(300)]
    assert sum(found is True for found in judged) >= 20
