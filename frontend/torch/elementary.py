"""Functions and reductions of PyTorch, of the few that the aten table has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from veilgraph.frontend.onnx.operators.trigonometry import ARC

aten = torch.ops.aten
Row = Callable[..., Any]
Number: TypeAlias = Tensor | float


def _sign(y: Number) -> Number:
    return y.sign() if isinstance(y, Tensor) else math.copysign(1, y)


def floored(x: Tensor, y: Number) -> Tensor:
    """floor(x / y); of integers from the middle between two, so that it is exact."""
    if x.is_floating_point() or _is_real(y):
        return (x / y).floor()
    return ((x + 0.5 * _sign(y)) / y).floor().to(x.dtype)


def _is_real(y: Number) -> bool:
    return y.is_floating_point() if isinstance(y, Tensor) else isinstance(y, float)


def truncated(x: Tensor, y: Number) -> Tensor:
    """x / y without its fraction."""
    if x.is_floating_point() or _is_real(y):
        return (x / y).trunc()
    return floored(x.abs(), abs(y)) * (x.sign() * _sign(y)).to(x.dtype)


def quotient(x: Tensor, y: Number, *, rounding_mode: str | None = None) -> Tensor:
    """A quotient, or its integer part."""
    if rounding_mode is None:
        return x / y
    return floored(x, y) if rounding_mode == "floor" else truncated(x, y)


def remainder(x: Tensor, y: Number) -> Tensor:
    """x - y floor(x / y), of y's sign."""
    return x - floored(x, y) * y


def fmod(x: Tensor, y: Number) -> Tensor:
    """x - y trunc(x / y), of x's sign."""
    return x - truncated(x, y) * y


def power(x: Tensor, y: Tensor) -> Tensor:
    """e^(y ln x), of numbers above zero."""
    return torch.exp(y * torch.log(x))


def power_of_number(base: float, y: Tensor) -> Tensor:
    """base^y."""
    return torch.exp(y * math.log(base)) if base > 0 else NotImplemented


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """ln(1 + e^(beta x)) / beta."""
    return NotImplemented if beta == 1 else functional.softplus(x * beta, 1, threshold) / beta


def log_sum_exp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """m + ln(sum of e^(x - m)), m the maximum, so that no exponential overflows."""
    axes = tuple(dim) or tuple(range(x.dim()))
    largest = x.amax(axes, keepdim=True)
    y = largest + (x - largest).exp().sum(axes, keepdim=True).log()
    return y if keepdim else y.reshape(x.sum(axes).shape)


def log_add_exp(x: Tensor, y: Tensor) -> Tensor:
    """ln(e^x + e^y)."""
    return torch.maximum(x, y) + functional.softplus(-(x - y).abs())


def _arc(size: Tensor) -> Tensor:
    """acos of magnitudes below 1, see trigonometry.py."""
    polynomial = ((ARC[3] * size + ARC[2]) * size + ARC[1]) * size + ARC[0]
    return (1 - size).sqrt() * polynomial


def inverse_sine(x: Tensor) -> Tensor:
    rest = math.pi / 2 - _arc(x.abs())
    return torch.where(x >= 0, rest, -rest)


def inverse_cosine(x: Tensor) -> Tensor:
    arc = _arc(x.abs())
    return torch.where(x >= 0, arc, math.pi - arc)


def quadrant(y: Tensor, x: Tensor) -> Tensor:
    """The angle of (x, y): the arc tangent of the smaller over the larger, put where it lies."""
    across, up = x.abs(), y.abs()
    angle = torch.atan(torch.minimum(across, up) / torch.maximum(across, up))
    angle = torch.where(up > across, math.pi / 2 - angle, angle)
    angle = torch.where(x >= 0, angle, math.pi - angle)
    return torch.where(y >= 0, angle, -angle)


def inverse_hyperbolic_sine(x: Tensor) -> Tensor:
    """sign(x) ln(|x| + sqrt(x^2 + 1))."""
    return x.sign() * (x.abs() + (x * x + 1).sqrt()).log()


def copy_sign(x: Tensor, y: Tensor) -> Tensor:
    """|x| with the sign of y."""
    size = x.abs()
    return torch.where(y >= 0, size, -size)


def bounded(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """min(max(x, low), high), bounds that are tensors."""
    y = x if low is None else torch.maximum(x, low)
    return y if high is None else torch.minimum(y, high)


def _counted(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Of a type, or truth values as integers."""
    if dtype is None:
        return x.long() if x.dtype == torch.bool else x
    return x.to(dtype)


def product(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """The product of all elements."""
    return product_along(x.flatten(), 0, dtype=dtype)


def product_along(
    x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """A tree of products."""
    y = _counted(x, dtype)
    while (size := y.shape[dim]) > 1:
        half = size // 2
        pairs = y.narrow(dim, 0, half) * y.narrow(dim, half, half)
        y = torch.cat([pairs, y.narrow(dim, 2 * half, 1)], dim) if size % 2 else pairs
    return y if keepdim else y.squeeze(dim)


def running_product(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Products of the first 1, 2, 3... elements, in about log n multiplications of all."""
    y = _counted(x, dtype)
    size, reach = y.shape[dim], 1
    while reach < size:
        moved = y.narrow(dim, reach, size - reach) * y.narrow(dim, 0, size - reach)
        y = torch.cat([y.narrow(dim, 0, reach), moved], dim)
        reach *= 2
    return y


def any_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether one is no zero: whether there are more than half of one."""
    return _count(x, dim, keepdim) > 0.5


def all_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether none is zero."""
    return _count(x.logical_not(), dim, keepdim) < 0.5


def _count(x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    axes = tuple(range(x.dim())) if dim is None else dim
    return (x != 0).float().sum(axes, keepdim=keepdim)


def sorted_(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """All numbers in order, and where they were."""
    if not x.dim():
        values, places = sorted_(x.reshape(1))
        return values.reshape(()), places.reshape(())
    return torch.topk(x, x.shape[dim], dim, largest=descending)


def sorted_stably(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    return sorted_(x, dim, descending)


def smallest(x: Tensor, count: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The number of this rank, and where it is."""
    found = torch.topk(x, count, dim, largest=False)
    values, places = (part.narrow(dim, count - 1, 1) for part in found)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def median(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower one of the middle, and where it is."""
    return smallest(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def quantile(
    x: Tensor,
    q: float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Between the two numbers in whose ranks' middle q lies."""
    if dim is None or interpolation != "linear":
        return NotImplemented
    place = q * (x.shape[dim] - 1)
    low, high = math.floor(place), math.ceil(place)
    found = torch.topk(x, high + 1, dim, largest=False).values
    below, above = (found.narrow(dim, rank, 1) for rank in (low, high))
    y = below + (above - below) * (place - low) if high > low else below
    return y if keepdim else y.squeeze(dim)


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """ln(x / (1 - x))."""
    y = x if eps is None else x.clamp(eps, 1 - eps)
    return y.log() - (1 - y).log()


def always(truth: bool) -> Row:
    """One truth value: a ring holds neither infinities nor what is no number."""
    return lambda x: torch.full(x.shape, truth)


def distances(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Between the rows of two matrices."""
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


ROWS: dict[Any, Row] = {
    aten.floor_divide.default: floored,
    aten.floor_divide.Scalar: floored,
    aten.div.Tensor_mode: quotient,
    aten.div.Scalar_mode: quotient,
    aten.remainder.Tensor: remainder,
    aten.remainder.Scalar: remainder,
    aten.fmod.Tensor: fmod,
    aten.fmod.Scalar: fmod,
    aten.pow.Tensor_Tensor: power,
    aten.pow.Scalar: power_of_number,
    aten.exp2.default: lambda x: power_of_number(2, x),
    aten.log2.default: lambda x: x.log() * (1 / math.log(2)),
    aten.log10.default: lambda x: x.log() * (1 / math.log(10)),
    aten.logsumexp.default: log_sum_exp,
    aten.logaddexp.default: log_add_exp,
    aten.softplus.default: softplus,
    aten.erfc.default: lambda x: 1 - torch.erf(x),
    aten.asin.default: inverse_sine,
    aten.acos.default: inverse_cosine,
    aten.atan2.default: quadrant,
    aten.tan.default: lambda x: torch.sin(x) / torch.cos(x),
    aten.sinh.default: lambda x: (torch.exp(x) - torch.exp(-x)) * 0.5,
    aten.cosh.default: lambda x: (torch.exp(x) + torch.exp(-x)) * 0.5,
    aten.asinh.default: inverse_hyperbolic_sine,
    aten.acosh.default: lambda x: (x + (x * x - 1).sqrt()).log(),
    aten.atanh.default: lambda x: ((1 + x).log() - (1 - x).log()) * 0.5,
    aten.copysign.Tensor: copy_sign,
    aten.signbit.default: lambda x: x < 0,
    aten.nan_to_num.default: lambda x, *numbers: x.clone(),
    aten.isnan.default: always(False),
    aten.isinf.default: always(False),
    aten.isfinite.default: always(True),
    aten.hypot.default: lambda x, y: (x * x + y * y).sqrt(),
    aten.logit.default: logit,
    aten.quantile.scalar: quantile,
    aten.clamp.Tensor: bounded,
    aten.prod.default: product,
    aten.prod.dim_int: product_along,
    aten.cumprod.default: running_product,
    aten.any.default: any_of,
    aten.any.dim: any_of,
    aten.any.dims: any_of,
    aten.all.default: all_of,
    aten.all.dim: all_of,
    aten.all.dims: all_of,
    aten.min.default: lambda x: x.amin(tuple(range(x.dim()))),
    aten.max.default: lambda x: x.amax(tuple(range(x.dim()))),
    aten.sort.default: sorted_,
    aten.sort.stable: sorted_stably,
    aten.kthvalue.default: smallest,
    aten.median.dim: median,
    aten.median.default: lambda x: median(x.flatten(), 0)[0],
    aten.cdist.default: distances,
}
