"""What a stranger wrote is checked in a time that grows as its program does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from receivers import asked

from veilgraph.ir.party.columns import columns_of
from veilgraph.ir.party.program import Program, Value, join
from veilgraph.ir.types import words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.verify_masking import MaskingError, verify_masking
from veilgraph.passes.party.walks import Walks

W = words(32)
MOST_SECONDS = 20  # of a processor; a check that follows chains node by node takes minutes


@contextmanager
def soon() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < MOST_SECONDS


def begun() -> tuple[Program, Value]:
    """A program, and what hides a number of alice's."""
    p = Program(("alice", "bob", "carol"))
    return p, p.source("input", "x", 0, (5,), W) + p.draw([0], (5,), W)


def checked(p: Program, value: Value) -> None:
    (at,) = value.at
    p.output(value * value, at, "y", 0)  # which says nothing simple of it
    schedule, receivers = batch_rounds(p), asked(p)
    with soon():
        verify_masking(schedule, [(0,), (1,), (2,)], receivers)


@pytest.mark.parametrize("bits", [(32,), (48, 16), (48, 16, 24)])
def test_a_value_that_is_sent_to_and_fro(bits: tuple[int, ...]) -> None:
    """As it is, or cast each time: 20,000 messages, each behind all that were before it."""
    p, value = begun()
    for number in range(20_000):
        sender, receiver = number % 2, 1 - number % 2
        sent = p.send(value.mod(bits[number % len(bits)]), sender, receiver)
        value = sent.only(receiver)
    checked(p, value)


def test_what_is_joined_with_itself() -> None:
    """30 times: of a thousand million parts, all of which are one."""
    p, value = begun()
    for _ in range(30):
        value = join([value, value], (2 * value.elements,))
    checked(p, p.send(value, 0, 1).only(1))


def test_bits_of_bits_have_an_end() -> None:
    p = Program(("alice", "bob", "carol"))
    value = p.source("input", "x", 0, (5,), W)
    for _ in range(70):
        value = value >> 1
    p.output(value, 0, "y", 0)
    with pytest.raises(MaskingError, match="bits of bits of layer '' are too deep to look into"):
        verify_masking(batch_rounds(p), [(1,)], asked(p))


def test_walks() -> None:
    p, value = begun()
    (masked,) = value.at.values()
    there = p.send(value, 0, 1).only(1)
    narrow = p.send(there.mod(8), 1, 0).only(0)
    wide = narrow.mod(16)
    (sent,), (cast,), (last,) = (v.at.values() for v in (there, narrow, wide))
    walks = Walks(columns_of(p.nodes))
    assert walks.passed[sent] == masked
    assert p.nodes[walks.passed[cast]].args == (sent,)
    assert walks.passed[last] == last
    assert walks.whole[last] == walks.masked[last] == masked
    assert walks.same[cast] == masked
    assert walks.same[last] == last
    assert walks.same_here[cast] == cast
    assert walks.same_here[sent] == sent
    found, narrowest = walks.cast
    assert [found[i] for i in (sent, cast, last)] == [masked] * 3
    assert [narrowest[i] for i in (masked, sent, cast, last)] == [32, 32, 8, 8]
    assert np.array_equal(np.asarray(walks.passed)[:masked], np.arange(masked))
