"""Operators of PyTorch that move elements, by places that no input goes into.

Where an element comes from is found by moving the elements' numbers instead: torch computes that
once. What is added up at a place, or kept of a triangle, is a product with zeros and ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from veilgraph.frontend.torch.constants import public
from veilgraph.frontend.torch.resampling import along

aten = torch.ops.aten
Row = Callable[..., Any]


def _numbers(x: Tensor, first: int = 0) -> Tensor:
    """The elements' numbers, from `first`, in the shape of x."""
    return torch.arange(first, first + x.numel()).reshape(x.shape)


def _picked(x: Tensor, places: Tensor) -> Tensor:
    """The elements of these numbers."""
    return x.flatten().index_select(0, places.flatten()).reshape(places.shape)


def _hot(places: Tensor, extent: int) -> Tensor:
    """[count, extent]: a row for each place, 1 there and 0 elsewhere."""
    return (places.flatten().unsqueeze(-1) == torch.arange(extent)).float()


def put(write: Callable[..., Tensor]) -> Row:
    """Elements of `source` written over some of x's, as `write(x, source, ...)` does it."""

    def row(x: Tensor, source: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with public():
            places = write(_numbers(x), _numbers(source, x.numel()), *args, **kwargs)
        return _picked(torch.cat([x.flatten(), source.flatten()]), places)

    return row


def scatter(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Elements of `source` written over some of x's, along an axis."""
    row = put(lambda numbers, values: numbers.scatter(dim, index, values))
    return row(x, source[tuple(slice(extent) for extent in index.shape)])


def scatter_number(x: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """The same of one number."""
    with public():
        mask = torch.zeros(x.shape).scatter(dim, index, 1.0) > 0
    return torch.where(mask, value, x)


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Elements of `source` added to some of x's, along an axis."""
    used = source[tuple(slice(extent) for extent in index.shape)]
    with public():
        matrix = _hot(_numbers(x).gather(dim, index), x.numel()).to(source.dtype)
    return x + (used.reshape(1, -1) @ matrix).reshape(x.shape)


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Parts of `source` added to some of x's, along an axis."""
    with public():
        matrix = _hot(index, x.shape[dim]).to(source.dtype)
    return x + along(source, dim, matrix) * alpha


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Parts of `source` written over some of x's, along an axis."""
    extent = x.shape[dim]
    with public():
        new = torch.arange(extent, extent + source.shape[dim])
        places = torch.arange(extent).index_copy(0, index, new)
    return torch.cat([x, source], dim).index_select(dim, places)


def index_fill(x: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """One number written over parts of x, along an axis."""
    with public():
        mask = torch.zeros(x.shape).index_fill(dim, index, 1.0) > 0
    return torch.where(mask, value, x)


def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Elements written or added where several indices say, or one number where a mask does."""
    mask = indices[0]
    if mask is not None and mask.dtype == torch.bool:
        if len(indices) > 1 or values.numel() > 1 or accumulate:
            return NotImplemented
        return torch.where(mask.reshape(*mask.shape, *(1,) * (x.dim() - mask.dim())), values, x)
    with public():
        places = aten.index.Tensor(_numbers(x), indices)
        if accumulate:
            matrix = _hot(places, x.numel()).to(values.dtype)
    wide = values.expand(places.shape)
    if accumulate:
        return x + (wide.reshape(1, -1) @ matrix).reshape(x.shape)
    flat = put(lambda numbers, new: numbers.flatten().scatter(0, places.flatten(), new.flatten()))
    return flat(x, wide).reshape(x.shape)


def indexed(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[indices], of integers along some axes."""
    given = [axis for axis, index in enumerate(indices) if index is not None]
    first = indices[given[0]]
    if first is None or any(i is not None and i.dtype == torch.bool for i in indices):
        return NotImplemented
    if len(given) > 1:
        with public():
            places = aten.index.Tensor(_numbers(x), indices)
        return _picked(x, places)
    axis = given[0]
    with public():
        places = aten.index.Tensor(torch.arange(x.shape[axis]), [first])
    chosen = x.index_select(axis, places.flatten())
    return chosen.reshape(*x.shape[:axis], *first.shape, *x.shape[axis + 1 :])


def taken(x: Tensor, index: Tensor) -> Tensor:
    """Elements by number."""
    with public():
        places = torch.remainder(index.flatten(), x.numel())
    return x.flatten().index_select(0, places).reshape(index.shape)


def padded(x: Tensor, pads: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    """Padding with what is there, one axis after another."""
    if mode == "constant":
        return NotImplemented
    for i in range(len(pads) // 2):
        axis, sides = x.dim() - 1 - i, list(pads[2 * i : 2 * i + 2])
        with public():
            numbers = torch.arange(x.shape[axis], dtype=torch.float32)[None]
            places = functional.pad(numbers, sides, mode)[0].long()
        x = x.index_select(axis, places) if any(sides) else x
    return x


def padding(mode: str) -> Row:
    return lambda x, pads: padded(x, pads, mode)


def triangle(keep: Callable[[Tensor, int], Tensor]) -> Row:
    """One of both triangles of each matrix, zeros elsewhere."""

    def row(x: Tensor, diagonal: int = 0) -> Tensor:
        with public():
            mask = keep(torch.ones(x.shape[-2:]), diagonal) > 0
        return torch.where(mask, x, torch.zeros((), dtype=x.dtype))

    return row


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of each matrix, as the last axis."""
    last = x.movedim((dim1, dim2), (-2, -1))
    with public():
        matrix = torch.zeros(last.shape[-2:])
        places = torch.diagonal(_numbers(matrix), offset)
    return last.flatten(-2).index_select(-1, places)


def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of these diagonals."""
    with public():
        places = torch.diag_embed(torch.arange(1, x.shape[-1] + 1), offset)
    wide = functional.pad(x, (1, 0)).index_select(-1, places.flatten())
    return wide.unflatten(-1, places.shape).movedim((-2, -1), (dim1, dim2))


def squeezed(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Without these axes, where their extent is 1."""
    gone = {axis % max(1, x.dim()) for axis in dims}
    return x.reshape([n for axis, n in enumerate(x.shape) if n != 1 or axis not in gone])


def windows(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows along an axis, their elements as the last one."""
    axis = dim % x.dim()
    with public():
        places = torch.arange(x.shape[axis]).unfold(0, size, step)
    apart = x.index_select(axis, places.flatten()).unflatten(axis, places.shape)
    return apart.movedim(axis + 1, -1)


def columns(
    x: Tensor,
    kernel: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """im2col: the elements of each window as a column, [.., C kh kw, windows]."""
    wide = functional.pad(x, (pads[1], pads[1], pads[0], pads[0]))
    counts = _windows(x.shape[-2:], kernel, dilation, pads, stride)
    parts = [
        wide[..., i : i + (counts[0] - 1) * stride[0] + 1 : stride[0], :][
            ..., j : j + (counts[1] - 1) * stride[1] + 1 : stride[1]
        ]
        for i in range(0, kernel[0] * dilation[0], dilation[0])
        for j in range(0, kernel[1] * dilation[1], dilation[1])
    ]
    return torch.stack(parts, -3).flatten(-4, -3).flatten(-2)


def _windows(
    extents: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[int],
    stride: Sequence[int],
) -> list[int]:
    """How many windows there are along both axes."""
    return [
        (extents[i] + 2 * pads[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]


def image(
    x: Tensor,
    extents: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """col2im: each column added where its window lies."""
    high, wide = _windows(extents, kernel, dilation, pads, stride)
    parts = x.unflatten(-1, (high, wide)).unflatten(-3, (-1, kernel[0], kernel[1]))
    rows, across = stride[0], stride[1]
    total = torch.zeros(())
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = parts[..., i, j, :, :]
            apart = functional.pad(part[..., None, :, None], (0, across - 1, 0, 0, 0, rows - 1))
            spread = apart.flatten(-2).flatten(-3, -2)
            top, left = i * dilation[0] - pads[0], j * dilation[1] - pads[1]
            bottom = extents[0] - top - high * rows
            right = extents[1] - left - wide * across
            total = total + functional.pad(spread, (left, right, top, bottom))
    return total


def one_hot(x: Tensor, classes: int = -1) -> Tensor:
    """[.., classes]: 1 at the place that an integer says, 0 elsewhere."""
    if classes < 0:
        return NotImplemented
    with public():
        numbers = torch.arange(classes)
    return (x.unsqueeze(-1) == numbers).long()


def embedding(
    table: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a table at `indices`: one-hot rows times it, for indices that are data."""
    return _looked_up(table, indices, torch.arange(table.shape[0]))


def trained_embedding(
    table: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The same in training: a row that pads is zero (tracing.py), and has no gradient."""
    numbers = torch.arange(table.shape[0])
    return _looked_up(table, indices, torch.where(numbers == padding_idx, -1, numbers))


def _looked_up(table: Tensor, indices: Tensor, numbers: Tensor) -> Tensor:
    """The rows that have these numbers; zeros where none has."""
    hot = indices.unsqueeze(-1) == numbers
    return hot.float() @ table


def embedding_bag(
    table: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> Any:
    """Sums or means of a table's rows, of stretches of `indices`."""
    skipped = padding_idx is not None and padding_idx >= 0
    if mode > 1 or include_last_offset or skipped:
        return NotImplemented
    rows = embedding(table, indices)
    if weights is not None:
        rows = rows * weights.unsqueeze(-1)
    with public():
        starts = torch.arange(indices.shape[0]).unsqueeze(-1) >= offsets
        bags = _hot(starts.long().sum(1) - 1, offsets.shape[0]).t()
        bags = bags / bags.sum(1, keepdim=True).clamp(min=1) if mode else bags
    return bags @ rows, offsets, offsets, offsets


ROWS: dict[Any, Row] = {
    aten.scatter.src: scatter,
    aten.scatter.value: scatter_number,
    aten.scatter_add.default: scatter_add,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_put.default: index_put,
    aten.select_scatter.default: put(aten.select_scatter.default),
    aten.slice_scatter.default: put(aten.slice_scatter.default),
    aten.diagonal_scatter.default: put(aten.diagonal_scatter.default),
    aten.index.Tensor: indexed,
    aten.take.default: taken,
    aten.pad.default: padded,
    aten.reflection_pad1d.default: padding("reflect"),
    aten.reflection_pad2d.default: padding("reflect"),
    aten.reflection_pad3d.default: padding("reflect"),
    aten.replication_pad1d.default: padding("replicate"),
    aten.replication_pad2d.default: padding("replicate"),
    aten.replication_pad3d.default: padding("replicate"),
    aten.tril.default: triangle(torch.tril),
    aten.triu.default: triangle(torch.triu),
    aten.diagonal.default: diagonal,
    aten.diagonal_copy.default: diagonal,
    aten.diag_embed.default: diag_embed,
    aten.squeeze.dims: squeezed,
    aten.unfold.default: windows,
    aten.im2col.default: columns,
    aten.col2im.default: image,
    aten.one_hot.default: one_hot,
    aten.embedding.default: embedding,
    aten.embedding_bag.padding_idx: embedding_bag,
}
