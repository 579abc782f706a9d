"""Maximum over windows and axes, for any suite that has a protocol for the maximum of two.

A tree over the elements of a window, one axis after the other: for a 3x3 window of stride 2 that is
six comparisons an output where eight would be made at once, in the same number of rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import apply, join
from veilgraph.targets.blocks.linear import reduced
from veilgraph.targets.blocks.truncation import shifted
from veilgraph.targets.blocks.window import (
    Compare,
    Parts,
    kept_where_positive,
    opened_window,
    window_to_shift,
)
from veilgraph.targets.parties import Form, Operation, Parties, Provider, Sharing
from veilgraph.targets.variants import Protocol

Maximum = Callable[[Parties, Operation, Sharing, Sharing], Sharing]


def max_pool_with(maximum: Maximum) -> Protocol:
    """The protocol of max_pool that compares with `maximum`."""

    def max_pool(p: Parties, op: Operation, x: Sharing) -> Sharing:
        """max over windows.  ceil(log2 kernel) comparisons deep, each axis."""
        for axis in reversed(range(2)):
            x = _pool_axis(p, op, x, axis, maximum)
        return x

    return max_pool


def reduce_max_with(maximum: Maximum) -> Protocol:
    """The protocol of reduce_max that compares with `maximum`."""

    def reduce_max(p: Parties, op: Operation, x: Sharing) -> Sharing:
        """max over axes.  ceil(log2 size) comparisons deep, each axis."""
        for axis in sorted(a % len(x.shape) for a in op["axes"]):
            x = _halved(p, op, x, axis, maximum)
        return x.map(lambda part: part.reshape(op.shape))

    return reduce_max


def maximum_of_parts(d: Provider, compare: Compare) -> Maximum:
    """max(x, y) of what members have in parts.  2 + L rounds; a window and V + 1 bits of each."""

    def maximum(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
        window, dropped = int(op["window_bits"]), int(op["dropped_bits"])
        above = [(a - b).mod(window) for a, b in zip(x.parts, y.parts, strict=True)]
        c, r = opened_window(d, above)
        kept = kept_where_positive(d, c, r, 0, op.ring_bits, dropped, compare)
        parts = (a + b for a, b in zip(kept, y.parts, strict=True))
        return Sharing(tuple(parts), x.form)

    return maximum


def bits_to_pool(window_bits: int, dropped_bits: int, bits: int) -> int:
    """How many bits of z `truncated_relu_pool` takes: differences have one more than numbers."""
    return window_to_shift(window_bits, dropped_bits, bits) + 1


def low_bits(op: Operation, z: Sharing) -> Sharing:
    """The bits of z that the operation takes, which are in its ring."""
    bits = bits_to_pool(*(int(op[name]) for name in ("window_bits", "dropped_bits", "bits")))
    assert bits <= z.type.bits, f"{bits} bits are pooled in a ring of {z.type.bits}"
    return reduced(z, bits)


def truncated_relu_pool(
    p: Parties, d: Provider, op: Operation, z: Parts, compare: Compare
) -> Parts:
    """Parts of the maxima over windows of max(floor((z + tau) / 2^f), 0), in Z_2^K.

    (D + 1)(2 + L) rounds, D comparisons deep. z is in parts of `bits_to_pool` bits, [N, C, H, W].
    All but the last comparison is between numbers of m bits, in a ring of m + 1.
    """
    f = int(op["bits"])
    m = z[0].type.bits - f - 1
    narrow = {**op.attrs, "window_bits": m + 1, "dropped_bits": 0}
    own = Operation(op.name, op.shape, m + 1, narrow)
    y = Sharing(shifted(d, z, f), Form.ADDITIVE)
    pooled = max_pool_with(maximum_of_parts(d, compare))(p, own, y)
    c, r = opened_window(d, [part.mod(m) for part in pooled.parts])
    return kept_where_positive(d, c, r, 0, op.ring_bits, 0, compare)


def _halved(p: Parties, op: Operation, x: Sharing, axis: int, maximum: Maximum) -> Sharing:
    """The maximum along an axis: its first half with its second, until one element is left."""
    while (size := x.shape[axis]) > 1:
        half = size // 2
        first, second = _slice(x, axis, 0, 1, half), _slice(x, axis, half, 1, half)
        step = Operation("maximum", first.shape, op.ring_bits, op.attrs)
        above = maximum(p, step, first, second)
        x = _concat(above, _slice(x, axis, size - 1, 1, 1), axis) if size % 2 else above
    return x


def _concat(x: Sharing, y: Sharing, axis: int) -> Sharing:
    more = y.shape[axis]
    shape = tuple(size + (more if i == axis else 0) for i, size in enumerate(x.shape))
    pairs = zip(x.parts, y.parts, strict=True)
    parts = (apply(ops.CONCAT, pair, shape, x.type, axis=axis) for pair in pairs)
    return Sharing(tuple(parts), x.form)


def _pool_axis(p: Parties, op: Operation, x: Sharing, axis: int, maximum: Maximum) -> Sharing:
    kernel, stride, dilation = (op[n][axis] for n in ("kernel", "strides", "dilations"))
    if kernel == 1 and stride == 1:
        return x
    x = _repeat_edges(x, 2 + axis, op["pads_low"][axis], op["pads_high"][axis], dilation)
    size = op.shape[2 + axis]
    windows = [_slice(x, 2 + axis, i * dilation, stride, size) for i in range(kernel)]
    return _tree(p, op, windows, maximum)


def _repeat_edges(x: Sharing, axis: int, low: int, high: int, dilation: int) -> Sharing:
    """Padding that never wins: elements near the edge again, which each such window holds.

    Those are whole dilations further in; without dilation, the edge's own.
    """
    if low == high == 0:
        return x
    size = x.shape[axis]
    first = [min(-j % dilation, size - 1) for j in range(low, 0, -1)]
    last = [max(size - 1 - (-j % dilation), 0) for j in range(1, high + 1)]
    before, after = ([_slice(x, axis, i, 1, 1) for i in edge] for edge in (first, last))
    pieces = [*before, x, *after]
    shape = tuple(n + low + high if i == axis else n for i, n in enumerate(x.shape))
    parts = (
        apply(ops.CONCAT, [piece.parts[j] for piece in pieces], shape, x.type, axis=axis)
        for j in range(len(x.parts))
    )
    return Sharing(tuple(parts), x.form)


def _slice(x: Sharing, axis: int, start: int, step: int, size: int) -> Sharing:
    rank = len(x.shape)
    starts = tuple(start if i == axis else 0 for i in range(rank))
    steps = tuple(step if i == axis else 1 for i in range(rank))
    shape = tuple(size if i == axis else extent for i, extent in enumerate(x.shape))
    if shape == x.shape and step == 1:
        return x
    return x.map(lambda part: apply(ops.SLICE, (part,), shape, x.type, starts=starts, steps=steps))


def _tree(p: Parties, op: Operation, values: Sequence[Sharing], maximum: Maximum) -> Sharing:
    """The maximum of tensors of one shape; all comparisons of a level are one call."""
    left = list(values)
    while len(left) > 1:
        half = len(left) // 2
        together = Operation("maximum", (half * left[0].elements,), op.ring_bits, op.attrs)
        a, b = (_joined(left[i : 2 * half : 2]) for i in (0, 1))
        both = maximum(p, together, a, b)
        left = [_part(both, i, left[0].shape) for i in range(half)] + left[2 * half :]
    return left[0]


def _part(x: Sharing, number: int, shape: Shape) -> Sharing:
    """Tensor `number` of those that stand one after another in x."""
    size = prod(shape)
    return x.map(lambda v: v.chunk(number * size, size).reshape(shape))


def _joined(values: Sequence[Sharing]) -> Sharing:
    """Tensors of one shape as one vector."""
    parts = []
    for j in range(len(values[0].parts)):
        flat = [v.parts[j].reshape((v.elements,)) for v in values]
        parts.append(join(flat, (sum(v.elements for v in values),)))
    return Sharing(tuple(parts), values[0].form)
