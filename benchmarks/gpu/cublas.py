"""Matrix products of cuBLAS, through ctypes, on the current context of a GPU: baselines.

Constants are those of cublas_api.h and library_types.h, CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_path
from typing import Any

_NAMES = ("libcublas.so.13", "libcublas.so.12", "libcublas.so")
_DEFAULT_ALGORITHM = -1
_TRANSPOSED, _PLAIN = 1, 0


@dataclass(frozen=True)
class Kind:
    """A type of factors, and of sums.

    Attributes:
        factor, total: cudaDataType_t.
        compute: cublasComputeType_t.
        factor_bytes, total_bytes: of an element.
    """

    name: str
    factor: int
    total: int
    compute: int
    factor_bytes: int
    total_bytes: int


INT8 = Kind("int8", 3, 10, 72, 1, 4)
FLOAT16 = Kind("fp16", 2, 2, 68, 2, 2)
FLOAT32 = Kind("fp32", 0, 0, 68, 4, 4)
FLOAT64 = Kind("fp64", 1, 1, 70, 8, 8)
_ONES: dict[int, Any] = {72: ctypes.c_int32, 68: ctypes.c_float, 70: ctypes.c_double}


class CublasError(Exception):
    """A call of cuBLAS that failed; the number is cublasStatus_t."""


def find_cublas() -> ctypes.CDLL | None:
    """The library, of the system or of NVIDIA's packages, if there is one."""
    packaged = sorted(Path(get_path("purelib")).glob("nvidia/*/lib/libcublas.so.1?"), reverse=True)
    for name in (*_NAMES, *map(str, packaged)):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class Cublas:
    """A handle of the current context, on its default stream.

    Raises:
        CublasError: there is no handle to be had.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._require(library.cublasCreate_v2(ctypes.byref(self._handle)))

    @staticmethod
    def _require(status: int) -> None:
        if status != 0:
            raise CublasError(f"cuBLAS failed with status {status}")

    def multiply(
        self, kind: Kind, size: tuple[int, int, int], places: tuple[int, int, int], count: int = 1
    ) -> None:
        """Starts `count` products [rows, depth] x [depth, columns], one after another in memory.

        Row by row that is out^T = b^T a^T, both factors along the depth, which int8 asks for:
        cuBLAS counts column by column.

        Args:
            size: rows, columns, depth; multiples of 4 for int8.
            places: addresses of out, a and b (as [columns, depth]).
        """
        rows, columns, depth = size
        out, a, b = places
        one, zero = (_ONES[kind.compute](value) for value in (1, 0))
        n, m, k = (ctypes.c_int(value) for value in (rows, columns, depth))
        stride = ctypes.c_longlong
        self._require(
            self._library.cublasGemmStridedBatchedEx(
                self._handle, _TRANSPOSED, _PLAIN, m, n, k, ctypes.byref(one),
                ctypes.c_void_p(b), kind.factor, k, stride(columns * depth),
                ctypes.c_void_p(a), kind.factor, k, stride(rows * depth),
                ctypes.byref(zero),
                ctypes.c_void_p(out), kind.total, m, stride(rows * columns),
                count, kind.compute, _DEFAULT_ALGORITHM,
            )
        )  # fmt: skip

    def close(self) -> None:
        self._require(self._library.cublasDestroy_v2(self._handle))
