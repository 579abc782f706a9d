"""rep3, continued: comparisons, ReLUs and maxima.

Parties 0 and 1 open a window of what they have in parts, party 2 prepares, and the result is in
parts again. See rep3.py for how costs are counted, and docs/protocols.md for the arguments.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Value, apply
from veilgraph.targets.blocks import points
from veilgraph.targets.blocks.borrow import COMPARISONS
from veilgraph.targets.blocks.comparison_tree import VARIANT, by_tree
from veilgraph.targets.blocks.linear import add, reduced, subtract
from veilgraph.targets.blocks.maxima import (
    low_bits,
    max_pool_with,
    maximum_of_parts,
    reduce_max_with,
    truncated_relu_pool,
)
from veilgraph.targets.blocks.truncation import rounded_off, shifted, without_low_bits
from veilgraph.targets.blocks.window import (
    Compare,
    Parts,
    kept_where_positive,
    non_negative,
    opened_window,
    window_to_shift,
)
from veilgraph.targets.parties import Form, Member, Operation, Parties, Sharing
from veilgraph.targets.suites.rep3 import REP3, pair, paired, parted, preparing
from veilgraph.targets.suites.rep3_rotation import (
    FEWEST_ROWS,
    rotating_roles,
    rotating_roles_by_rows,
    rounded_rotating_roles,
)
from veilgraph.targets.variants import Rounding

__all__ = ["REP3"]  # with what is registered here

REP3.offer("compare", COMPARISONS)
REP3.protocol("compare", variant=VARIANT)(by_tree)


def _compare(p: Parties) -> Compare:
    found: Compare = REP3.called(p, "compare")
    return found


@REP3.protocol("round_off")
def round_off(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """floor(z / 2^f + 1/2) in Z_2^K.  4 + L rounds; 3l + 2V + 2 + 2K bits online,
    2K + e + T + Q + Y K offline.

    Of n = f compared bits, and z additive. The truncation of z + 2^(f-1), without the bit by which
    it was rounded up.
    """
    f, K = int(op["bits"]), op.ring_bits
    compare = _compare(p)

    def body(q: Parties, part: Sharing) -> Sharing:
        parts = pair(q, reduced(part, K + f))
        return paired(q, rounded_off(preparing(q), parts, f, K, compare))

    return rotating_roles(p, op, body, z)


# One-hot rows


@REP3.protocol("one_hot", variant="points")
def one_hot(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """A row that is 1 at x.  1 round, 2W bits online of an x that is known to one; of a computed x
    2 rounds, 2n bits online and 2W offline, and the pair's replica, 2NK.

    W bits of words of an index of n bits among N places: see targets/blocks/points.py.
    """
    if x.known is not None:
        return _rows_of_known(p, op, x.known)
    if points.is_too_wide(op):
        return points.by_comparisons(p, op, x, REP3.called(p, "step"))

    def body(q: Parties, part: Sharing) -> Sharing:
        d = preparing(q)
        c, r = opened_window(d, pair(q, reduced(part, points.computed_bits(op))))
        return paired(q, points.opened_rows(d, op, c, r))

    return rotating_roles(p, op, body, p.made.get(x, x))


def _rows_of_known(p: Parties, op: Operation, x: Value) -> Sharing:
    """Two parts at their two holders each, and a zero.  Each other party lacks one root.

    Every two roles have both of such parts: rows of one who computes nothing are a pair.
    """
    owner = Member(min(x.at))
    own = p.role(owner)
    if own is None:
        return paired(p, points.shared_rows(p, op, x, owner, (0,), (1,)))
    first, second = points.shared_rows(p, op, x, owner, (own - 1, own), (own, own + 1))
    zero = p.at(p.program.const(0, op.shape, op.type), own + 1, own + 2)
    return Sharing((first, second, zero), Form.REPLICATED).rotated(-own)


@REP3.protocol("one_hot", variant="comparisons")
def one_hot_by_comparisons(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """A row that is 1 at x.  N + 1 comparisons of `step`, 2N + 1 where indices wrap."""
    return points.by_comparisons(p, op, x, REP3.called(p, "step"))


# ReLU and maximum


@REP3.protocol("truncate_relu", rounding=Rounding.SAFE_ROLE)
def truncate_relu(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """max(floor((z + tau) / 2^f), 0) in Z_2^K.  4 + L rounds; w + 2m + 2V + 2 + 2K bits online,
    3K + 2e + 1 + T + Q + Y (2K + e) offline.

    Of n = m - 1 compared bits, m = w - f, e = max(0, K - m), and z additive; a replicated one takes
    a round and w bits less. The pair of parts is shifted before it is opened.
    """
    f, window, dropped = int(op["bits"]), int(op["window_bits"]), int(op["dropped_bits"])
    K = op.ring_bits
    compare, width = _compare(p), window_to_shift(window, dropped, f)

    def body(q: Parties, part: Sharing) -> Sharing:
        d = preparing(q)
        c, r = opened_window(d, shifted(d, pair(q, reduced(part, width)), f))
        return paired(q, kept_where_positive(d, c, r, 0, K, 0, compare))

    return rounded_rotating_roles(p, op, body, parted(p, z), safe=2)


@REP3.protocol("relu")
def relu(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """max(x, 0).  3 + L rounds; 2w + 2V + 2 + 2k bits online,
    3k + 2 (k - w) + 1 + T + Q + Y (3k - w) offline.

    Of n = w - t - 1 compared bits, and x replicated; an additive one takes a round and w bits more.
    """
    window, dropped = int(op["window_bits"]), int(op["dropped_bits"])
    compare = _compare(p)

    def body(q: Parties, part: Sharing) -> Sharing:
        d = preparing(q)
        c, r = opened_window(d, pair(q, reduced(part, window)))
        return paired(q, kept_where_positive(d, c, r, 0, op.ring_bits, dropped, compare))

    return rotating_roles(p, op, body, p.made.get(x, x))


@REP3.protocol("step")
def step(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """1 where x >= 0, else 0.  3 + L rounds; 2m + 2V + 2 + 2k bits online,
    k + 1 + T + Q + Y k offline.

    Of n = m - 1 compared bits, m = w - t, and x replicated; an additive one takes a round and w
    bits more. The pair of parts is shifted by the t bits that are not looked at.
    """
    window, dropped = int(op["window_bits"]), int(op["dropped_bits"])
    compare = _compare(p)

    def body(q: Parties, part: Sharing) -> Sharing:
        d = preparing(q)
        parts = pair(q, reduced(part, window))
        c, r = opened_window(d, without_low_bits(d, parts, dropped))
        return paired(q, non_negative(d, c, r, 0, compare).to_words(d, op.ring_bits))

    return rounded_rotating_roles(p, op, body, p.made.get(x, x), safe=2)


@REP3.protocol("maximum")
def maximum(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """max(x, y) = y + max(x - y, 0).  3 + L rounds, as `relu`.

    The window bounds x - y.
    """
    kept: Sharing = REP3.called(p, "relu")(p, op, subtract(p, op, x, y))
    # A replica of y is worth its messages only where something else reads it.
    return add(p, op, kept, p.made.get(y, replace(y, replica=None)))


@REP3.protocol("max_pool")
def max_pool(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """max over windows.  1 + D (2 + L) rounds, D comparisons deep: ceil(log2 kernel) each axis.

    For x replicated; an additive one takes a round more. Parties keep their roles in all of a
    channel's comparisons, so parts of two are opened as they are.
    """
    compare = _compare(p)

    def body(q: Parties, part: Sharing) -> Sharing:
        pooled = max_pool_with(maximum_of_parts(preparing(q), compare))
        return paired(q, pooled(q, op, images(pair(q, part), x.shape)).parts)

    return rotating_roles_by_rows(p, op, body, channels(x))


@REP3.protocol("truncate_relu_pool", rounding=Rounding.SAFE_ROLE)
def truncate_relu_pool(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """The maxima over windows of max(floor((z + tau) / 2^f), 0), in Z_2^K.  2 + (D + 1)(2 + L)
    rounds, D comparisons deep: ceil(log2 kernel) each axis.

    For z additive; a replicated one takes a round less.
    """
    compare = _compare(p)

    def body(q: Parties, part: Sharing) -> Sharing:
        low = images(pair(q, low_bits(op, part)), z.shape)
        return paired(q, truncated_relu_pool(q, preparing(q), op, low.parts, compare))

    return rotating_roles_by_rows(p, op, body, channels(parted(p, z)), safe=2)


def channels(x: Sharing) -> Sharing:
    """x [N, C, H, W] as a matrix of a row a channel of an image."""
    size = x.shape[2] * x.shape[3]
    return x.map(lambda v: v.reshape((v.elements // size, size)))


def images(parts: Parts, shape: Shape) -> Sharing:
    """Rows of such a matrix, in parts, as [1, rows, H, W]."""
    rows = parts[0].shape[0]
    return Sharing(tuple(v.reshape((1, rows, *shape[2:])) for v in parts), Form.ADDITIVE)


@REP3.protocol("reduce_max")
def reduce_max(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """max over axes.  1 + D (2 + L) rounds, D comparisons deep: ceil(log2 size).

    For x replicated; an additive one takes a round more. Of too few rows to share out each
    comparison is one of its own, in 3 + L rounds.
    """
    axes = {axis % len(x.shape) for axis in op["axes"]}
    rows = prod(size for axis, size in enumerate(x.shape) if axis not in axes)
    if p.rotates and rows < FEWEST_ROWS:
        found: Sharing = reduce_max_with(maximum)(p, op, x)
        return found
    flat = rows_of(x, axes, rows)
    compare = _compare(p)

    def body(q: Parties, part: Sharing) -> Sharing:
        own = replace(op, shape=part.shape[:1], attrs={**op.attrs, "axes": (1,)})
        reduced_rows = reduce_max_with(maximum_of_parts(preparing(q), compare))
        return paired(q, reduced_rows(q, own, Sharing(pair(q, part), Form.ADDITIVE)).parts)

    return rotating_roles_by_rows(p, op, body, flat)


def rows_of(x: Sharing, axes: Collection[int], rows: int) -> Sharing:
    """x as a matrix whose rows are what is reduced together."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = (*kept, *sorted(axes))
    shape = tuple(x.shape[axis] for axis in order)

    def row_major(v: Value) -> Value:
        if order != tuple(range(len(order))):
            v = apply(ops.TRANSPOSE, (v,), shape, v.type, permutation=order)
        return v.reshape((rows, v.elements // rows))

    return x.map(row_major)
