"""One kernel call on NumPy arrays, on any device: a machine of a single step checks it, its arena
laid out from the arrays, and either runs it or lends its arena to CUDA kernels: on the host, or on
a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gpus import GpuRunner, first_gpu

from veilgraph.ir.plan.tables import BUFFER, MAX_RANK, STEP, BufferKind, Region
from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import Buffer, DeviceShape, Launch, buffers_of, placed
from veilgraph.kernels.cuda.emulator import EmulatorRunner
from veilgraph.kernels.cuda.steps import launches
from veilgraph.kernels.fused.reference import Packed, Planes
from veilgraph.kernels.native import library, supported
from veilgraph.runtime._native import Interpreter

Array = npt.NDArray[Any]
Operand = Array | Packed | Planes
Way = Callable[[Sequence[Buffer], Sequence[int], DeviceShape], tuple[Launch, ...]]

EMULATOR, GPU = "emulator", "gpu"  # the CUDA kernels, run by the host or by a GPU
# What runs single launches: the emulator, and a GPU where there is one.
RUNNERS = (EMULATOR, pytest.param(GPU, marks=pytest.mark.gpu))
# An instruction set of the CPU each, and those.
DEVICES = (*supported(), *RUNNERS)

# Few enough for blocks to walk over several parts of a test's arrays.
SMALL_DEVICE = DeviceShape(multiprocessors=1)


def _base(operand: Operand) -> Array:
    """The whole array that an operand is a view of."""
    array = operand if isinstance(operand, np.ndarray) else operand.data
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def displaced(array: Array) -> Array:
    """A copy that lies a word behind where vectors lie, as parts of messages may."""
    memory = np.empty(array.size + 1, array.dtype)
    memory[1:] = array.reshape(-1)
    return memory[1:].reshape(array.shape)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def record(operand: Operand, offset: int, region: Region = Region.ARENA) -> npt.NDArray[np.void]:
    """The BUFFER record of an operand whose first element lies `offset` bytes into its region."""
    out = np.zeros((), BUFFER)
    out["offset"], out["region"] = offset, region
    if isinstance(operand, np.ndarray):
        size = operand.itemsize
        out["kind"] = BufferKind.WORDS64 if size == 8 else BufferKind.WORDS32
        out["bits"], out["rank"] = 8 * size, operand.ndim
        out["shape"][: operand.ndim] = operand.shape
        out["strides"][: operand.ndim] = [s // size for s in operand.strides]
        assert operand.ndim <= MAX_RANK
        return out
    packed = isinstance(operand, Packed)
    out["kind"] = BufferKind.PACKED if packed else BufferKind.PLANES
    out["bits"] = operand.bits if isinstance(operand, Packed) else operand.planes
    out["rank"], out["shape"][0], out["strides"][0] = 1, operand.elements, 1
    return out


def step(kernel: str, buffers: int, params: int) -> npt.NDArray[np.void]:
    """The STEP record of a call over the first `buffers` buffers and `params` parameters."""
    out = np.zeros((), STEP)
    out["kernel"], out["buffer_count"], out["param_count"] = KERNELS.index(kernel), buffers, params
    return out


@cache
def _emulator() -> EmulatorRunner:
    return EmulatorRunner(Path(os.environ["EMULATOR_FOLDER"]))  # of tests/conftest.py


@cache
def _gpu() -> GpuRunner:
    return GpuRunner(first_gpu())


def runner(device: str) -> EmulatorRunner | GpuRunner:
    """What runs launches on one of RUNNERS; skips the test where there is no GPU."""
    return {EMULATOR: _emulator, GPU: _gpu}[device]()


class Call:
    """A kernel call over operands, views of one another included, ready to run.

    Arrays that share memory share it in the arena too. `run` copies the arena's contents back, so
    the arrays are as the kernel left them. `way` makes the launches in place of the kernel's own
    choice, on a device of `shape`.
    """

    def __init__(
        self,
        kernel: str,
        operands: Sequence[Operand],
        params: Sequence[int] | npt.NDArray[np.int64] = (),
        *,
        device: str | None = None,
        threads: int = 1,
        keys: bytes = b"",
        way: Way | None = None,
        shape: DeviceShape = SMALL_DEVICE,
    ) -> None:
        self._keys = keys
        self._places: list[tuple[Array, int]] = []
        records = [self._record(operand) for operand in operands]
        parameters = np.asarray(params, np.int64)
        steps = step(kernel, len(records), len(parameters))
        buffers = np.array(records, BUFFER)
        self._runner = runner(device) if device in (EMULATOR, GPU) else None
        path, size = str(library(None if self._runner else device)), self._end()
        self.interpreter = Interpreter(path, steps, buffers, parameters, b"", size, keys, threads)
        self.launches: tuple[Launch, ...] | None = None
        self._packed_bytes = 0
        if self._runner:
            values = [int(v) for v in parameters]
            made = way or partial(launches, kernel)
            laid = placed([made(buffers_of(buffers), values, shape)])
            self.launches = (*laid.fills, *laid.steps[0])
            self._packed_bytes = laid.bytes

    def _end(self) -> int:
        return max(
            (offset + -(-base.nbytes // 64) * 64 for base, offset in self._places), default=0
        )

    def _record(self, operand: Operand) -> npt.NDArray[np.void]:
        base = _base(operand)
        offsets = [offset for known, offset in self._places if known is base]
        offset = offsets[0] if offsets else self._end()
        if not offsets:
            self._places.append((base, offset))
        first = operand if isinstance(operand, np.ndarray) else operand.data
        return record(operand, offset + _address(first) - _address(base))

    def run(self, number: int = 0) -> None:
        arena = self.interpreter.arena
        for base, offset in self._places:
            arena[offset : offset + base.nbytes] = np.frombuffer(base, np.uint8)
        if self.launches is None:
            self.interpreter.run(0, 1, number)
        scratch = max((each.scratch_bytes for each in self.launches or ()), default=0)
        junk = (np.full(count, 165, np.uint8) for count in (scratch, self._packed_bytes))
        regions = [arena, np.zeros(0, np.uint8), *junk]
        for launch in self.launches or ():
            assert self._runner is not None
            self._runner.run(launch, regions, self._keys, number)
        for base, offset in self._places:
            if base.flags.writeable:
                base.reshape(-1).view(np.uint8)[:] = arena[offset : offset + base.nbytes]


def with_fixed(way: Way, sides: Collection[int]) -> Way:
    """A product's way where all left (0) or right (1) factors are the same at each inference."""

    def made(
        buffers: Sequence[Buffer], params: Sequence[int], shape: DeviceShape
    ) -> tuple[Launch, ...]:
        out, *factors = buffers
        marked = (replace(b, is_fixed=number % 2 in sides) for number, b in enumerate(factors))
        return way([out, *marked], params, shape)

    return made


def call(
    kernel: str,
    operands: Sequence[Operand],
    params: Sequence[int] | npt.NDArray[np.int64] = (),
    *,
    device: str | None = None,
    threads: int = 1,
    keys: bytes = b"",
    run: int = 0,
    way: Way | None = None,
    shape: DeviceShape = SMALL_DEVICE,
) -> None:
    """Run one kernel once; outputs are written to their operands."""
    made = Call(
        kernel, operands, params, device=device, threads=threads, keys=keys, way=way, shape=shape
    )
    made.run(run)
