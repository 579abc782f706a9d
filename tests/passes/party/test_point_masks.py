"""Words of point functions are hidden by a root that is read as that root alone, and by nothing
else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from receivers import asked

from veilgraph.ir.party.program import Program, Value, point_rows, point_words
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import blocks, words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.verify_masking import MaskingError, verify_masking

W = words(32)
BITS, PLACES, COUNT = 4, 11, 3


class Tree:
    """Party 0 makes words of its input, and sends them to party 1, who has the second root."""

    def __init__(self, program: Program) -> None:
        self.p = program
        self.index = program.source("input", "x", 0, (COUNT,), W)
        self.key = program.draw((0, 1, 2), (1,), blocks())
        self.roots = [program.draw(each, (COUNT,), blocks()) for each in ((0, 2), (0, 1))]

    def words(self, *roots: Value, key: Value | None = None) -> Value:
        return point_words(key or self.key, roots or self.roots, self.index, BITS, 32)

    def rows(self, root: Value, told: Value, side: int, key: Value | None = None) -> Value:
        return point_rows(key or self.key, root, told, side, BITS, PLACES, W)

    def sent(self, value: Value, receiver: int = 1) -> Value:
        return self.p.send(value.only(0), 0, receiver)

    def end(self, *values: Value, at: int = 1) -> None:
        """Makes values needed, each for an output that says nothing simple of it."""
        for number, value in enumerate(values):
            self.p.output((value * value).only(at), at, f"y{number}", 0)


def honest(t: Tree) -> None:
    told = t.sent(t.words())
    t.end(t.rows(t.roots[1], told, 1))
    other = t.sent(t.words(), 2)
    t.end(t.rows(t.roots[0], other, 0), at=2)


def a_row_under_a_mask(t: Tree) -> None:
    """The other party's row, sent under a draw, is one message more."""
    told, mask = t.sent(t.words()), t.p.draw((0,), (COUNT, PLACES), W)
    row = t.rows(t.roots[0], t.words(), 0)
    t.end(t.rows(t.roots[1], told, 1), t.sent(row + mask))


def key_of_the_setup(t: Tree) -> None:
    """It need not be secret, nor new."""
    with t.p.in_phase(Phase.SETUP):
        key = t.p.draw((0, 1, 2), (1,), blocks())
    told = t.sent(t.words(key=key))
    t.end(t.rows(t.roots[1], told, 1, key))


@pytest.mark.parametrize("program", [honest, a_row_under_a_mask, key_of_the_setup])
def test_honest_trees_pass(program: Callable[[Tree], None]) -> None:
    p = Program(("alice", "bob", "carol"))
    program(Tree(p))
    verify_masking(batch_rounds(p), [(0,), (1,), (2,)], asked(p))


def both_roots_known(t: Tree) -> None:
    told = t.sent(t.words(t.p.draw((0, 1), (COUNT,), blocks()), t.roots[1]))
    t.end(t.rows(t.roots[1], told, 1))


def one_root_for_both(t: Tree) -> None:
    hidden = t.roots[0]
    told = t.sent(t.words(hidden, hidden))
    t.end(t.rows(t.roots[1], told, 1))


def a_root_used_twice(t: Tree) -> None:
    told = t.sent(t.words())
    again = t.sent(point_words(t.key, t.roots, t.index + 1, BITS, 32))
    t.end(t.rows(t.roots[1], told, 1), t.rows(t.roots[1], again, 1))


def a_root_sent(t: Tree) -> None:
    told, root = t.sent(t.words()), t.sent(t.roots[0])
    t.end(t.rows(t.roots[1], told, 1), t.rows(root, told, 0))


def roots_swapped(t: Tree) -> None:
    told = t.sent(t.words())
    t.end(t.rows(t.roots[1], told, 1))
    other = t.sent(t.words(), 2)
    t.end(t.rows(t.roots[0], other, 1), at=2)


def a_root_under_another_key(t: Tree) -> None:
    told, key = t.sent(t.words()), t.p.draw((0, 1, 2), (1,), blocks())
    t.end(t.rows(t.roots[1], told, 1))
    other = t.sent(t.words(), 2)
    t.end(t.rows(t.roots[0], other, 0, key), at=2)


def the_root_as_key(t: Tree) -> None:
    key = t.p.draw((0,), (1,), blocks())
    t.roots[0] = t.p.draw((0,), (COUNT,), blocks())
    told = t.sent(t.words(key=key))
    other = t.sent(point_words(t.key, (t.roots[1], t.roots[0]), t.index, BITS, 32))
    t.end(t.rows(t.roots[1], told, 1), t.rows(t.roots[1], other, 1))


def a_key_that_is_sent_to(t: Tree) -> None:
    """What a party chooses is no draw."""
    key = t.p.source("input", "k", 0, (2,), words(64))
    told = t.sent(t.words(key=t.key ^ t.p.draw((0, 1, 2), (1,), blocks())))
    t.end(t.rows(t.roots[1], told, 1), t.sent(key + t.p.draw((0,), (2,), words(64))).mod(32))


def a_root_of_the_setup(t: Tree) -> None:
    """Words of two inferences under the same roots."""
    with t.p.in_phase(Phase.SETUP):
        t.roots = [t.p.draw(each, (COUNT,), blocks()) for each in ((0, 2), (0, 1))]
    told = t.sent(t.words())
    t.end(t.rows(t.roots[1], told, 1))


def a_root_as_a_mask_too(t: Tree) -> None:
    told = t.sent(t.words())
    under = t.sent(t.p.draw((0,), (COUNT,), blocks()) ^ t.roots[0])
    t.end(t.rows(t.roots[1], told, 1), t.rows(under, told, 1))


def rows_as_a_mask(t: Tree) -> None:
    """Rows are functions of words: they hide nothing."""
    told, secret = t.sent(t.words()), t.p.source("input", "z", 0, (COUNT, PLACES), W)
    row = t.rows(t.roots[0], t.words(), 0)
    t.end(t.rows(t.roots[1], told, 1), t.sent(secret + row))


LEAKS = [
    both_roots_known,
    one_root_for_both,
    a_root_used_twice,
    a_root_sent,
    roots_swapped,
    a_root_under_another_key,
    the_root_as_key,
    a_key_that_is_sent_to,
    a_root_of_the_setup,
    a_root_as_a_mask_too,
    rows_as_a_mask,
]


@pytest.mark.parametrize("program", LEAKS)
def test_trees_that_leak_are_refused(program: Callable[[Tree], None]) -> None:
    p = Program(("alice", "bob", "carol"))
    program(Tree(p))
    with pytest.raises(MaskingError, match="is not hidden from bob"):
        verify_masking(batch_rounds(p), [(1,)], asked(p))
