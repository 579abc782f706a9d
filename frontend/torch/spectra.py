"""Fourier transforms and windows of PyTorch: products with public matrices.

A transform along an axis is linear, and extents alone decide it, so it is a product with the
matrix that torch's own kernel makes of the identity, as in resampling.py.

    rfft    [a0 a1 ...] F          F of the real parts of the result, then of the imaginary ones
    stft    a convolution          its kernels are the columns of F times the window
    istft   a transposed one       its kernels are the rows of the inverse times the window
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from veilgraph.frontend.lowering.layout import MOST_MATRIX_ELEMENTS
from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.torch.constants import public
from veilgraph.frontend.torch.pairs import Pair, Rule, pair

aten = torch.ops.aten
Numbers: TypeAlias = Tensor | Pair
Kernel: TypeAlias = Callable[[Tensor], Tensor]


def _matrix(kernel: Kernel, extent: int, parts: int) -> Tensor:
    """[extent x parts, new extent x new parts]: what each part of a number counts in each of the
    transform, real parts before imaginary ones. To be traced within `public()`.
    """
    units = torch.eye(extent, dtype=torch.float64)
    if parts == 2:
        none = torch.zeros_like(units)
        units = torch.cat([torch.complex(units, none), torch.complex(none, units)])
    made = kernel(units)
    return torch.cat([made.real, made.imag], -1) if made.is_complex() else made


def _require_small(*extents: int) -> None:
    if (elements := math.prod(extents)) > MOST_MATRIX_ELEMENTS:
        raise Unsupported(
            f"It would take a public matrix of {elements} elements.",
            "Transform shorter pieces of the signal.",
        )


def _halves(y: Tensor, axis: int) -> Pair:
    """Real parts are the first half along an axis, imaginary ones the second."""
    return Pair(*y.chunk(2, axis))


def transform(x: Numbers, kernel: Kernel, axis: int, *, to_real: bool, extent: int) -> Numbers:
    """Each vector along an axis transformed.

    Args:
        kernel: transforms rows [.., extent of x].
        to_real: whether real numbers come out, or complex ones.
        extent: how many of them.
    """
    parts = [y.movedim(axis, -1) for y in (x if isinstance(x, Pair) else (x,))]
    rows = torch.cat(parts, -1)
    _require_small(rows.shape[-1], extent, 1 if to_real else 2)
    with public():
        matrix = _matrix(kernel, parts[0].shape[-1], len(parts)).to(rows.dtype)
    y = rows @ matrix
    found: Sequence[Tensor] = (y,) if to_real else _halves(y, -1)
    moved = [part.movedim(-1, axis) for part in found]
    return moved[0] if to_real else Pair(*moved)


def one_axis(name: str) -> Rule:
    """A transform of torch.fft along one axis."""
    operator = getattr(torch.fft, name)

    def row(x: Numbers, n: int | None = None, dim: int = -1, norm: str | None = None) -> Numbers:
        given = pair(x).real.shape[dim]
        extent = {
            "rfft": (n or given) // 2 + 1,
            "ihfft": (n or given) // 2 + 1,
            "irfft": n or 2 * (given - 1),
            "hfft": n or 2 * (given - 1),
        }.get(name, n or given)
        return transform(
            x,
            lambda rows: operator(rows, n, -1, norm),
            dim,
            to_real=name in ("irfft", "hfft"),
            extent=extent,
        )

    return row


def many_axes(first: str, last: str, rest: str, axes: Sequence[int] | None = None) -> Rule:
    """A transform of torch.fft along several axes, one after another.

    Args:
        first: what is done along the last axis before the `rest` along all the others, or "".
        last: what is done along the last axis behind them, or "".
        axes: those that are transformed where nothing is said.
    """

    def row(
        x: Numbers,
        s: Sequence[int] | None = None,
        dim: Sequence[int] | None = axes,
        norm: str | None = None,
    ) -> Numbers:
        rank = pair(x).real.dim()
        if dim is None:
            dim = range(rank) if s is None else range(rank - len(s), rank)
        sizes = [None if n == -1 else n for n in s or [-1] * len(dim)]
        *others, (end, n) = zip(dim, sizes, strict=True)
        x = one_axis(first)(x, n, end, norm) if first else x
        for axis, size in others:
            x = one_axis(rest)(x, size, axis, norm)
        return one_axis(last)(x, n, end, norm) if last else x

    return row


def _frame(window: Tensor | None, win_length: int | None, n_fft: int, like: Tensor) -> Tensor:
    """[n_fft]: the window in the middle of a frame, ones where none is given."""
    length = win_length or n_fft
    window = torch.ones(length, dtype=like.dtype) if window is None else window
    left = (n_fft - length) // 2
    return functional.pad(window, (left, n_fft - length - left))


def _norm(normalized: bool) -> str | None:
    return "ortho" if normalized else None


def stft(
    x: Numbers,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """Frames of a signal [batch, length], each times the window and transformed.

    [batch, bins, frames]
    """
    parts = list(x) if isinstance(x, Pair) else [x]
    if align_to_window or isinstance(window, Pair):
        return NotImplemented
    half = onesided if onesided is not None else len(parts) == 1
    operator = torch.fft.rfft if half else torch.fft.fft
    signal = torch.stack([part.reshape(-1, part.shape[-1]) for part in parts], 1)
    _require_small(n_fft, len(parts), n_fft, 2)
    with public():
        matrix = _matrix(lambda rows: operator(rows, norm=_norm(normalized)), n_fft, len(parts))
        kernels = matrix.to(signal.dtype).t().reshape(-1, len(parts), n_fft)
        weight = kernels * _frame(window, win_length, n_fft, signal)
    y = functional.conv1d(signal, weight, stride=hop_length or n_fft // 4)
    found = _halves(y.reshape(*parts[0].shape[:-1], *y.shape[1:]), -2)
    return found if return_complex else torch.stack(tuple(found), -1)


def istft(
    z: Pair,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """The signal of frames [batch, bins, frames]: each transformed back, times the window, and
    added where they overlap, over what the squared windows add up to there.
    """
    if return_complex or isinstance(window, Pair):
        return NotImplemented
    *batch, bins, frames = z.real.shape
    hop, start = hop_length or n_fft // 4, n_fft // 2 if center else 0
    reach = n_fft + hop * (frames - 1)
    end = reach - start if length is None else min(reach, start + length)
    _require_small(bins, 2, n_fft)
    with public():
        frame = _frame(window, win_length, n_fft, z.real)
        weight = _from_half(bins, n_fft, _norm(normalized)).to(z.real.dtype) * frame
        ones = torch.ones(1, 1, frames, dtype=z.real.dtype)
        squares = functional.conv_transpose1d(ones, (frame * frame).view(1, 1, -1), stride=hop)
        share = 1 / squares[0, 0, start:end]
    rows = torch.cat(tuple(z), -2).reshape(-1, 2 * bins, frames)
    y = functional.conv_transpose1d(rows, weight.unsqueeze(1), stride=hop)
    y = y[:, 0, start:end] * share
    y = functional.pad(y, (0, max(0, (length or 0) - y.shape[-1])))
    return y.reshape(*batch, y.shape[-1])


def _from_half(bins: int, n_fft: int, norm: str | None) -> Tensor:
    """[2 bins, n_fft]: the inverse to real numbers, which half of a spectrum says all of."""
    half = n_fft // 2 + 1
    return _matrix(lambda rows: torch.fft.irfft(rows[:, :half], n_fft, norm=norm), bins, 2)


def of_an_extent(operator: Any) -> Rule:
    """A window, or frequencies, of a length that is in the program: public numbers."""

    def row(*args: Any, **kwargs: Any) -> Tensor:
        with public():
            made: Tensor = operator(*args, **kwargs)
        return made

    return row


RULES: dict[Any, Rule] = {
    **{
        getattr(aten, f"fft_{name}").default: one_axis(name)
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    },
    aten.fft_fft2.default: many_axes("", "fft", "fft", (-2, -1)),
    aten.fft_ifft2.default: many_axes("", "ifft", "ifft", (-2, -1)),
    aten.fft_rfft2.default: many_axes("rfft", "", "fft", (-2, -1)),
    aten.fft_irfft2.default: many_axes("", "irfft", "ifft", (-2, -1)),
    aten.fft_fftn.default: many_axes("", "fft", "fft"),
    aten.fft_ifftn.default: many_axes("", "ifft", "ifft"),
    aten.fft_rfftn.default: many_axes("rfft", "", "fft"),
    aten.fft_irfftn.default: many_axes("", "irfft", "ifft"),
    aten.stft.default: stft,
    aten.istft.default: istft,
}
OF_EXTENTS = (
    *(f"{name}_window" for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")),
    *("fft_fftfreq", "fft_rfftfreq"),
)
ROWS: dict[Any, Rule] = {
    overload: of_an_extent(overload)
    for packet in (getattr(aten, name) for name in OF_EXTENTS)
    for overload in (getattr(packet, name) for name in packet.overloads() if "out" not in name)
}
