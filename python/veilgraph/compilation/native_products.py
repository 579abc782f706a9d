"""Products of exact integers by the kernels that parties run: the bits that ir/meaning/ has.

Who verifies a program on samples needs each product modulo 2^K alone, which the kernels `matmul`
and `conv2d` compute in machine words. Each product is a program of one step, whose memory goes when
it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.ir.meaning.integers import Integers, NumpyProducts, Windows
from veilgraph.ir.plan.tables import BUFFER, STEP, BufferKind, Phase
from veilgraph.kernels import KERNELS
from veilgraph.kernels.conv2d.declaration import Params as ConvParams
from veilgraph.kernels.kernel import Params
from veilgraph.kernels.matmul.declaration import Params as MatmulParams
from veilgraph.kernels.native import library
from veilgraph.runtime._native import Interpreter

Shape = tuple[int, ...]
Word: TypeAlias = np.dtype[np.unsignedinteger[Any]]
ALIGNMENT = 64
ROOM = 1 << 20  # bytes, beyond buffers
LEAST_COLUMNS = 64  # at a time: fewer, and copying the other matrix each time takes longer


@dataclass(frozen=True)
class NativeProducts:
    """See `Products`. What the kernels do not take is left to NumPy, and what is small.

    Attributes:
        threads: that a product may use.
        least: products of two numbers that a call of a kernel is for, which takes a millisecond.
        copied: elements of a large matrix, and of its product, that a call of a kernel copies.
    """

    threads: int = 1
    least: int = 1 << 18
    copied: int = 1 << 22
    _reference: NumpyProducts = field(default_factory=NumpyProducts)

    def matmul(self, x: Integers, w: Integers, ring_bits: int) -> Integers:
        if x.ndim < 2 or w.ndim < 2 or 0 in (x.size, w.size):
            return self._reference.matmul(x, w, ring_bits)
        batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
        shape = (*batch, x.shape[-2], w.shape[-1])
        if prod(shape) * x.shape[-1] < self.least:
            return self._reference.matmul(x, w, ring_bits)
        if w.ndim == 2:  # one matrix for all rows
            flat = [x.reshape(1, -1, x.shape[-1]), w[None]]
        else:
            each = (np.broadcast_to(z, (*batch, *z.shape[-2:])) for z in (x, w))
            flat = [z.reshape(-1, *z.shape[-2:]) for z in each]
        return self._matmul(flat[0], flat[1], MatmulParams(ring_bits)).reshape(shape)

    def _matmul(self, x: Integers, w: Integers, params: MatmulParams) -> Integers:
        """Of stacks of matrices; some columns of the second one at a time, where it is large."""
        (batch, rows, inner), columns = x.shape, w.shape[-1]
        step = max(LEAST_COLUMNS, self.copied // (batch * (rows + inner)))
        if step >= columns:
            return self._called("matmul", [x, w], (batch, rows, columns), params)
        found = np.empty((batch, rows, columns), np.int64)
        for start in range(0, columns, step):
            part = w[..., start : start + step]
            made = (batch, rows, part.shape[-1])
            found[..., start : start + step] = self._called("matmul", [x, part], made, params)
        return found

    def conv(
        self, x: Integers, w: Integers, windows: Windows, groups: int, ring_bits: int
    ) -> Integers:
        if x.ndim != 4 or 0 in (x.size, w.size):
            return self._reference.conv(x, w, windows, groups, ring_bits)
        positions = windows.over(x[:1, :1]).shape[2:4]
        if x.shape[0] * prod(positions) * w.size < self.least:
            return self._reference.conv(x, w, windows, groups, ring_bits)
        extents = (*windows.strides, *windows.pads_low, *windows.dilations)
        params = ConvParams.of([ring_bits, *extents, groups])
        return self._called("conv2d", [x, w], (x.shape[0], w.shape[0], *positions), params)

    def _called(
        self, kernel: str, operands: list[Integers], made: Shape, params: Params
    ) -> Integers:
        """One call of a kernel, whose first parameter is the ring's width."""
        ring_bits, *_ = values = params.values()
        word: Word = np.dtype("u4" if ring_bits <= 32 else "u8")
        buffers, places, end = _laid_out([made, *(z.shape for z in operands)], word)
        step = np.zeros(1, STEP)
        step["kernel"], step["phase"] = KERNELS.index(kernel), Phase.ONLINE
        step["buffer_count"], step["param_count"] = len(buffers), len(values)
        tables = step.view(np.uint8), buffers.view(np.uint8), np.asarray(values, np.int64)
        interpreter = Interpreter(
            str(library()), *tables, b"", end, b"", self.threads, max_arena_bytes=end + ROOM
        )
        arena = interpreter.arena
        for place, operand in zip(places[1:], operands, strict=True):
            view = arena[place : place + operand.size * word.itemsize].view(word)
            np.copyto(view.reshape(operand.shape), operand, casting="unsafe")
        interpreter.run(0, 1, 1)
        words = arena[places[0] : places[0] + prod(made) * word.itemsize].view(word)
        found: Integers = words.astype(np.int64)
        return found.reshape(made)


def _laid_out(shapes: list[Shape], word: Word) -> tuple[npt.NDArray[np.void], list[int], int]:
    """Contiguous buffers one after another, where each begins, and where the last ends."""
    table, places, end = np.zeros(len(shapes), BUFFER), [], 0
    kind = BufferKind.WORDS64 if word.itemsize == 8 else BufferKind.WORDS32
    for row, shape in zip(table, shapes, strict=True):
        row["offset"], row["kind"], row["bits"] = end, kind, 8 * word.itemsize
        row["rank"] = len(shape)
        row["shape"][: len(shape)] = shape
        row["strides"][: len(shape)] = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        places.append(end)
        end += -(-prod(shape) * word.itemsize // ALIGNMENT) * ALIGNMENT
    return table, places, end
