"""Complex numbers as pairs of real ones: what operators of PyTorch do to such pairs.

    (a + b i) (c + d i) = (a c - b d) + (a d + b c) i

A rule says in torch what an operator computes, its complex operands being pairs of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

aten = torch.ops.aten
FILLED = "constant"  # a padding: with one number


class Pair(NamedTuple):
    """Complex numbers: their real and their imaginary parts, tensors of one shape."""

    real: Any
    imag: Any


Rule: TypeAlias = Callable[..., Any]
Real: TypeAlias = Tensor | float


def pair(value: Any) -> Pair:
    """Any number or tensor as a pair: of a real one the imaginary part is zero."""
    if isinstance(value, Pair):
        return value
    if isinstance(value, complex):
        return Pair(value.real, value.imag)
    return Pair(value, _none(value) if isinstance(value, Tensor) else 0.0)


def _none(like: Tensor) -> Tensor:
    """Zeros, which don't follow from what they are as large as."""
    return torch.zeros(like.shape, dtype=like.dtype)


def _of(part: str, value: Any) -> Any:
    """An operand with one part of each number, zeros as the imaginary parts of real ones; shapes
    and axes stay.
    """
    if isinstance(value, Pair | complex | Tensor):
        return getattr(pair(value), part)
    return [_of(part, each) for each in value] if isinstance(value, list | tuple) else value


def apart(operator: Any) -> Rule:
    """An operator that does to both parts what it does to real numbers: linear ones, moves. All
    tensors that it takes are numbers.
    """

    def row(*args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        kwargs |= {} if dtype is None else {"dtype": dtype.to_real()}
        found = [operator(*_of(part, args), **kwargs) for part in Pair._fields]
        if isinstance(found[0], list | tuple):
            return [Pair(*parts) for parts in zip(*found, strict=True)]
        return Pair(*found)

    return row


def by_places(operator: Any) -> Rule:
    """An operator that picks numbers: the other tensors that it takes say where they are."""
    return lambda x, *args, **kwargs: Pair(*(operator(part, *args, **kwargs) for part in x))


def bilinear(operator: Any) -> Rule:
    """A product of two operands, of any kind."""

    def row(x: Any, y: Any, *args: Any, **kwargs: Any) -> Pair:
        return _product(lambda a, b: operator(a, b, *args, **kwargs), x, y)

    return row


def _product(operator: Callable[[Any, Any], Tensor], x: Any, y: Any) -> Pair:
    if isinstance(x, Pair) and isinstance(y, Pair | complex):
        y = pair(y)
        real = operator(x.real, y.real) - operator(x.imag, y.imag)
        return Pair(real, operator(x.real, y.imag) + operator(x.imag, y.real))
    if isinstance(x, Pair):
        return Pair(operator(x.real, y), operator(x.imag, y))
    y = pair(y)
    return Pair(operator(x, y.real), operator(x, y.imag))


def einsum(equation: str, operands: Sequence[Any], *, path: Sequence[int] | None = None) -> Any:
    """Of one operand or two."""
    if len(operands) == 1:
        return apart(aten.einsum.default)(equation, operands)
    if len(operands) > 2:
        return NotImplemented
    return _product(lambda a, b: aten.einsum.default(equation, [a, b]), *operands)


def times(x: Any, y: Any) -> Pair:
    if isinstance(x, complex):
        x, y = y, x
    if not isinstance(y, complex):
        return _product(lambda a, b: a * b, x, y)
    if not y.real and isinstance(x, Pair):  # a multiple of i turns numbers
        return Pair(x.imag * -y.imag, x.real * y.imag)
    if isinstance(x, Pair):
        return _product(lambda a, b: a * b, x, y) if y.imag else times(x, y.real)
    return Pair(*(x * part if part else _none(x) for part in pair(y)))


def plus(x: Any, y: Any, *, alpha: Any = 1) -> Pair:
    """x + alpha y; to a real number one adds nothing imaginary."""
    (a, b), (c, d) = pair(x), pair(y if alpha == 1 else times(y, alpha))
    real = a + c
    return Pair(real, (b + d).expand(real.shape))


def minus(x: Any, y: Any, *, alpha: Any = 1) -> Pair:
    return plus(x, negative(pair(y)), alpha=alpha)


def negative(x: Pair) -> Pair:
    return Pair(-x.real, -x.imag)


def over(x: Any, y: Any) -> Pair:
    """x / y, by a complex number x y* / |y|^2."""
    if isinstance(y, Pair | complex):
        y = pair(y)
        inverse = 1 / square_magnitude(y)
        return times(x, Pair(y.real * inverse, -y.imag * inverse))
    return Pair(x.real / y, x.imag / y)


def conjugate(x: Pair) -> Pair:
    return Pair(x.real, -x.imag)


def square_magnitude(x: Pair) -> Any:
    return x.real * x.real + x.imag * x.imag


def magnitude(x: Pair) -> Tensor:
    return torch.sqrt(square_magnitude(x))


def polar(size: Real, angle: Tensor) -> Pair:
    return Pair(size * torch.cos(angle), size * torch.sin(angle))


def power(x: Any, exponent: Any) -> Any:
    """A square, or the first power."""
    if not isinstance(x, Pair) or exponent not in (1, 2):
        return NotImplemented
    return x if exponent == 1 else times(x, x)


def converted(x: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """Between kinds of numbers; what becomes real loses its imaginary part."""
    if dtype is None:
        return x
    parts = pair(x) if dtype.is_complex else [x.real]
    found = [part.to(dtype.to_real()) for part in parts]
    return Pair(*found) if dtype.is_complex else found[0]


def masked(x: Any, mask: Tensor, value: Any) -> Pair:
    """A number in place of those that a mask says."""
    return Pair(*(a.masked_fill(mask, b) for a, b in zip(pair(x), pair(value), strict=True)))


def chosen(truth: Tensor, x: Any, y: Any) -> Pair:
    return Pair(*(torch.where(truth, a, b) for a, b in zip(pair(x), pair(y), strict=True)))


def padded(x: Pair, pads: Sequence[int], mode: str = FILLED, value: Any = None) -> Pair:
    """A constant around, or what is there."""
    if mode != FILLED:
        return Pair(*(aten.pad.default(part, pads, mode) for part in x))
    parts = zip(x, pair(value or 0.0), strict=True)
    return Pair(*(aten.pad.default(part, pads, mode, filling) for part, filling in parts))


def filled(value: complex | None) -> Rule:
    """A tensor of one number, or of the last operand, of an extent or as large as another."""

    def row(like: Any, *given: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        another = pair(like).real if isinstance(like, Pair | Tensor) else torch.empty(())
        size = another.shape if isinstance(like, Pair | Tensor) else like
        number = pair(given[0] if value is None else value)
        if dtype is not None and not dtype.is_complex:
            return torch.full(size, number.real, dtype=dtype)
        kind = another.dtype if dtype is None else dtype.to_real()
        return Pair(*(torch.full(size, float(part), dtype=kind) for part in number))

    return row


def stacked(x: Pair) -> Tensor:
    """[.., 2]: both parts of each number."""
    return torch.stack(tuple(x), -1)


MOVES = (
    "cat.default copy.default cumsum.default diagonal.default expand.default "
    "fft_fftshift.default fft_ifftshift.default flip.default mean.default mean.dim neg.default "
    "permute.default repeat.default roll.default select.int select_scatter.default slice.Tensor "
    "slice_scatter.default split.Tensor split_with_sizes.default squeeze.default squeeze.dim "
    "squeeze.dims stack.default sum.default sum.dim_IntList transpose.int tril.default "
    "triu.default unbind.int unsqueeze.default"
)
PICKS = "gather.default index.Tensor index_select.default"
PRODUCTS = "bmm.default dot.default matmul.default mm.default mv.default outer.default"


def _operators(names: str) -> list[Any]:
    pairs = (name.split(".") for name in names.split())
    return [getattr(getattr(aten, packet), overload) for packet, overload in pairs]


RULES: dict[Any, Rule] = {
    **{operator: apart(operator) for operator in _operators(MOVES)},
    **{operator: by_places(operator) for operator in _operators(PICKS)},
    **{operator: bilinear(operator) for operator in _operators(PRODUCTS)},
    # Where copies were dropped, parts may lie in memory as no view allows.
    aten.view.default: apart(torch.reshape),
    aten._unsafe_view.default: apart(torch.reshape),
    aten.einsum.default: einsum,
    aten.mul.Tensor: times,
    aten.mul.Scalar: times,
    aten.add.Tensor: plus,
    aten.add.Scalar: plus,
    aten.sub.Tensor: minus,
    aten.sub.Scalar: minus,
    aten.rsub.Tensor: lambda x, y, alpha=1: minus(y, x, alpha=alpha),
    aten.rsub.Scalar: lambda x, y, alpha=1: minus(y, x, alpha=alpha),
    aten.vdot.default: lambda x, y: bilinear(aten.dot.default)(conjugate(x), y),
    aten.div.Tensor: over,
    aten.div.Scalar: over,
    aten.square.default: lambda x: times(x, x),
    aten.pow.Tensor_Scalar: power,
    aten._conj.default: conjugate,
    aten._conj_physical.default: conjugate,
    aten.abs.default: magnitude,
    aten.angle.default: lambda x: torch.atan2(x.imag, x.real),
    aten.exp.default: lambda x: polar(torch.exp(x.real), x.imag),
    aten.polar.default: polar,
    aten.complex.default: Pair,
    aten.view_as_real.default: stacked,
    aten.view_as_complex.default: lambda x: Pair(x.select(-1, 0), x.select(-1, 1)),
    aten._to_copy.default: converted,
    aten.masked_fill.Scalar: masked,
    aten.masked_fill.Tensor: masked,
    aten.where.self: chosen,
    aten.where.ScalarOther: chosen,
    aten.where.ScalarSelf: chosen,
    aten.pad.default: padded,
    aten.constant_pad_nd.default: lambda x, pads, value=0.0: padded(x, pads, FILLED, value),
    aten.zeros.default: filled(0j),
    aten.zeros_like.default: filled(0j),
    aten.new_zeros.default: lambda x, size, **kwargs: filled(0j)(size, **kwargs),
    aten.ones.default: filled(1 + 0j),
    aten.ones_like.default: filled(1 + 0j),
    aten.full.default: filled(None),
    aten.full_like.default: filled(None),
}
