"""Words of comparison functions are hidden by a root that is read as that root alone, and what is
expanded of them is read where it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest
from receivers import asked

from veilgraph.ir.party.program import Program, Value, compare_parts, compare_words
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import CompareWords, blocks, words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.verify_masking import MaskingError, verify_masking

BITS, COUNT, RINGS = 5, 3, (32, 9)
LAYOUT = CompareWords(BITS, RINGS)


class Tree:
    """Party 0 makes words of its input, and sends them to party 1, who has the second root."""

    def __init__(self, program: Program) -> None:
        self.p = program
        self.threshold = program.source("input", "x", 0, (COUNT,), words(8))
        self.payloads = [
            program.source("input", f"v{bits}", 0, (COUNT,), words(bits)) for bits in RINGS
        ]
        self.points = program.const(7, (COUNT,), words(8))
        self.key = program.draw((0, 1, 2), (1,), blocks())
        self.roots = [program.draw(each, (COUNT,), blocks()) for each in ((0, 2), (0, 1))]
        self.names = count()

    def words(self, *roots: Value, key: Value | None = None, more: int = 0) -> list[Value]:
        threshold = self.threshold + more
        given = key or self.key, roots or self.roots, threshold, BITS, self.payloads
        return compare_words(*given)

    def parts(
        self, root: Value, told: Sequence[Value], side: int, key: Value | None = None
    ) -> list[Value]:
        return compare_parts(key or self.key, root, self.points, told, side, BITS)

    def sent(self, values: Sequence[Value], receiver: int = 1) -> list[Value]:
        return [self.p.send(value.only(0), 0, receiver) for value in values]

    def end(self, *values: Value, at: int = 1) -> None:
        """Makes values needed, each for an output that says nothing simple of it."""
        for value in values:
            self.p.output((value * value).only(at), at, f"y{next(self.names)}", 0)


def to_both(t: Tree) -> None:
    made = t.words()
    t.end(*t.parts(t.roots[1], t.sent(made), 1))
    t.end(*t.parts(t.roots[0], t.sent(made, 2), 0), at=2)


def at_two_points(t: Tree) -> None:
    """A party may read its tree wherever it likes."""
    told = t.sent(t.words())
    t.end(*t.parts(t.roots[1], told, 1))
    t.points = t.points + 1
    t.end(*t.parts(t.roots[1], told, 1))


def key_of_the_setup(t: Tree) -> None:
    """It need not be secret, nor new."""
    with t.p.in_phase(Phase.SETUP):
        key = t.p.draw((0, 1, 2), (1,), blocks())
    told = t.sent(t.words(key=key))
    t.end(*t.parts(t.roots[1], told, 1, key))


def a_part_under_a_mask(t: Tree) -> None:
    """The other party's part, sent under a draw, is one message more."""
    made = t.words()
    mask = t.p.draw((0,), (COUNT,), words(32))
    own = t.parts(t.roots[0], made, 0)[0]
    t.end(*t.parts(t.roots[1], t.sent(made), 1), *t.sent([own + mask]))


@pytest.mark.parametrize("program", [to_both, at_two_points, key_of_the_setup, a_part_under_a_mask])
def test_honest_trees_pass(program: Callable[[Tree], None]) -> None:
    p = Program(("alice", "bob", "carol"))
    program(Tree(p))
    verify_masking(batch_rounds(p), [(0,), (1,), (2,)], asked(p))


def both_roots_known(t: Tree) -> None:
    told = t.sent(t.words(t.p.draw((0, 1), (COUNT,), blocks()), t.roots[1]))
    t.end(*t.parts(t.roots[1], told, 1))


def one_root_for_both(t: Tree) -> None:
    hidden = t.roots[0]
    t.end(*t.parts(t.roots[1], t.sent(t.words(hidden, hidden)), 1))


def a_root_used_twice(t: Tree) -> None:
    told, again = t.sent(t.words()), t.sent(t.words(more=1))
    t.end(*t.parts(t.roots[1], told, 1), *t.parts(t.roots[1], again, 1))


def a_root_sent(t: Tree) -> None:
    told, (root,) = t.sent(t.words()), t.sent([t.roots[0]])
    t.end(*t.parts(t.roots[1], told, 1), *t.parts(root, told, 0))


def roots_swapped(t: Tree) -> None:
    made = t.words()
    t.end(*t.parts(t.roots[1], t.sent(made), 1))
    t.end(*t.parts(t.roots[0], t.sent(made, 2), 1), at=2)


def a_root_under_another_key(t: Tree) -> None:
    made, key = t.words(), t.p.draw((0, 1, 2), (1,), blocks())
    t.end(*t.parts(t.roots[1], t.sent(made), 1))
    t.end(*t.parts(t.roots[0], t.sent(made, 2), 0, key), at=2)


def a_key_that_somebody_chose(t: Tree) -> None:
    key = t.key ^ t.p.draw((0, 1, 2), (1,), blocks())
    t.end(*t.parts(t.roots[1], t.sent(t.words(key=key)), 1))


def a_root_of_the_setup(t: Tree) -> None:
    """Words of two inferences under the same roots."""
    with t.p.in_phase(Phase.SETUP):
        t.roots = [t.p.draw(each, (COUNT,), blocks()) for each in ((0, 2), (0, 1))]
    t.end(*t.parts(t.roots[1], t.sent(t.words()), 1))


def a_root_as_a_mask_too(t: Tree) -> None:
    told = t.sent(t.words())
    (under,) = t.sent([t.p.draw((0,), (COUNT,), blocks()) ^ t.roots[0]])
    t.end(*t.parts(t.roots[1], told, 1), *t.parts(under, told, 1))


def parts_as_a_mask(t: Tree) -> None:
    """Parts are functions of words: they hide nothing."""
    made, secret = t.words(), t.p.source("input", "z", 0, (COUNT,), words(32))
    own = t.parts(t.roots[0], made, 0)[0]
    t.end(*t.parts(t.roots[1], t.sent(made), 1), *t.sent([secret + own]))


def other_bits_of_a_level(t: Tree) -> None:
    """What carol reads in place of the numbers of a payload shows what hides them."""
    made = t.words()
    t.end(*t.parts(t.roots[1], t.sent(made), 1))
    start, length = LAYOUT.sections(COUNT)[1]
    whole = made[1].program.nodes[made[1].node_at(0).args[0]]
    other = Value(t.p, {0: whole.id}, whole.shape, whole.type).chunk(start - 1, length)
    seeds, _, last = t.sent(made, 2)
    t.end(*t.parts(t.roots[0], [seeds, *t.sent([other], 2), last], 0), at=2)


def numbers_that_lost_bits(t: Tree) -> None:
    made = t.words()
    t.end(*t.parts(t.roots[1], t.sent(made), 1))
    made[1] = made[1].mod(9).mod(32)
    t.end(*t.parts(t.roots[0], t.sent(made, 2), 0), at=2)


def words_of_another_tree(t: Tree) -> None:
    made = t.words()
    t.end(*t.parts(t.roots[1], t.sent(made), 1))
    fresh = [t.p.draw(each, (COUNT,), blocks()) for each in ((0, 2), (0, 1))]
    made[1] = t.words(*fresh)[1]
    t.end(*t.parts(t.roots[0], t.sent(made, 2), 0), at=2)


LEAKS = [
    both_roots_known,
    one_root_for_both,
    a_root_used_twice,
    a_root_sent,
    roots_swapped,
    a_root_under_another_key,
    a_key_that_somebody_chose,
    a_root_of_the_setup,
    a_root_as_a_mask_too,
    parts_as_a_mask,
    other_bits_of_a_level,
    numbers_that_lost_bits,
    words_of_another_tree,
]


@pytest.mark.parametrize("program", LEAKS)
def test_trees_that_leak_are_refused(program: Callable[[Tree], None]) -> None:
    p = Program(("alice", "bob", "carol"))
    program(Tree(p))
    with pytest.raises(MaskingError, match="is not hidden from bob"):
        verify_masking(batch_rounds(p), [(1,)], asked(p))
