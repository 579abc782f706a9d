"""Fourier transforms, windows and mel filters: products with public matrices.

    DFT     y = x F           F[n, k] = e^(-2 pi i n k / N), a complex number being two real ones
    STFT    a convolution     its kernels are the columns of F times the window, its stride the step

Lengths are public, so the matrices are, and a transform is local to the parties but for its
truncation. Windows and filters follow from public numbers: ONNX's reference computes them once.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from veilgraph.frontend.lowering.layout import MOST_MATRIX_ELEMENTS
from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.lowering.probing import reference
from veilgraph.frontend.onnx.nodes import Steps

Floats = NDArray[np.float64]
SAID_BY = {  # operands that a window or a matrix of filters follows from
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), ("length",)),
    "MelWeightMatrix": ("number of bins", "length", "sample rate", "lower edge", "upper edge"),
}


def dft(s: Steps) -> list[NodeProto]:
    """DFT(x [..., N, ..., 1 or 2], dft_length, axis), opset 20 on."""
    shape, result = s.shape(0), s.result_shape()
    axis = int(s.public(2, "axes").reshape(())) % len(shape) if s.operand(2) else len(shape) - 2
    matrix = dft_matrix(
        shape[axis],
        shape[-1],
        _length(s, shape[axis]),
        inverse=bool(s.attribute("inverse", 0)),
        onesided=bool(s.attribute("onesided", 0)),
    )
    order = [i for i in range(len(shape) - 1) if i != axis] + [axis, len(shape) - 1]
    rest = tuple(shape[i] for i in order[:-2])
    x = s("Transpose", s.operand(0), perm=order)
    rows = s.reshape(x, (*rest, shape[axis] * shape[-1]))
    y = s("MatMul", rows, s.numbers(matrix))
    apart = s.reshape(y, (*rest, result[axis], result[-1]))
    return s.finish(s("Transpose", apart, perm=[int(i) for i in np.argsort(order)]))


def _length(s: Steps, extent: int) -> int:
    """Of how many numbers the transform is; what is missing is zero, what is over is left out."""
    if s.operand(1):
        return int(s.public(1, "lengths").reshape(()))
    halved = s.attribute("inverse", 0) and s.attribute("onesided", 0)
    return 2 * (extent - 1) if halved else extent


def dft_matrix(
    extent: int, parts: int, length: int, *, inverse: bool = False, onesided: bool = False
) -> Floats:
    """[extent x parts, new extent x new parts]: what each number counts in each of the transform.

    Args:
        extent: numbers that are transformed.
        parts: 1 where they are real, 2 where each is a real and an imaginary one.
        length: of the transform.
        onesided: of the transform of real numbers only the half that says all; backwards, from
            such a half to real numbers.
    """
    new = length if inverse else length // 2 + 1 if onesided else length
    if extent * parts * new * 2 > MOST_MATRIX_ELEMENTS:
        raise Unsupported(
            f"It would take a public matrix of {extent * parts * new * 2} elements.",
            "Transform shorter pieces of the signal.",
        )
    units = np.einsum("nm,c->ncm", np.eye(extent), [1, 1j][:parts]).reshape(-1, extent)
    if inverse and onesided:
        return np.asarray(np.fft.irfft(units, length))
    spectra = (np.fft.ifft if inverse else np.fft.fft)(units, length)[:, :new]
    return np.stack([spectra.real, spectra.imag], -1).reshape(len(units), -1)


def stft(s: Steps) -> list[NodeProto]:
    """STFT(signal [batch, length, 1 or 2], step, window, frame_length): frames, each transformed.

    [batch, frames, bins, 2]
    """
    shape = s.shape(0)
    step = int(s.public(1, "steps").reshape(()))
    if s.operand(3):
        length = int(s.public(3, "lengths").reshape(()))
    else:
        length = prod(s.shape(2)) if s.operand(2) else shape[1]
    if length > shape[1]:
        raise Unsupported(f"Its frames of {length} numbers are longer than a signal of {shape[1]}.")
    matrix = dft_matrix(length, shape[2], length, onesided=bool(s.attribute("onesided", 1)))
    kernels = matrix.reshape(length, shape[2], -1).transpose(2, 1, 0)
    window = s.known(2)
    weight = s.numbers(kernels if window is None else kernels * window)
    if s.operand(2) and window is None:
        weight = s("Mul", weight, s.operand(2))
    x = s("Transpose", s.operand(0), perm=[0, 2, 1])
    y = s("Conv", x, weight, strides=[step])
    frames = (shape[1] - length) // step + 1
    apart = s.reshape(y, (shape[0], len(kernels) // 2, 2, frames))
    return s.finish(s("Transpose", apart, perm=[0, 3, 1, 2]))


def said(s: Steps) -> list[NodeProto]:
    """A window, or a matrix of mel filters: public numbers, of those that say what it is."""
    given = {i: s.public(i, f"{what}s") for i, what in enumerate(SAID_BY[s.node.op_type])}
    if prod(s.result_shape()) > MOST_MATRIX_ELEMENTS:
        raise Unsupported(f"It would have {prod(s.result_shape())} elements.")
    array = reference(s, given)
    return s.finish(s("Identity", s.numbers(array, array.dtype.type)))
