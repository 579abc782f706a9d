"""What a CUDA device asks of a driver, and no more: PyCUDA gives it, and the emulator of the tests.

Work goes to streams, which run each their own in order and wait for others at events alone. All
calls are made while the driver's context is `current`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.cuda import Launch, Source
from veilgraph.runtime.devices.cuda.drivers.gpus import Gpu

Bytes = npt.NDArray[np.uint8]


class DriverFault(Exception):
    """A driver's own words for what went wrong; the device adds where, and tells the user."""


class Event(Protocol):
    """A mark in a stream, set by `Stream.record`, again and again; never set counts as reached."""

    def synchronize(self) -> None:
        """Waits until the stream has come to the mark."""

    def seconds_since(self, earlier: Event) -> float:
        """Between two marks that both were reached."""


class Kernel(Protocol):
    """A kernel's machine code, loaded, with the shape of one launch of it."""


Launched: TypeAlias = tuple[Kernel, bytes]  # a kernel, and its parameter buffer


class Graph(Protocol):
    """Launches, one after another, that a stream replays as one."""

    def close(self) -> None:
        """Lets go of it; what streams have of it must be done."""


class Stream(Protocol):
    """Work in order; calls return at once, and what they name must stay until the work is done."""

    def launch(self, kernel: Kernel, parameters: bytes) -> None:
        """Runs a kernel on its parameter buffer, which is copied."""

    def replay(self, graph: Graph) -> None:
        """Runs the launches of a graph in order, each with the parameters that it was made with."""

    def write(self, address: int, number: int) -> None:
        """Writes 32 bits, little endian, which are part of the order: nothing else must stay."""

    def copy_in(self, address: int, content: Bytes) -> None:
        """From pinned memory to the GPU."""

    def copy_out(self, content: Bytes, address: int) -> None:
        """From the GPU to pinned memory."""

    def clear(self, address: int, count: int) -> None: ...

    def record(self, event: Event) -> None: ...

    def wait(self, event: Event) -> None:
        """What follows starts after the mark where `event` is now."""


class Driver(Protocol):
    """One GPU's context.

    Raises:
        DriverFault: by any call; also for work that an earlier one began.
    """

    @property
    def gpu(self) -> Gpu: ...

    def current(self) -> AbstractContextManager[None]:
        """The calling thread works in this context."""

    def free_bytes(self) -> int:
        """Of the GPU's memory."""

    def allocate(self, count: int) -> int:
        """The address of new memory, aligned to 256 bytes, its content junk.

        Raises:
            MemoryError: the GPU has no such memory.
        """

    def release(self, address: int) -> None: ...

    def forget(self) -> None:
        """Lets go of all kernels."""

    def pinned(self, count: int) -> Bytes:
        """Host memory from and to which streams copy.

        Raises:
            MemoryError: the host has no such memory to pin.
        """

    def stream(self) -> Stream: ...

    def event(self) -> Event: ...

    def graph(self, launches: Sequence[Launched]) -> Graph:
        """Launches as one; each kernel has run before."""

    def prepare(self, sources: Iterable[Source]) -> None:
        """Compiles what there is no machine code of, all at once.

        Raises:
            VeilgraphError: as `kernel`.
        """

    def kernel(self, launch: Launch) -> Kernel:
        """Compiles or loads the kernel of a launch, once for equal sources.

        Raises:
            VeilgraphError: there is no machine code of it for this GPU, and none can be made.
        """
