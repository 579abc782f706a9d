"""Quantised models in exact integers: what their operators say, on any processor.

ONNX Runtime's own products of 8 bits saturate at 16 bits, two at a time, on a processor with AVX2
and without VNNI (its documentation: "Quantize ONNX models", "reduce_range"). ONNX's reference does
not, and below is what it lacks: the operators that `onnxruntime.quantization` writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

Array = NDArray[Any]
OPSET = 21  # the reference has this version of QuantizeLinear, which says the same as those before


def exact(model: Path | ModelProto, x: Array) -> Array:
    """The one output of a quantised model whose input is called x."""
    proto = ModelProto()
    proto.CopyFrom(onnx.load(model) if isinstance(model, Path) else model)
    next(each for each in proto.opset_import if not each.domain).version = OPSET
    found = ReferenceEvaluator(proto, new_ops=list(CONTRIBUTED)).run(None, {"x": x})
    return np.asarray(found[0])


def real(q: Array, scale: Array, zero: Array) -> Array:
    return (q.astype(np.int64) - zero.astype(np.int64)) * scale.astype(np.float64)


def quantised(x: Array, scale: Array, zero: Array) -> Array:
    """Rounded to the nearest, ties to even, and held in the range of the zero point's type."""
    bounds = np.iinfo(zero.dtype)
    return np.clip(np.rint(x / scale) + zero, bounds.min, bounds.max).astype(zero.dtype)


class QLinearAdd(OpRun):
    op_domain = "com.microsoft"

    def _run(self, *given: Array) -> tuple[Array]:
        return (quantised(real(*given[:3]) + real(*given[3:6]), *given[6:]),)


class QLinearLeakyRelu(OpRun):
    op_domain = "com.microsoft"

    def _run(self, *given: Array, alpha: float = 0.01) -> tuple[Array]:
        x = real(*given[:3])
        return (quantised(np.where(x < 0, alpha * x, x), *given[3:]),)


class QLinearGlobalAveragePool(OpRun):
    op_domain = "com.microsoft"

    def _run(self, *given: Array, channels_last: int = 0) -> tuple[Array]:
        assert not channels_last
        x = real(*given[:3])
        mean = x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)
        return (quantised(mean, *given[3:]),)


class QGemm(OpRun):
    """A B + C, where C is integers of 32 bits in units of the product of the scales."""

    op_domain = "com.microsoft"

    def _run(
        self, *given: Array, alpha: float = 1.0, transA: int = 0, transB: int = 0
    ) -> tuple[Array]:
        a, a_scale, a_zero, b, b_scale, b_zero, c, scale, zero = given
        assert (alpha, transA) == (1, 0)
        columns = b.T if transB else b
        product = (a.astype(np.int64) - a_zero) @ (columns.astype(np.int64) - b_zero) + c
        return (quantised(product * np.float64(a_scale) * b_scale, scale, zero),)


CONTRIBUTED = (QLinearAdd, QLinearLeakyRelu, QLinearGlobalAveragePool, QGemm)
