"""Which operands go with which result: the rules of shapes and types that ir/party/ops.py names.

A rule sees tensors alone, the result first: their shapes, types and the result's attributes. It is
asked of a stranger's text, so it holds for any numbers; ir/meaning/party.py computes what it lets
through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

from veilgraph.ir.types import CompareWords, Kind, Type, blocks, planes, point_levels, words

LARGEST = 1 << 31  # of what is a geometry's: strides, pads, starts, ...
MOST_INDEX_BITS = 31  # of a point function
COMPARED_BITS = range(3, 64)  # of a comparison function
MOST_PAYLOADS = 3


class Tensor(Protocol):
    """A node, as a rule sees it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def type(self) -> Type: ...

    @property
    def elements(self) -> int: ...

    def __getitem__(self, name: str) -> Any: ...


Fits = Callable[[Tensor, Sequence[Tensor]], bool]


# Between words and bits


def cast(node: Tensor, x: Sequence[Tensor]) -> bool:
    return x[0].type.kind is Kind.WORDS


def select(node: Tensor, x: Sequence[Tensor]) -> bool:
    return x[0].type == planes(1) and x[1].type == x[2].type == node.type


def unpack(node: Tensor, x: Sequence[Tensor]) -> bool:
    return x[0].type.kind is Kind.PLANES and 1 <= x[0].type.bits <= node.type.word_bits


def pack(node: Tensor, x: Sequence[Tensor]) -> bool:
    words = x[0].type.kind is Kind.WORDS
    return words and 0 <= node["low"] <= node["low"] + node.type.bits <= x[0].type.bits


def some_planes(node: Tensor, x: Sequence[Tensor]) -> bool:
    start, step, count = node["start"], node["step"], node.type.bits
    last = start + (count - 1) * step
    some = count == 0 or (start >= 0 and step > 0 and last < x[0].type.bits)
    return some and x[0].type.kind is Kind.PLANES


def stack(node: Tensor, x: Sequence[Tensor]) -> bool:
    return all(each.type.kind is Kind.PLANES for each in x) and node.type.bits == sum(
        each.type.bits for each in x
    )


def shift(node: Tensor, x: Sequence[Tensor]) -> bool:
    return node.type.kind is Kind.WORDS and 0 <= node["bits"] < node.type.bits


# Layout


def reshape(node: Tensor, x: Sequence[Tensor]) -> bool:
    return node.elements == x[0].elements


def chunk(node: Tensor, x: Sequence[Tensor]) -> bool:
    start = node["start"]
    return len(node.shape) == 1 and 0 <= start <= start + node.elements <= x[0].elements


def join(node: Tensor, x: Sequence[Tensor]) -> bool:
    return node.shape == (sum(each.elements for each in x),)


def concat(node: Tensor, x: Sequence[Tensor]) -> bool:
    axis = node["axis"]
    if not 0 <= axis < len(node.shape) or any(len(y.shape) != len(node.shape) for y in x):
        return False
    sides = {(*y.shape[:axis], *y.shape[axis + 1 :]) for y in (*x, node)}
    return len(sides) == 1 and sum(y.shape[axis] for y in x) == node.shape[axis]


def transpose(node: Tensor, x: Sequence[Tensor]) -> bool:
    order = node["permutation"]
    is_order = sorted(order) == list(range(len(x[0].shape)))
    return is_order and node.shape == tuple(x[0].shape[axis] for axis in order)


def take_slice(node: Tensor, x: Sequence[Tensor]) -> bool:
    starts, steps, sizes = node["starts"], node["steps"], x[0].shape
    if not len(starts) == len(steps) == len(sizes) == len(node.shape):
        return False
    return all(
        count == 0 or (0 <= start < size and 0 <= start + (count - 1) * step < size)
        for start, step, size, count in zip(starts, steps, sizes, node.shape, strict=True)
    )


def pad(node: Tensor, x: Sequence[Tensor]) -> bool:
    low, high, sizes = node["low"], node["high"], x[0].shape
    if not len(low) == len(high) == len(sizes) or min((*low, *high), default=0) < 0:
        return False
    padded = zip(low, sizes, high, strict=True)
    return node.shape == tuple(a + size + b for a, size, b in padded)


def broadcast(node: Tensor, x: Sequence[Tensor]) -> bool:
    lead = len(node.shape) - len(x[0].shape)
    return lead >= 0 and all(n in (1, node.shape[lead + i]) for i, n in enumerate(x[0].shape))


# Sums and products


def reduce_sum(node: Tensor, x: Sequence[Tensor]) -> bool:
    axes, sizes = node["axes"], x[0].shape
    is_set = len(set(axes)) == len(axes) and all(0 <= axis < len(sizes) for axis in axes)
    return is_set and node.shape == tuple(1 if i in axes else n for i, n in enumerate(sizes))


def matmul(node: Tensor, x: Sequence[Tensor]) -> bool:
    if len(x) % 2 or any(len(y.shape) != 3 for y in (*x, node)):
        return False
    batch, rows, columns = node.shape
    return all(
        (a.shape[:2], b.shape[0], b.shape[2]) == ((batch, rows), batch, columns)
        and a.shape[2] == b.shape[1]
        for a, b in zip(x[::2], x[1::2], strict=True)
    )


def conv2d(node: Tensor, x: Sequence[Tensor]) -> bool:
    if len(x) % 2 or any(len(y.shape) != 4 for y in (*x, node)):
        return False
    groups = node["groups"]
    if not (_is_geometry(node, "strides", "dilations") and 0 < groups < LARGEST):
        return False
    if any(y.shape != x[i % 2].shape for i, y in enumerate(x)):
        return False
    image, filters = x[0].shape, x[1].shape
    fits = image[1] == filters[1] * groups and filters[0] % groups == 0
    return fits and node.shape[:2] == (image[0], filters[0])


def pool_sum(node: Tensor, x: Sequence[Tensor]) -> bool:
    ranked = len(node.shape) == len(x[0].shape) == 4 and node.shape[:2] == x[0].shape[:2]
    return ranked and _is_geometry(node, "kernel", "strides")


def _is_geometry(node: Tensor, *positive: str) -> bool:
    """Pairs, of which these count from one; pads may not be negative."""
    pairs = [node[name] for name in positive]
    pads = node["pads_low"]
    return all(len(p) == 2 and min(p) > 0 for p in pairs) and len(pads) == 2 and min(pads) >= 0


# Point functions


def point_words(node: Tensor, x: Sequence[Tensor]) -> bool:
    key, first, second, index = x
    index_bits, ring_bits = node["index_bits"], node["ring_bits"]
    if not (1 <= index_bits <= MOST_INDEX_BITS and 1 <= ring_bits <= 64):
        return False
    are_roots = all(each.type == blocks() and each.shape == index.shape for each in (first, second))
    is_index = _are_numbers(index, index_bits)
    size = point_levels(index_bits, ring_bits) + 2
    shapes = node.shape == (*index.shape, size) and key.shape == (1,)
    return shapes and are_roots and is_index and key.type == blocks()


def point_rows(node: Tensor, x: Sequence[Tensor]) -> bool:
    if len(x) not in (3, 4) or len(node.shape) != 2 or node["side"] not in (0, 1):
        return False
    (key, roots, words), opened = x[:3], x[3:]
    index_bits, (count, places) = node["index_bits"], node.shape
    if not 1 <= index_bits <= MOST_INDEX_BITS or places > 1 << index_bits:
        return False
    size = point_levels(index_bits, node.type.bits) + 2
    shapes = (key.shape, roots.shape, words.shape) == ((1,), (count,), (count, size))
    are_indices = all(_are_numbers(c, index_bits) and c.shape == (count,) for c in opened)
    return shapes and are_indices and all(each.type == blocks() for each in (key, roots, words))


# Comparison functions


def compare_words(node: Tensor, x: Sequence[Tensor]) -> bool:
    layout = _compare_layout(node)
    if layout is None or len(x) != 4 + len(layout.rings):
        return False
    (key, first, second, threshold), payloads = x[:4], x[4:]
    shape = threshold.shape
    are_roots = all(each.type == blocks() and each.shape == shape for each in (first, second))
    are_payloads = all(
        each.type == words(bits) and each.shape == shape
        for each, bits in zip(payloads, layout.rings, strict=True)
    )
    made = node.type == words(layout.word_bits) and node.shape == (layout.size(prod(shape)),)
    return made and are_roots and are_payloads and _is_compared(key, threshold, layout)


def compare_parts(node: Tensor, x: Sequence[Tensor]) -> bool:
    layout = _compare_layout(node)
    if layout is None or node["side"] not in (0, 1) or len(x) != 4 + len(layout.rings):
        return False
    (key, roots, points), sections = x[:3], x[3:]
    count = points.elements
    types = [words(layout.word_bits), *map(words, layout.rings)]
    are_sections = all(
        each.type == type and each.shape == (length,)
        for each, type, (_, length) in zip(sections, types, layout.sections(count), strict=True)
    )
    made = node.type == words(max(layout.rings)) and node.shape == (len(layout.rings) * count,)
    are_roots = roots.type == blocks() and roots.shape == points.shape
    return made and are_sections and are_roots and _is_compared(key, points, layout)


def _compare_layout(node: Tensor) -> CompareWords | None:
    index_bits, rings = node["index_bits"], node["rings"]
    if index_bits not in COMPARED_BITS or not 1 <= len(rings) <= MOST_PAYLOADS:
        return None
    return CompareWords(index_bits, rings) if all(1 <= bits <= 64 for bits in rings) else None


def _is_compared(key: Tensor, numbers: Tensor, layout: CompareWords) -> bool:
    are_numbers = _are_numbers(numbers, layout.index_bits)
    return key.shape == (1,) and key.type == blocks() and are_numbers


def _are_numbers(x: Tensor, bits: int) -> bool:
    """Whether kernels may read so many bits of each element of a vector."""
    return x.type.kind is Kind.WORDS and len(x.shape) == 1 and x.type.bits >= bits


def same_shape(node: Tensor, x: Sequence[Tensor]) -> bool:
    return node.shape == x[0].shape
