"""Small interpreters and the records they are made of, for the interpreter's tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from veilgraph.ir.plan.tables import BUFFER, STEP, BufferKind
from veilgraph.kernels import KERNELS
from veilgraph.kernels.native import library
from veilgraph.runtime._native import Interpreter, check_program

Records = npt.NDArray[np.void]
ARENA_BYTES = 256
CONSTANTS = bytes(range(64))


def words(offset: int = 0, count: int = 4, **fields: Any) -> Records:
    """The BUFFER record of `count` 64-bit words in a row, some of its fields changed."""
    out = np.zeros((), BUFFER)
    out["offset"], out["kind"], out["bits"], out["rank"] = offset, BufferKind.WORDS64, 64, 1
    out["shape"][0], out["strides"][0] = count, 1
    for name, value in fields.items():
        if isinstance(value, tuple):
            out[name][: len(value)] = value
        else:
            out[name] = value
    return out


def image(offset: int, *shape: int, **fields: Any) -> Records:
    """A contiguous buffer of any rank."""
    strides = tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))
    return words(offset, **{"rank": len(shape), "shape": shape, "strides": strides, **fields})


def step(kernel: str | int = "copy", **fields: int) -> Records:
    out = np.zeros((), STEP)
    out["kernel"] = KERNELS.index(kernel) if isinstance(kernel, str) else kernel
    out["buffer_count"] = 2
    for name, value in fields.items():
        out[name] = value
    return out


def busy_interpreter(repeats: int = 8, n: int = 800) -> Interpreter:
    """An interpreter whose steps are so many products of n x n, some tenths of a second each."""
    product = step("matmul", buffer_count=3, param_count=1)
    factors = [image(8 * n * n * i, 1, n, n) for i in range(3)]
    return interpreter([product] * repeats, factors, [64], arena_bytes=24 * n * n)


def interpreter(
    steps: list[Records] | None = None,
    buffers: list[Records] | None = None,
    params: list[int] | None = None,
    **options: Any,
) -> Interpreter:
    """An interpreter of one copy of 4 words from byte 64 to byte 0, unless told otherwise."""
    return Interpreter(
        options.pop("library", str(library())),
        np.array([step()] if steps is None else steps, STEP),
        np.array([words(0), words(64)] if buffers is None else buffers, BUFFER),
        np.array(params or [], np.int64),
        CONSTANTS,
        options.pop("arena_bytes", ARENA_BYTES),
        options.pop("keys", b""),
        **options,
    )


def proven(
    steps: list[Records] | None = None,
    buffers: list[Records] | None = None,
    params: list[int] | None = None,
    **options: Any,
) -> None:
    """The proof that `interpreter` makes of the same tables, without the interpreter."""
    check_program(
        options.pop("library", str(library())),
        np.array([step()] if steps is None else steps, STEP),
        np.array([words(0), words(64)] if buffers is None else buffers, BUFFER),
        np.array(params or [], np.int64),
        options.pop("arena_bytes", ARENA_BYTES),
        len(CONSTANTS),
        options.pop("keys", 0),
    )


# Whatever opens tables refuses the same ones.
OPENED = pytest.mark.parametrize("opened", [interpreter, proven])
