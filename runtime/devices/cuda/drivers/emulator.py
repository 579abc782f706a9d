"""A driver without a GPU: kernels compiled for the host, over this process's memory; for tests.

Streams keep CUDA's rules and no more: work waits in its stream until somebody waits for an event
behind it, or is done at once where a stream is hasty. What reads or writes too early shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from veilgraph.kernels.cuda import Launch, Source
from veilgraph.kernels.cuda.emulator import EmulatorRunner
from veilgraph.runtime.devices.cuda.cubins import alone, in_parallel, make_own
from veilgraph.runtime.devices.cuda.drivers.gpus import Gpu
from veilgraph.runtime.devices.cuda.drivers.interface import Bytes, Event, Graph, Kernel, Launched

ALIGNMENT = 256
EMULATOR = Gpu("host emulator", "host", multiprocessors=2, memory_bytes=4 << 30)


class EmulatorEvent:
    """See interface.Event."""

    def __init__(self) -> None:
        self.stream: EmulatorStream | None = None
        self.position = 0
        self.reached_at = 0.0

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.work_to(self.position)

    def seconds_since(self, earlier: Event) -> float:
        assert isinstance(earlier, EmulatorEvent)
        return self.reached_at - earlier.reached_at


@dataclass(frozen=True)
class EmulatorKernel:
    """See interface.Kernel."""

    launch: Launch


@dataclass
class EmulatorGraph:
    """See interface.Graph."""

    launches: tuple[Launched, ...]
    closed: bool = False

    def close(self) -> None:
        assert not self.closed, "a graph that was let go of before"
        self.closed = True


@dataclass(frozen=True)
class _Work:
    """Something to do, once another stream has come to a position."""

    act: Callable[[], None]
    behind: EmulatorStream | None = None
    position: int = 0


class EmulatorStream:
    """See interface.Stream; a hasty one works as soon as it may, any other as late."""

    def __init__(self, driver: EmulatorDriver, hasty: bool) -> None:
        self._driver, self._hasty = driver, hasty
        self._work: deque[_Work] = deque()
        self._done = 0

    def work_to(self, position: int) -> None:
        """Does all that was put up before so many pieces of work were."""
        while self._done < position:
            work = self._work.popleft()
            if work.behind is not None:
                work.behind.work_to(work.position)
            work.act()
            self._done += 1

    def work_to_end(self) -> None:
        self.work_to(self._done + len(self._work))

    def _add(self, work: _Work) -> None:
        self._work.append(work)
        while self._hasty and self._work and self._is_free(self._work[0]):
            self.work_to(self._done + 1)

    @staticmethod
    def _is_free(work: _Work) -> bool:
        return work.behind is None or work.behind._done >= work.position

    def launch(self, kernel: Kernel, parameters: bytes) -> None:
        self._driver.launches += 1
        self._add(_Work(lambda: self._call(kernel, parameters)))

    def _call(self, kernel: Kernel, parameters: bytes) -> None:
        assert isinstance(kernel, EmulatorKernel)
        self._driver.runner.call(kernel.launch, np.frombuffer(parameters, np.uint64))

    def replay(self, graph: Graph) -> None:
        assert isinstance(graph, EmulatorGraph)
        self._driver.replays += 1

        def act() -> None:
            assert not graph.closed, "a graph that was let go of"
            for launched in graph.launches:
                self._call(*launched)

        self._add(_Work(act))

    def write(self, address: int, number: int) -> None:
        word = np.array([number], np.uint32).view(np.uint8)
        self._add(_Work(lambda: np.copyto(self._driver.at(address, len(word)), word)))

    def copy_in(self, address: int, content: Bytes) -> None:
        self._driver.require_pinned(content)
        self._add(_Work(lambda: np.copyto(self._driver.at(address, len(content)), content)))

    def copy_out(self, content: Bytes, address: int) -> None:
        self._driver.require_pinned(content)
        self._add(_Work(lambda: np.copyto(content, self._driver.at(address, len(content)))))

    def clear(self, address: int, count: int) -> None:
        self._add(_Work(lambda: self._driver.at(address, count).fill(0)))

    def record(self, event: Event) -> None:
        assert isinstance(event, EmulatorEvent)

        def reach() -> None:
            event.reached_at = perf_counter()

        event.stream, event.position = self, self._done + len(self._work) + 1
        self._add(_Work(reach))

    def wait(self, event: Event) -> None:
        assert isinstance(event, EmulatorEvent)
        self._add(_Work(lambda: None, event.stream, event.position))


class EmulatorDriver:
    """See interface.Driver.

    Args:
        folder: where compiled kernels are kept; of this user alone.
        GPU: what it says it is.
        hasty: which streams, by the order they are made in, work as soon as they may.

    Attributes:
        launches, replays: how many the streams were asked for.
    """

    def __init__(self, folder: Path, gpu: Gpu = EMULATOR, hasty: Collection[int] = ()) -> None:
        self.gpu = gpu
        self.launches = self.replays = 0
        self._hasty = hasty
        self._streams: list[EmulatorStream] = []
        make_own(folder)
        self._folder = folder
        self.runner = EmulatorRunner(folder)
        self._memory: dict[int, Bytes] = {}
        self.pinned_blocks: list[Bytes] = []

    @property
    def blocks(self) -> list[Bytes]:
        """What is allocated, as it is now: work that waits is not done."""
        return list(self._memory.values())

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def free_bytes(self) -> int:
        return self.gpu.memory_bytes - sum(len(block) for block in self._memory.values())

    def allocate(self, count: int) -> int:
        if count > self.free_bytes():
            raise MemoryError
        block = np.full(count + ALIGNMENT, 0xA5, np.uint8)  # junk
        first = -block.ctypes.data % ALIGNMENT
        address = block.ctypes.data + first
        self._memory[address] = block[first : first + count]
        return address

    def release(self, address: int) -> None:
        del self._memory[address]

    def at(self, address: int, count: int) -> Bytes:
        """The bytes at an address, which must be inside one allocation."""
        for start, block in self._memory.items():
            if start <= address and address + count <= start + len(block):
                return block[address - start :][:count]
        raise AssertionError("an address beyond the GPU's memory")

    def forget(self) -> None:
        """Nothing to let go of: libraries stay loaded until the process ends."""

    def pinned(self, count: int) -> Bytes:
        self.pinned_blocks.append(np.zeros(count, np.uint8))
        return self.pinned_blocks[-1]

    def require_pinned(self, content: Bytes) -> None:
        assert any(np.may_share_memory(content, block) for block in self.pinned_blocks), (
            "not pinned"
        )

    def stream(self) -> EmulatorStream:
        self._streams.append(EmulatorStream(self, len(self._streams) in self._hasty))
        return self._streams[-1]

    def drain(self) -> None:
        """Does all work that is left: a GPU would, sooner or later, whoever waits."""
        for stream in self._streams:
            stream.work_to_end()

    def event(self) -> EmulatorEvent:
        return EmulatorEvent()

    def graph(self, launches: Sequence[Launched]) -> EmulatorGraph:
        return EmulatorGraph(tuple(launches))

    def prepare(self, sources: Iterable[Source]) -> None:
        with alone(self._folder):
            in_parallel(self.runner.library, list(sources))

    def kernel(self, launch: Launch) -> EmulatorKernel:
        return EmulatorKernel(launch)
