"""Operators of PyTorch that are written otherwise before the importer sees them.

Each entry says in torch what an operator computes, with operators that the aten table has; torch
itself traces it. Where a form isn't covered an entry gives NotImplemented, and the operator stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.utils import _pytree as trees

from veilgraph.frontend.torch import elementary as torch_elementary
from veilgraph.frontend.torch import layout as torch_moves
from veilgraph.frontend.torch import resampling as torch_resampling
from veilgraph.frontend.torch import spectra as torch_spectra
from veilgraph.frontend.torch.constants import is_marked

aten = torch.ops.aten


def clamped(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """min(max(x, low), high)."""
    if low == 0 and high is None:
        return torch.relu(x)
    for bound in (low, high):
        x = x if bound is None else x.to(torch.result_type(x, bound))
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    return torch.nn.functional.hardtanh(x, *bounds)


def total(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """The sum of all elements."""
    return x.sum(tuple(range(x.dim())), dtype=dtype)


def average(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """The mean of all elements."""
    return x.mean(tuple(range(x.dim())), dtype=dtype)


def variance(
    x: Tensor, dim: Sequence[int] | None = None, unbiased: bool = True, keepdim: bool = False
) -> Tensor:
    """The mean square distance from the mean, over n or n - 1."""
    return corrected_variance(x, dim, correction=int(unbiased), keepdim=keepdim)


def corrected_variance(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    """The sum of squared distances from the mean, over n - correction."""
    axes = tuple(dim) if dim else tuple(range(x.dim()))
    centred = x - x.mean(axes, keepdim=True)
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = count - (1 if correction is None else correction)
    if divisor <= 0:
        raise ValueError(f"a variance over {count} numbers with this correction is no number")
    return (centred * centred).sum(axes, keepdim=keepdim) * (1 / divisor)


def deviation(*args: Any, **kwargs: Any) -> Tensor:
    return variance(*args, **kwargs).sqrt()


def corrected_deviation(*args: Any, **kwargs: Any) -> Tensor:
    return corrected_variance(*args, **kwargs).sqrt()


def vector_norm(
    x: Tensor,
    ord: float | None = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """(sum of |x|^p)^(1/p), or the largest or the least magnitude."""
    ord = 2 if ord is None else ord
    axes = tuple(dim) if dim else tuple(range(x.dim()))
    if ord == 2:
        return (x * x).sum(axes, keepdim=keepdim).sqrt()
    if math.isinf(ord):
        return (x.abs().amax if ord > 0 else x.abs().amin)(axes, keepdim=keepdim)
    if ord == 1:
        return x.abs().sum(axes, keepdim=keepdim)
    if ord <= 0:
        return NotImplemented
    return (x.abs() ** ord).sum(axes, keepdim=keepdim) ** (1 / ord)


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v / |v|, magnitudes over all axes but one, or over all (-1: None as torch writes it)."""
    axes = [axis for axis in range(v.dim()) if axis != dim]
    return v * (g / vector_norm(v, 2, axes, keepdim=True))


def group_norm(
    x: Tensor,
    groups: int,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) over each image's groups of channels, times gamma plus
    beta by channel.
    """
    grouped = x.reshape(x.shape[0], groups, -1)
    centred = grouped - grouped.mean(-1, keepdim=True)
    square = (centred * centred).mean(-1, keepdim=True)
    y = (centred * torch.rsqrt(square + eps)).reshape(x.shape)
    column = (-1, *(1 for _ in x.shape[2:]))
    y = y if gamma is None else y * gamma.view(column)
    return y if beta is None else y + beta.view(column)


def instance_norm(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """A group for each channel; with weights the importer knows it."""
    if gamma is not None or not use_input_stats:
        return NotImplemented
    return group_norm(x, x.shape[1], None, beta, eps)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """max(x, 0) - slope max(-x, 0), slopes by channel."""
    if slope.numel() == 1:
        return NotImplemented
    return torch.relu(x) - slope.view(-1, *(1 for _ in x.shape[2:])) * torch.relu(-x)


def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Elements moved along axes, those that leave coming in again."""
    if not dims:
        return roll(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, axis in zip(shifts, dims, strict=True):
        cut = x.shape[axis] - shift % x.shape[axis]
        rest = x.shape[axis] - cut
        x = torch.cat([x.narrow(axis, cut, rest), x.narrow(axis, 0, cut)], axis) if rest else x
    return x


def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """[..., C r r, H, W] to [..., C, H r, W r]."""
    *lead, c, h, w = x.shape
    y = x.reshape(-1, c // factor**2, factor, factor, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(*lead, c // factor**2, h * factor, w * factor)


def masked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale Q K^T, masked) V; without a mask the importer knows it. With fewer keys than
    queries each goes with several. Of what is drawn at random, a share of the softmax is dropped.
    """
    if not (dropout_p or enable_gqa or is_causal or attn_mask is not None):
        return NotImplemented
    if enable_gqa:
        k, v = (y.repeat_interleave(q.shape[-3] // y.shape[-3], -3) for y in (k, v))
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.dropout(scores.softmax(-1), dropout_p, dropout_p > 0) @ v


def unbound(x: Tensor, dim: int = 0) -> list[Tensor]:
    """The parts of extent 1 along an axis, without it."""
    return [x.narrow(dim, place, 1).squeeze(dim) for place in range(x.shape[dim])]


def spread_and_mean(spread: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """A variance or a deviation, and the mean."""

    def row(
        x: Tensor, dim: Sequence[int] | None = None, *args: Any, **named: Any
    ) -> tuple[Tensor, Tensor]:
        y = spread(x, dim, *args, **named)
        mean = x.mean(tuple(dim) if dim else tuple(range(x.dim())), keepdim=True)
        return y, mean.reshape(y.shape)

    return row


def einsum(equation: str, operands: Sequence[Tensor], *, path: Sequence[int] | None = None) -> Any:
    """The importer knows it, but for diagonals."""
    terms = equation.partition("->")[0].split(",")
    diagonal = any(len(set(term)) < len(term) for term in (t.replace(".", "") for t in terms))
    return OF_TORCH[aten.einsum.default](equation, operands) if diagonal else NotImplemented


def _of_torch(names: str) -> dict[Any, Callable[..., Any]]:
    """torch's own decompositions of these operators, those of its composite kernels too."""
    core = core_aten_decompositions()
    found = {}
    for name in names.split():
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(aten, packet), overload or "default")
        found[operator] = core[operator] if operator in core else decomposition_table[operator]
    return found


OF_TORCH = _of_torch(
    "__and__.Tensor __or__.Tensor __xor__.Tensor argsort binary_cross_entropy_with_logits "
    "channel_shuffle cosine_similarity cross_entropy_loss diag diff dist einsum fill.Tensor "
    "gru.input gru_cell huber_loss kl_div kron l1_loss linalg_cross linalg_multi_dot linalg_norm "
    "lstm.input lstm_cell matrix_power meshgrid "
    "meshgrid.indexing outer pairwise_distance pixel_unshuffle rnn_relu.input rnn_relu_cell "
    "rnn_tanh.input rnn_tanh_cell sinc smooth_l1_loss take_along_dim tensordot trace trapezoid.dx "
    "triplet_margin_loss vdot"
)
ROWS: dict[Any, Callable[..., Any]] = {
    # Memory that nothing was written to may hold anything: zeros, the same in every compile.
    aten.empty.memory_format: lambda size, *, memory_format=None, **kind: torch.zeros(size, **kind),
    aten.empty_like.default: lambda x, *, memory_format=None, **kind: torch.zeros_like(x, **kind),
    aten.new_empty.default: lambda x, size, **kind: x.new_zeros(size, **kind),
    aten.zero.default: lambda x: torch.zeros_like(x),
    aten._neg_view.default: torch.neg,
    aten.clamp.default: clamped,
    aten.clamp_min.default: lambda x, low: clamped(x, low),
    aten.clamp_max.default: lambda x, high: clamped(x, None, high),
    aten.rsub.Scalar: lambda x, y, alpha=1: torch.neg(x) * alpha + y,
    aten.log1p.default: lambda x: torch.log(x + 1.0),
    aten.expm1.default: lambda x: torch.exp(x) - 1.0,
    aten.square.default: lambda x: x * x,
    aten.sum.default: total,
    aten.mean.default: average,
    aten.var.dim: variance,
    aten.var.correction: corrected_variance,
    aten.std.dim: deviation,
    aten.std.correction: corrected_deviation,
    aten.var_mean.dim: spread_and_mean(variance),
    aten.var_mean.correction: spread_and_mean(corrected_variance),
    aten.std_mean.dim: spread_and_mean(deviation),
    aten.std_mean.correction: spread_and_mean(corrected_deviation),
    aten.linalg_vector_norm.default: vector_norm,
    aten.norm.Scalar: vector_norm,
    aten.norm.ScalarOpt_dim: vector_norm,
    aten._weight_norm.default: weight_norm,
    aten.group_norm.default: group_norm,
    aten.instance_norm.default: instance_norm,
    aten.prelu.default: prelu,
    aten.roll.default: roll,
    aten.pixel_shuffle.default: pixel_shuffle,
    aten.einsum.default: einsum,
    aten.unbind.int: unbound,
    aten.unsafe_split.Tensor: lambda x, size, dim=0: list(x.split(size, dim)),
    aten.scaled_dot_product_attention.default: masked_attention,
}


def _undecomposed(row: Callable[..., Any]) -> Callable[..., Any]:
    """A row that leaves alone what another row wants to stay as it is, and complex numbers."""

    def of_real_numbers(*args: Any, **kwargs: Any) -> Any:
        read = trees.tree_leaves((args, kwargs))
        complex = any(isinstance(x, Tensor) and x.is_complex() for x in read)
        return NotImplemented if complex or is_marked() else row(*args, **kwargs)

    return of_real_numbers


TABLES = (
    OF_TORCH,
    ROWS,
    torch_elementary.ROWS,
    torch_moves.ROWS,
    torch_resampling.ROWS,
    torch_spectra.ROWS,
)
DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    operator: _undecomposed(row) for table in TABLES for operator, row in table.items()
}
IN_TRAINING: Mapping[Any, Callable[..., Any]] = {
    aten.embedding.default: _undecomposed(torch_moves.trained_embedding)
}
