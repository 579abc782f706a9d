"""Programs that leak are refused, however the mask is spoilt; honest ones are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from receivers import asked

from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Program, Value, apply, join, select, stack
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import planes, words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.verify_masking import MaskingError, coalitions, verify_masking
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


def even_multiple_beside_a_mask(p: Program) -> None:
    """2 x ^ r and r: an even multiple of words is no even number of terms of an exclusive or."""
    r, known = draw(p, 0), draw(p, 0, 1)
    end(p, crossed(p, (x(p) * 2) ^ r ^ known), crossed(p, r ^ known))


def bits_of_an_even_multiple_beside_bits_of_its_mask(p: Program) -> None:
    """2 x ^ r is not r, though x is in it an even number of times."""
    r, known = draw(p, 0), draw(p, 0, 1)
    masked, mask = (x(p) * 2) ^ r ^ known, r ^ known
    end(p, crossed(p, masked.bits(0, 32)), crossed(p, mask.bits(0, 32)))


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


def revealed_with_its_square(p: Program) -> None:
    """m + m^2 is even for all m: the output says less than the message."""
    m = crossed(p, x(p), declared="reveal")
    p.output(m + m * m, 1, "y", 0)


def read_and_told_in_part(p: Program) -> None:
    """An input that is no output as it is may say more than the outputs."""
    m = crossed(p, x(p), declared="reveal")
    p.output(m.mod(8), 1, "low", 0)
    p.output(crossed(p, x(p, "z"), declared="reveal") + m * m, 1, "y", 0)


def revealed_and_doubled(p: Program) -> None:
    m = crossed(p, x(p), declared="reveal")
    p.output(m + m, 1, "y", 0)


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


def a_chunk_of_a_draw_twice(p: Program) -> None:
    r = p.draw((0,), (9,), W)
    end(p, crossed(p, x(p) + r.chunk(0, 5)), crossed(p, x(p, "z") + r.chunk(3, 5)))


def shifted_mask(p: Program) -> None:
    end(p, crossed(p, x(p) + (draw(p, 0) << 1)))


def even_multiple_as_mask(p: Program) -> None:
    end(p, crossed(p, x(p) + draw(p, 0) * 2))


def words_and_bits_of_one_mask(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, x(p) + r), crossed(p, x(p, "z").bits(0, 8) ^ r.bits(0, 8)))


def upper_bits_unmasked(p: Program) -> None:
    end(p, crossed(p, x(p) + (p.draw((0,), SHAPE, words(16)).mod(32) << 16)))


def a_mask_and_the_same_turned(p: Program) -> None:
    r = draw(p, 0)
    turned = apply(ops.SLICE, (r,), SHAPE, W, starts=(4,), steps=(-1,))
    end(p, crossed(p, x(p) + r), crossed(p, x(p, "z") + turned))


def a_mask_and_itself_turned(p: Program) -> None:
    """The middle element is under twice its mask, and the others are alike in pairs."""
    r = draw(p, 0)
    end(p, crossed(p, x(p) + r + apply(ops.SLICE, (r,), SHAPE, W, starts=(4,), steps=(-1,))))


def one_element_as_mask_of_all(p: Program) -> None:
    """A slice that takes the same element again and again."""
    again = apply(ops.SLICE, (draw(p, 0),), SHAPE, W, starts=(2,), steps=(0,))
    end(p, crossed(p, x(p) + again))


def one_mask_in_two_widths(p: Program) -> None:
    r = p.draw((0,), SHAPE, words(64))
    z = p.source("input", "z", 0, SHAPE, words(64))
    end(p, crossed(p, x(p) + r.mod(32)), crossed(p, (z + r).mod(32)))


def mask_or_value(p: Program) -> None:
    end(p, crossed(p, select(p.draw((0,), SHAPE, planes(1)), x(p), draw(p, 0))))


def masks_that_telescope(p: Program) -> None:
    a, b, c = draw(p, 0), draw(p, 0), draw(p, 0)
    sums = (x(p) + a - b, x(p, "y") + b - c, x(p, "z") + c - a)
    end(p, *(crossed(p, value) for value in sums))


def masks_that_telescope_through_another(p: Program) -> None:
    a, b = draw(p, 0), draw(p, 0, 2)
    end(p, crossed(p, x(p) + a + b), crossed(p, a + x(p) * 2), p.send(b, 2, 1))


def one_of_two_joined_is_masked(p: Program) -> None:
    end(p, crossed(p, join([x(p) + draw(p, 0), x(p, "z")], (10,)).chunk(3, 5)))


def joined_under_one_mask(p: Program) -> None:
    r = draw(p, 0)
    end(p, crossed(p, join([x(p) + r, x(p, "z") + r], (10,)).chunk(0, 5)))


def sent_back_with_more(p: Program) -> None:
    y = p.source("input", "y", 1, SHAPE, W)
    end(p, crossed(p, p.send(y, 1, 0) + x(p)))


LEAKS = (
    a_chunk_of_a_draw_twice,
    shifted_mask,
    even_multiple_as_mask,
    words_and_bits_of_one_mask,
    upper_bits_unmasked,
    a_mask_and_the_same_turned,
    a_mask_and_itself_turned,
    one_element_as_mask_of_all,
    one_mask_in_two_widths,
    mask_or_value,
    masks_that_telescope,
    masks_that_telescope_through_another,
    one_of_two_joined_is_masked,
    joined_under_one_mask,
    sent_back_with_more,
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
    even_multiple_beside_a_mask,
    bits_of_an_even_multiple_beside_bits_of_its_mask,
    bits_with_a_known_pad_inside,
    masked_bits_and_the_mask,
    planes_under_fewer,
    conjunction_as_mask,
    revealed_and_cancelled,
    revealed_for_a_few_bits,
    revealed_with_its_square,
    read_and_told_in_part,
    revealed_and_doubled,
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


def announced_and_read(p: Program) -> None:
    """What is computed of an input that all are told goes into another output."""
    told = crossed(p, x(p, "told"), declared="reveal")
    p.output(told, 1, "told", 0)
    p.output(crossed(p, x(p, "z"), declared="reveal") + told * told, 1, "y", 0)


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


def masked_by_xor_of_words(p: Program) -> None:
    end(p, crossed(p, x(p) ^ draw(p, 0)))


def complemented(p: Program) -> None:
    end(p, crossed(p, ~(x(p).bits(0, 8) ^ p.draw((0,), SHAPE, planes(8)))))


def joined_after_masking(p: Program) -> None:
    end(p, crossed(p, join([x(p) + draw(p, 0), x(p, "z") + draw(p, 0)], (10,))))


def turned_after_masking(p: Program) -> None:
    value = (x(p) + draw(p, 0)).reshape((1, 5))
    end(p, crossed(p, apply(ops.TRANSPOSE, (value,), (5, 1), W, permutation=(1, 0))))


def masked_by_a_part_of_a_draw(p: Program) -> None:
    end(p, crossed(p, x(p) + p.draw((0,), (15,), W).chunk(5, 5)))


def masked_by_an_odd_multiple(p: Program) -> None:
    end(p, crossed(p, x(p) - draw(p, 0) * 3))


def sent_back(p: Program) -> None:
    y = p.source("input", "y", 1, SHAPE, W)
    end(p, p.send((p.send(y + draw(p, 1), 1, 0) * 3).only(0), 0, 1))


def planes_masked_apart(p: Program) -> None:
    bits = [x(p).bits(j) ^ p.draw((0,), SHAPE, planes(1)) for j in range(2)]
    end(p, crossed(p, stack(bits)))


HONEST = (
    masked_by_xor_of_words,
    complemented,
    joined_after_masking,
    turned_after_masking,
    masked_by_a_part_of_a_draw,
    masked_by_an_odd_multiple,
    sent_back,
    planes_masked_apart,
    announced_and_read,
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


# Outputs


def told(p: Program, value: Value, name: str = "y", at: int = 1) -> None:
    """What party 0 has, as an output of another's."""
    p.output(crossed(p, value, at, declared="reveal").only(at), at, name, 0)


def rounded(p: Program, c: Value, r: Value, bits: int = 8) -> Value:
    return (c >> bits) - (r >> bits)


def opened(p: Program) -> tuple[Value, Value]:
    """c = x + r, known to party 1, and r."""
    r = draw(p, 0)
    c = x(p) + r
    sent = crossed(p, c)
    p.output((sent * sent).only(1), 1, "c", 0)
    return c, r


def output_is_the_mask(p: Program) -> None:
    told(p, opened(p)[1])


def output_is_a_multiple_of_the_mask(p: Program) -> None:
    told(p, opened(p)[1] * 4)


def output_is_the_masked(p: Program) -> None:
    told(p, opened(p)[0])


def output_has_upper_bits_of_the_mask(p: Program) -> None:
    told(p, opened(p)[1] >> 8)


def output_has_lower_bits_of_the_mask(p: Program) -> None:
    told(p, opened(p)[1].mod(8).mod(32))


def output_has_one_bit_of_the_mask(p: Program) -> None:
    told(p, opened(p)[1].bits(3).to_words(32))


def output_is_rounded_by_another_mask(p: Program) -> None:
    c, _ = opened(p)
    told(p, rounded(p, c, draw(p, 0)))


def output_is_rounded_elsewhere(p: Program) -> None:
    c, r = opened(p)
    told(p, (c >> 8) - (r >> 7))


def output_is_rounded_upside_down(p: Program) -> None:
    c, r = opened(p)
    told(p, (c >> 8) + (r >> 8))


def output_is_a_mask_in_a_corner(p: Program) -> None:
    told(p, join([x(p), draw(p, 0)], (10,)).chunk(3, 5))


def output_has_the_mask_of_a_sum(p: Program) -> None:
    a, b = draw(p, 0), draw(p, 0)
    told(p, rounded(p, x(p) + a, a + b))


def output_has_upper_bits_of_the_mask_and_a_constant(p: Program) -> None:
    told(p, (opened(p)[1] + 5) >> 8)


def output_has_two_masks_beside_one_value(p: Program) -> None:
    """Upper bits of x, and of the mask of what bob was sent."""
    _, r = opened(p)
    both = r + draw(p, 0)
    told(p, (r >> 8) + (both >> 8) + ((x(p) - both) >> 8))


def output_has_two_masks_beside_one_masked(p: Program) -> None:
    _, r = opened(p)
    both = r + draw(p, 0)
    told(p, ((x(p) + both) >> 8) - (both >> 8) - (r >> 8))


MASKS = (
    output_is_the_mask,
    output_has_upper_bits_of_the_mask_and_a_constant,
    output_has_two_masks_beside_one_value,
    output_has_two_masks_beside_one_masked,
    output_is_a_multiple_of_the_mask,
    output_is_the_masked,
    output_has_upper_bits_of_the_mask,
    output_has_lower_bits_of_the_mask,
    output_has_one_bit_of_the_mask,
    output_is_rounded_by_another_mask,
    output_is_rounded_elsewhere,
    output_is_rounded_upside_down,
    output_is_a_mask_in_a_corner,
    output_has_the_mask_of_a_sum,
)


@pytest.mark.parametrize("program", MASKS, ids=lambda f: f.__name__)
def test_outputs_are_no_masks(program: Callable[[Program], None]) -> None:
    p = Program(("alice", "bob", "carol"))
    program(p)
    with pytest.raises(MaskingError, match=r"output 'y' tells bob (bits of )?draw"):
        checked(p, [(0,), (1,), (2,)])


def test_outputs_may_be_rounded_by_a_mask() -> None:
    """As a truncation does: bob knows c, hence the threshold at which his output was rounded."""
    p = Program(("alice", "bob", "carol"))
    c, r = opened(p)
    told(p, rounded(p, c, r))
    told(p, rounded(p, c + 9, r, 5).reshape((1, 5)) * 3, "again")
    checked(p, [(0,), (1,), (2,)])


def test_outputs_may_be_two_parts_that_were_shifted() -> None:
    """As a truncation of parts does: the mask is one part, the value less the mask the other."""
    p = Program(("alice", "bob", "carol"))
    r = draw(p, 0)
    told(p, ((x(p) - r + 255) >> 8) + (r >> 8))
    told(p, ((x(p) - r) >> 8) + ((r + 255) >> 8), "again")
    checked(p, [(0,), (1,), (2,)])


def test_outputs_may_have_masks_of_their_receiver() -> None:
    p = Program(("alice", "bob", "carol"))
    told(p, x(p) + draw(p, 0, 1))
    checked(p, [(0,), (1,), (2,)])


def refused(p: Program, receivers: dict[str, list[int]], message: str) -> None:
    with pytest.raises(MaskingError, match=message):
        verify_masking(batch_rounds(p), [(0,), (1,), (2,)], receivers)


def test_outputs_are_for_their_receivers() -> None:
    p = Program(("alice", "bob", "carol"))
    told(p, x(p))
    verify_masking(batch_rounds(p), [(0,), (1,), (2,)], {"y": [1]})
    verify_masking(batch_rounds(p), [(0,), (1,), (2,)], {"y": (0, 1), "z": {2}})
    refused(p, {"y": [0, 2]}, "output 'y' is not for bob")
    refused(p, {"y": []}, "output 'y' is not for bob")
    refused(p, {"x": [1]}, "output 'y' is not for bob")
    told(p, x(p, "z"))
    refused(p, {"y": [1]}, "output 'y' stands twice at bob")


def test_outputs_that_nobody_reveals() -> None:
    """An input of the receiver's own, and what everybody knows."""
    p = Program(("alice", "bob", "carol"))
    p.output(x(p), 0, "x", 0)
    p.output(p.const(7, SHAPE, W), 2, "seven", 0)
    verify_masking(batch_rounds(p), [(0,), (1,), (2,)], {"x": [0], "seven": [2]})
    refused(p, {"x": [0], "seven": [1]}, "output 'seven' is not for carol")


def test_an_output_to_two_of_a_coalition() -> None:
    p = Program(("alice", "bob", "carol"))
    value = x(p)
    for at in (1, 2):
        told(p, value, at=at)
    every = [(1,), (2,), (1, 2)]
    verify_masking(batch_rounds(p), every, {"y": [1, 2]})
    with pytest.raises(MaskingError, match="output 'y' is not for carol"):
        verify_masking(batch_rounds(p), every, {"y": [1]})


def test_what_is_revealed_ends_in_an_output_there() -> None:
    """A masked message may not pass for a part of an output, whose receivers are told of it."""
    p = Program(("alice", "bob", "carol"))
    end(p, crossed(p, x(p) + draw(p, 0), declared="reveal"))
    with pytest.raises(MaskingError, match="ends in no output"):
        checked(p, [(0,), (1,), (2,)])
    p = Program(("alice", "bob", "carol"))
    passed_on = p.send(crossed(p, x(p) + draw(p, 0, 2), declared="reveal"), 1, 2)
    p.output((passed_on * passed_on).only(2), 2, "y", 0)
    with pytest.raises(MaskingError, match="ends in no output"):
        checked(p, [(0,), (1,)])


def test_a_message_is_masked_or_revealed() -> None:
    p = Program(("alice", "bob", "carol"))
    end(p, crossed(p, x(p) + draw(p, 0), declared="rounding"))
    with pytest.raises(MaskingError, match="is declared 'rounding'"):
        checked(p, [(0,), (1,), (2,)])


@pytest.mark.parametrize("party", [0, 1])
def test_a_draw_is_one(party: int) -> None:
    """Whoever writes a plan's text may give one number to two draws, or to a stranger."""
    p = Program(("alice", "bob", "carol"))
    end(p, crossed(p, x(p) + draw(p, 0)))
    narrow = p.node(
        ops.DRAW, party, (), SHAPE, words(8) if party == 0 else W, Phase.OFFLINE, number=0
    )
    p.output(Value(p, {party: narrow}, SHAPE, p.nodes[narrow].type), party, "again", 0)
    with pytest.raises(MaskingError, match="draw 0 is not the same for all who make it"):
        checked(p, [(1,)])


def test_a_weight_is_in_as_many_parts_as_its_fewest() -> None:
    p = Program(("alice", "bob", "carol"))
    first = p.share("w", (0, 3), (0,), SHAPE, W)
    second = p.share("w", (1, 2), (0,), SHAPE, W)
    p.output((first + second) * first, 0, "y", 0)
    with pytest.raises(MaskingError, match="weight 'w' is not hidden from alice"):
        checked(p, [(0,)])
