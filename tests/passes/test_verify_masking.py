"""Programs that leak are refused, however the mask is spoilt; honest ones are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from receivers import asked

from veilgraph.ir.party import Program, Value, stack
from veilgraph.ir.plan import Phase
from veilgraph.ir.types import planes, words
from veilgraph.passes.batch_rounds import batch_rounds
from veilgraph.passes.verify_masking import MaskingError, coalitions, verify_masking
from veilgraph.targets.target import target

W = words(32)
SHAPE = (5,)


def part(p: Program, number: int, *holders: int) -> Value:
    """One of three parts of a weight, from files."""
    return p.share("w", (number, 3), holders, SHAPE, W)


def x(p: Program, name: str = "x") -> Value:
    """A secret of party 0."""
    return p.source("input", name, 0, SHAPE, W)


def draw(p: Program, *holders: int) -> Value:
    return p.draw(holders, SHAPE, W)


def crossed(p: Program, value: Value, receiver: int = 1, declared: str = "") -> Value:
    return p.send(value.only(0), 0, receiver, declared)


def end(p: Program, *values: Value, at: int = 1) -> None:
    """Makes values needed, each for an output of its own that says nothing simple of it."""
    for number, value in enumerate(values):
        if value.type != W:
            value = value.to_words(32)
        p.output((value * value).only(at), at, f"y{number}", 0)


def checked(p: Program, coalitions: Sequence[Sequence[int]]) -> None:
    verify_masking(batch_rounds(p), coalitions, asked(p))


# What leaks to party 1


def in_the_clear(p: Program) -> None:
    end(p, crossed(p, x(p)))


def scaled(p: Program) -> None:
    end(p, crossed(p, x(p) * 3 + 7))


def mask_known_to_the_receiver(p: Program) -> None:
    end(p, crossed(p, x(p) + draw(p, 0, 1)))


def a_share_from_a_file(p: Program) -> None:
    end(p, crossed(p, part(p, 0, 0, 2)))


def masked_by_a_share(p: Program) -> None:
    """It is the same in every session."""
    end(p, crossed(p, x(p) + part(p, 0, 0, 2)))


def share_under_a_known_mask(p: Program) -> None:
    end(p, crossed(p, part(p, 0, 0, 2) - draw(p, 0, 1)))


def one_mask_twice(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, x(p) + r), crossed(p, x(p) * 2 + r))


def mask_sent_too(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, x(p) + r), crossed(p, r))


def mask_sent_by_another(p: Program) -> None:
    r = draw(p, 0, 2)
    end(p, crossed(p, x(p) + r), p.send(r, 2, 1))


def two_masks_for_three(p: Program) -> None:
    a, b = draw(p, 0), draw(p, 0)
    end(p, crossed(p, x(p) + a), crossed(p, x(p, "z") + b), crossed(p, x(p) * 5 + a + b))


def narrow_mask(p: Program) -> None:
    end(p, crossed(p, x(p) + p.draw((0,), SHAPE, words(31)).mod(32)))


def one_mask_for_all_elements(p: Program) -> None:
    end(p, crossed(p, x(p) + p.draw((0,), (1,), W)))


def mask_that_cancels(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, (x(p) + r) - r))


def even_mask(p: Program) -> None:
    """x + 2r shows whether x is even."""
    r = draw(p, 0)
    end(p, crossed(p, x(p) + r + r))


def product_as_mask(p: Program) -> None:
    end(p, crossed(p, x(p) * draw(p, 0)))


def mask_that_depends(p: Program) -> None:
    """(x + r) - r x: at x = 1 the mask is gone."""
    r = draw(p, 0)
    end(p, crossed(p, x(p) + r - r * x(p)))


def mask_of_the_setup(p: Program) -> None:
    """The same in every inference: two of them show the difference of their inputs."""
    with p.in_phase(Phase.SETUP):
        r = draw(p, 0)
    end(p, crossed(p, x(p) + r))


def mask_of_the_setup_behind_bits(p: Program) -> None:
    with p.in_phase(Phase.SETUP):
        r = draw(p, 0)
    end(p, crossed(p, (x(p) + r).bits(3, 4)))


def bits_in_the_clear(p: Program) -> None:
    end(p, crossed(p, x(p).bits(31)))


def bits_of_two_values_under_one_mask(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, (x(p) + r).bits(0, 9)), crossed(p, (x(p) * 3 + r).bits(0, 9)))


def bits_of_multiples_under_one_mask(p: Program) -> None:
    """2x + r and 3x + r are not the same masked value."""
    r = draw(p, 0)
    first, second = x(p) + x(p) + r, x(p) + x(p) + x(p) + r
    end(p, crossed(p, first.bits(0, 32)), crossed(p, second.bits(0, 32)))


def bits_of_sum_and_xor(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, (x(p) + r).bits(0, 32)), crossed(p, (x(p) ^ r).bits(0, 32)))


def bits_with_a_known_pad_inside(p: Program) -> None:
    """(x ^ k) + r and x + r for a known k: the difference shows bits of x."""
    r, k = draw(p, 0), draw(p, 0, 1)
    end(p, crossed(p, ((x(p) ^ k) + r).bits(0, 32)), crossed(p, (x(p) + r).bits(0, 32)))


def masked_bits_and_the_mask(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, (x(p) + r).bits(31)), crossed(p, r.bits(31)))


def planes_under_fewer(p: Program) -> None:
    g = p.draw((0,), SHAPE, planes(1))
    end(p, crossed(p, x(p).bits(0, 2) ^ stack([g, g])))


def conjunction_as_mask(p: Program) -> None:
    end(p, crossed(p, x(p).bits(0, 2) & p.draw((0,), SHAPE, planes(2))))


def revealed_and_cancelled(p: Program) -> None:
    m = crossed(p, x(p), declared="reveal")
    p.output(m - m, 1, "zero", 0)


def revealed_for_a_few_bits(p: Program) -> None:
    p.output(crossed(p, x(p), declared="reveal").mod(8), 1, "low", 0)


def revealed_for_its_square(p: Program) -> None:
    end(p, crossed(p, x(p), declared="reveal"))


def one_sum_revealed_twice(p: Program) -> None:
    a, b = (crossed(p, x(p, name), declared="reveal") for name in "ab")
    p.output(a + b, 1, "first", 0)
    p.output(b + a, 1, "second", 0)


def unrefreshed_reveal(p: Program) -> None:
    """Additive parts of a product are not random: together they say more than their sum."""
    parts = [crossed(p, x(p, name) * x(p, "z"), declared="reveal") for name in "ab"]
    p.output(parts[0] + parts[1], 1, "sum", 0)


LEAKS = (
    in_the_clear,
    scaled,
    mask_known_to_the_receiver,
    a_share_from_a_file,
    masked_by_a_share,
    share_under_a_known_mask,
    one_mask_twice,
    mask_sent_too,
    mask_sent_by_another,
    two_masks_for_three,
    narrow_mask,
    one_mask_for_all_elements,
    mask_that_cancels,
    even_mask,
    product_as_mask,
    mask_that_depends,
    mask_of_the_setup,
    mask_of_the_setup_behind_bits,
    bits_in_the_clear,
    bits_of_two_values_under_one_mask,
    bits_of_multiples_under_one_mask,
    bits_of_sum_and_xor,
    bits_with_a_known_pad_inside,
    masked_bits_and_the_mask,
    planes_under_fewer,
    conjunction_as_mask,
    revealed_and_cancelled,
    revealed_for_a_few_bits,
    revealed_for_its_square,
    one_sum_revealed_twice,
    unrefreshed_reveal,
)


@pytest.mark.parametrize("program", LEAKS, ids=lambda f: f.__name__)
def test_leaks_are_refused(program: Callable[[Program], None]) -> None:
    p = Program(("alice", "bob", "carol"))
    with p.in_layer("fc1"):
        program(p)
    with pytest.raises(MaskingError, match="of layer 'fc1' is not hidden from bob"):
        checked(p, [(1,)])


# What does not


def masked_share(p: Program) -> None:
    end(p, crossed(p, part(p, 0, 0, 2) * 3 + draw(p, 0, 2)))


def masked(p: Program) -> None:
    end(p, crossed(p, x(p) + draw(p, 0)))


def masked_by_three_times(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, x(p) + r + r + r))


def masked_by_the_pair(p: Program) -> None:
    end(p, crossed(p, x(p) - draw(p, 0, 2)))


def masked_for_the_session(p: Program) -> None:
    with p.in_phase(Phase.SETUP):
        w, r = p.source("weight", "w", 0, SHAPE, W), draw(p, 0)
    end(p, crossed(p, w + r))


def masked_and_reduced(p: Program) -> None:
    end(p, crossed(p, (x(p) + draw(p, 0)).mod(7)))


def mask_of_a_wider_ring(p: Program) -> None:
    end(p, crossed(p, x(p) + p.draw((0,), SHAPE, words(64)).mod(32)))


def all_bits_of_one_masked_value(p: Program) -> None:
    c = x(p) + draw(p, 0)
    g = p.draw((0, 1), SHAPE, planes(4))
    end(p, crossed(p, c.bits(0, 4) ^ g), crossed(p, c.bits(31)), crossed(p, (c + 9).bits(5)))


def masks_in_an_order(p: Program) -> None:
    """The second's mask is in no other; then the first's is in none that is left."""
    a, b = draw(p, 0), draw(p, 0)
    end(p, crossed(p, x(p) + a), crossed(p, x(p) * a + b))


def planes_under_pads(p: Program) -> None:
    end(p, crossed(p, x(p).bits(0, 2) ^ p.draw((0,), SHAPE, planes(2))))


def revealed(p: Program) -> None:
    p.output(crossed(p, x(p), declared="reveal") + draw(p, 1), 1, "x", 0)


def refreshed_reveal(p: Program) -> None:
    r = draw(p, 0, 2)
    a = crossed(p, x(p, "a") * x(p, "z") + r, declared="reveal")
    b = crossed(p, x(p, "b") * x(p, "z") - r, declared="reveal")
    p.output(a + b, 1, "sum", 0)


def nobody_needs_it(p: Program) -> None:
    crossed(p, x(p))


def came_from_the_receiver(p: Program) -> None:
    y = p.source("input", "y", 1, SHAPE, W)
    end(p, x(p) + p.send(y + draw(p, 1), 1, 0), at=0)


HONEST = (
    masked_share,
    masked,
    masked_by_three_times,
    masked_by_the_pair,
    masked_for_the_session,
    masked_and_reduced,
    mask_of_a_wider_ring,
    all_bits_of_one_masked_value,
    masks_in_an_order,
    planes_under_pads,
    revealed,
    refreshed_reveal,
    nobody_needs_it,
    came_from_the_receiver,
)


@pytest.mark.parametrize("program", HONEST, ids=lambda f: f.__name__)
def test_honest_programs_pass(program: Callable[[Program], None]) -> None:
    p = Program(("alice", "bob", "carol"))
    program(p)
    checked(p, [(0,), (1,), (2,)])


def test_thousands_of_messages() -> None:
    """Each masked on its own behind all the others; the last mask of all hides two."""
    p = Program(("alice", "bob", "carol"))
    total = x(p)
    sent = []
    for _ in range(2000):
        mask = draw(p, 0)
        sent.append(crossed(p, total + mask))
        total = total * mask
    end(p, *sent)
    checked(p, [(1,)])
    last = crossed(p, total * 3 + mask)
    p.output((last * last).only(1), 1, "last", 0)
    with pytest.raises(MaskingError, match="not hidden from bob"):
        checked(p, [(1,)])


def test_a_coalition_knows_what_its_members_do() -> None:
    """Masked from carol by what bob knows: not from both together."""
    p = Program(("alice", "bob", "carol"))
    end(p, crossed(p, x(p) + draw(p, 0, 1), receiver=2), at=2)
    checked(p, [(1,), (2,)])
    with pytest.raises(MaskingError, match="bob, carol"):
        checked(p, [(1, 2)])


def test_coalitions_of_all_sizes() -> None:
    """A part that two curious parties could explain by their own inputs may still leak to one."""
    assert coalitions(target("rep3")) == [(0,), (1,), (2,)]
    assert coalitions(target("cleartext", ("alice",))) == []
    three = target("additive", ("alice", "bob", "carol"), dealer="dora")
    assert coalitions(three) == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (3,)]


def test_a_coalition_lacks_a_part_of_each_weight() -> None:
    p = Program(("alice", "bob", "carol"))
    total = part(p, 0, 0, 2).only(0) + part(p, 1, 0, 1).only(0)
    end(p, total, at=0)
    checked(p, [(0,), (1,), (2,)])
    part(p, 2, 1, 2)
    with pytest.raises(MaskingError, match="weight 'w' is not hidden from alice, bob"):
        checked(p, [(0, 1)])
    part(p, 2, 0)
    with pytest.raises(MaskingError, match="weight 'w' is not hidden from alice"):
        checked(p, [(0,)])


def test_a_small_coalition_is_looked_at_too() -> None:
    """Two parts sent to bob: with alice he knew one and the sum, alone he is told both."""
    p = Program(("alice", "bob", "carol"))
    a, c = x(p, "a"), p.source("input", "c", 2, SHAPE, W)
    first = p.send(a, 0, 1, declared="reveal")
    second = p.send(c, 2, 1, declared="reveal")
    p.output(first + second, 1, "sum", 0)
    checked(p, [(0, 1), (1, 2)])
    with pytest.raises(MaskingError):
        checked(p, [(1,)])
