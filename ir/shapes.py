"""Result shapes of the graph level's operations, and what makes operands illegal.

Every function takes shapes as tuples and raises ValueError, with the reason, where the operands or
attributes don't fit; nothing is assumed about attributes that came from a file. Layout of images
and kernels is NCHW and OIHW.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int, ...]
Pair = tuple[int, int]


def require(condition: bool, reason: str) -> None:
    """Raises ValueError with `reason` unless `condition` holds."""
    if not condition:
        raise ValueError(reason)


def broadcast(*shapes: Shape) -> Shape:
    """NumPy's broadcasting of any number of shapes."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_common_extent(extents) for extents in zip(*padded, strict=True))


def _common_extent(extents: Sequence[int]) -> int:
    wide = {extent for extent in extents if extent != 1}
    require(len(wide) <= 1, f"extents {sorted(wide)} don't broadcast")
    return wide.pop() if wide else 1


def matmul(a: Shape, b: Shape) -> Shape:
    """NumPy's matmul: vectors get an axis and lose it, leading axes broadcast."""
    require(bool(a) and bool(b), "matmul needs operands of rank 1 or more")
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    require(left[-1] == right[-2], f"inner extents {left[-1]} and {right[-2]} differ")
    rows = left[-2:-1] if len(a) > 1 else ()
    columns = right[-1:] if len(b) > 1 else ()
    return broadcast(left[:-2], right[:-2]) + rows + columns


def window(
    extents: Pair, kernel: Pair, strides: Pair, low: Pair, high: Pair, dilations: Pair
) -> Pair:
    """Output extents of a sliding window over two axes: floor((L + low + high - reach) / s) + 1."""
    for name, pair, least in (
        ("kernel", kernel, 1),
        ("strides", strides, 1),
        ("dilations", dilations, 1),
        ("pads_low", low, 0),
        ("pads_high", high, 0),
    ):
        require(len(pair) == 2 and min(pair) >= least, f"{name} {pair} is not legal")
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    spare = [extent + a + b - r for extent, a, b, r in zip(extents, low, high, reach, strict=True)]
    require(min(spare) >= 0, f"a window of {tuple(reach)} doesn't fit the padded {extents}")
    return spare[0] // strides[0] + 1, spare[1] // strides[1] + 1


def conv(
    x: Shape,
    w: Shape,
    bias: Shape | None,
    strides: Pair,
    pads_low: Pair,
    pads_high: Pair,
    dilations: Pair,
    groups: int,
) -> Shape:
    """x [N, C, H, W], w [O, C / groups, kh, kw], bias [O] to [N, O, H', W']."""
    require(len(x) == 4 and len(w) == 4, "conv needs x [N, C, H, W] and w [O, I, kh, kw]")
    require(groups >= 1 and w[0] % groups == 0, f"{w[0]} channels out in {groups} groups")
    require(x[1] == w[1] * groups, f"{x[1]} channels in, but w takes {w[1]} x {groups} groups")
    require(bias is None or bias == (w[0],), f"bias must be [{w[0]}]")
    extents = window((x[2], x[3]), (w[2], w[3]), strides, pads_low, pads_high, dilations)
    return (x[0], w[0], *extents)


def pool(
    x: Shape, kernel: Pair, strides: Pair, pads_low: Pair, pads_high: Pair, dilations: Pair
) -> Shape:
    """x [N, C, H, W] to [N, C, H', W'], where no window may lie wholly in the padding."""
    require(len(x) == 4, "a pool needs x [N, C, H, W]")
    out = window((x[2], x[3]), kernel, strides, pads_low, pads_high, dilations)
    for axis in range(2):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        last = (out[axis] - 1) * strides[axis] - pads_low[axis]
        require(pads_low[axis] < reach and last < x[2 + axis], "a window sees only padding")
    return (x[0], x[1], *out)


def batch_norm(x: Shape, *parameters: Shape) -> Shape:
    """x [N, C, ...] and four vectors [C]."""
    require(len(x) >= 2, "batch_norm needs x [N, C, ...]")
    require(set(parameters) == {(x[1],)}, f"the parameters must be [{x[1]}]")
    return x


def axis_in(rank: int, axis: int) -> int:
    """`axis`, which must lie in [0, rank)."""
    require(0 <= axis < rank, f"axis {axis} is outside rank {rank}")
    return axis


def reduce(x: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """`x` with `axes` (non-negative, each once) made 1 or dropped."""
    require(len(set(axes)) == len(axes) > 0, f"axes {tuple(axes)} must be distinct, one or more")
    gone = {axis_in(len(x), axis) for axis in axes}
    if keepdims:
        return tuple(1 if axis in gone else extent for axis, extent in enumerate(x))
    return tuple(extent for axis, extent in enumerate(x) if axis not in gone)


def reshape(x: Shape, wanted: Shape) -> Shape:
    """`wanted`, of as many elements as `x`."""
    require(math.prod(x) == math.prod(wanted), f"{x} and {wanted} differ in element count")
    return wanted


def transpose(x: Shape, permutation: Sequence[int]) -> Shape:
    """Axis i of the result is axis permutation[i] of `x`."""
    require(sorted(permutation) == list(range(len(x))), f"{permutation} permutes no rank {len(x)}")
    return tuple(x[axis] for axis in permutation)


def concat(shapes: Sequence[Shape], axis: int) -> Shape:
    """Shapes that agree but along `axis`, where they are added."""
    first = shapes[0]
    axis_in(len(first), axis)
    rest = {(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}
    require(len(rest) == 1, f"shapes {list(shapes)} don't join along axis {axis}")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def slice_(x: Shape, starts: Sequence[int], steps: Sequence[int], wanted: Shape) -> Shape:
    """Element i of the result is element start + i * step of `x`, along each axis."""
    require(len(x) == len(starts) == len(steps) == len(wanted), "one start and step an axis")
    for extent, start, step, count in zip(x, starts, steps, wanted, strict=True):
        last = start + (count - 1) * step
        require(count >= 1 and step != 0, f"extent {count} and step {step} are not legal")
        require(0 <= start < extent and 0 <= last < extent, f"{start} to {last} leaves {extent}")
    return wanted


def pad(x: Shape, low: Sequence[int], high: Sequence[int]) -> Shape:
    """`x` with low[i] elements before and high[i] after it along axis i."""
    require(len(x) == len(low) == len(high), "one low and high an axis")
    require(min((*low, *high), default=0) >= 0, "padding can't be negative")
    return tuple(a + extent + b for a, extent, b in zip(low, x, high, strict=True))


def expand(x: Shape, wanted: Shape) -> Shape:
    """`wanted`, to which `x` broadcasts."""
    require(broadcast(x, wanted) == wanted, f"{x} doesn't expand to {wanted}")
    return wanted
