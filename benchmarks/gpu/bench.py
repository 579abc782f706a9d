"""Launches and cuBLAS's products, timed on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu.calls import ALIGNMENT, Product, Way
from benchmarks.gpu.cublas import INT8, Cublas, Kind
from veilgraph.kernels.cuda import Buffer, DeviceShape, placed
from veilgraph.runtime.devices.cuda.drivers.gpus import load_pycuda
from veilgraph.runtime.devices.cuda.drivers.interface import Driver

_CHUNK = 16 << 20
_FINITE = 64  # floats of smaller bytes are neither infinite nor nan


class Bench:
    """A GPU whose launches are timed over random bytes: products of zeros draw less power, and a
    GPU that need not throttle multiplies faster than it would shares."""

    def __init__(self, driver: Driver, runs: int) -> None:
        self._driver, self._runs = driver, runs
        self.shape = DeviceShape(driver.gpu.multiprocessors, driver.gpu.arch)

    def seconds(
        self, way: Way, buffers: Sequence[Buffer], params: Sequence[int], repeats: int = 1
    ) -> float:
        """The median of the launches of one call, `repeats` of them together; what is packed once a
        session is there before."""
        laid, driver = placed([way(buffers, params, self.shape)]), self._driver
        made = laid.steps[0]
        driver.prepare({each.source.digest: each.source for each in (*laid.fills, *made)}.values())
        arena = max(b.offset + b.bytes for b in buffers)
        scratch = max((each.scratch_bytes for each in made), default=0)
        with self.memory(arena, scratch, laid.bytes) as (words, between, kept):
            stream, bounds = driver.stream(), [driver.event() for _ in range(2)]
            fills, bound = (
                [
                    (driver.kernel(each), each.bind((words, 0, between, kept), 0, 0).tobytes())
                    for each in launches
                ]
                for launches in (laid.fills, made)
            )
            for kernel, parameters in fills:
                stream.launch(kernel, parameters)
            found = []
            for _ in range(self._runs + 1):
                stream.record(bounds[0])
                for kernel, parameters in bound * repeats:
                    stream.launch(kernel, parameters)
                stream.record(bounds[1])
                bounds[1].synchronize()
                found.append(bounds[1].seconds_since(bounds[0]) / repeats)
        return median(found[1:])

    @contextmanager
    def memory(self, *sizes: int, below: int = 256) -> Iterator[list[int]]:
        """Addresses of so many random bytes each."""
        with self._driver.current():
            stream, done = self._driver.stream(), self._driver.event()
            found = [self._driver.allocate(max(size, ALIGNMENT)) for size in sizes]
            content = self._driver.pinned(min(_CHUNK, max(sizes, default=0)))
            content[:] = np.random.default_rng(0).integers(0, below, content.size, np.uint8)
            for address, size in zip(found, sizes, strict=True):
                for at in range(0, size, _CHUNK):
                    stream.copy_in(address + at, content[: min(_CHUNK, size - at)])
            stream.record(done)
            done.synchronize()
            try:
                yield found
            finally:
                for address in found:
                    self._driver.release(address)

    def cublas_seconds(self, cublas: Cublas, kind: Kind, shape: Product, count: int = 1) -> float:
        """Of `count` products, batched, on the context's default stream."""
        rows, columns, depth = shape.rows, shape.columns, shape.depth
        sizes = [count * rows * columns * kind.total_bytes]
        sizes += [count * lines * depth * kind.factor_bytes for lines in (rows, columns)]
        cuda: Any = load_pycuda()
        with self.memory(*sizes, below=256 if kind is INT8 else _FINITE) as (out, a, b):
            found = []
            for _ in range(self._runs + 1):
                start, end = cuda.Event(), cuda.Event()
                start.record()
                cublas.multiply(kind, (rows, columns, depth), (out, a, b), count)
                end.record()
                end.synchronize()
                found.append(float(end.time_since(start)) / 1e3)
        return median(found[1:])
