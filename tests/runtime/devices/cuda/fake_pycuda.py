"""A stand-in for pycuda.driver over this process's memory, as strict as PyCUDA is.

Every call needs a current context, copies need page-locked memory, addresses must be allocated, and
a function takes one block of bytes of the length that it was prepared for. Machine code is the
digest of its source, which the emulator runs. Work is done at once, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.cuda import Launch, Source
from veilgraph.kernels.cuda.emulator import EmulatorRunner
from veilgraph.runtime.devices.cuda.cubins import Cubins
from veilgraph.runtime.devices.cuda.drivers.libcuda import GraphCalls

Bytes = npt.NDArray[np.uint8]
MEMORY_BYTES = 1 << 30


class Error(Exception):
    """pycuda.driver.Error"""


class MemoryError(Error):
    """pycuda.driver.MemoryError"""


class FakeCubins(Cubins):
    """Gives a source's digest for its machine code."""

    def __init__(self, cuda: Any) -> None:
        super().__init__(Path("nowhere"))
        object.__setattr__(self, "sources", cuda.gpu.sources)

    sources: dict[str, Source]

    def make(self, sources: Iterable[Source], arch: str) -> None:
        self.sources.update({source.digest: source for source in sources})

    def cubin(self, source: Source, arch: str) -> bytes:
        assert source.digest in self.sources, "loaded before it was made"
        return source.digest.encode()


class Gpu:
    """pycuda.driver.Device, and all that happens on it."""

    def __init__(self, folder: Path) -> None:
        self.runner = EmulatorRunner(folder)
        self.contexts = 0
        self.static_shared = 0  # bytes that every kernel has declared
        self.sources: dict[str, Source] = {}
        self.allocated: dict[int, Bytes] = {}
        self.page_locked: list[Bytes] = []
        self.streams: dict[int, Stream] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}

    def require_context(self) -> None:
        if self.contexts < 1:
            raise Error("no currently active context?")

    def at(self, address: int, count: int) -> Bytes:
        self.require_context()
        for start, block in self.allocated.items():
            if start <= address and address + count <= start + len(block):
                return block[address - start :][:count]
        raise Error("an illegal memory access was encountered")

    def require_page_locked(self, content: Bytes) -> None:
        if not any(np.may_share_memory(content, block) for block in self.page_locked):
            raise Error("host memory is not page-locked")


class Context:
    """What `retain_primary_context` gives."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def push(self) -> None:
        self.gpu.contexts += 1


class Allocation:
    """pycuda.driver.DeviceAllocation"""

    def __init__(self, gpu: Gpu, count: int) -> None:
        gpu.require_context()
        block = np.full(count + 256, 0xA5, np.uint8)
        first = -block.ctypes.data % 256
        self.address, self.gpu = block.ctypes.data + first, gpu
        gpu.allocated[self.address] = block[first : first + count]

    def __int__(self) -> int:
        return self.address

    def free(self) -> None:
        self.gpu.require_context()
        del self.gpu.allocated[self.address]


class Event:
    """pycuda.driver.Event"""

    def __init__(self, gpu: Gpu) -> None:
        gpu.require_context()
        self.gpu, self.at = gpu, 0.0

    def record(self, stream: Any = None) -> None:
        self.gpu.require_context()
        self.at = perf_counter()

    def synchronize(self) -> None:
        self.gpu.require_context()
        assert self.at, "an event that was never recorded"

    def time_since(self, other: Event) -> float:
        return (self.at - other.at) * 1e3


MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Stream:
    """pycuda.driver.Stream; `kept` has the launches that it captures, if it does."""

    def __init__(self, gpu: Gpu, flags: int = 0) -> None:
        gpu.require_context()
        self.flags, self.handle = flags, 1 + len(gpu.streams)
        self.kept: list[Callable[[], None]] | None = None
        gpu.streams[self.handle] = self

    def wait_for_event(self, event: Event) -> None:
        event.gpu.require_context()
        assert self.kept is None


class FakeGraphCalls(GraphCalls):
    """What libcuda does for graphs."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def begin(self, stream: int) -> None:
        self.gpu.require_context()
        assert self.gpu.streams[stream].flags == 1, "may meet the default stream"
        self.gpu.streams[stream].kept = []

    def end(self, stream: int) -> int:
        kept = self.gpu.streams[stream].kept
        assert kept is not None
        self.gpu.streams[stream].kept = None
        handle = 1000 + len(self.gpu.graphs)
        self.gpu.graphs[handle] = kept
        return handle

    def abandon(self, stream: int) -> None:
        self.gpu.streams[stream].kept = None

    def launch(self, graph: int, stream: int) -> None:
        self.gpu.require_context()
        assert self.gpu.streams[stream].kept is None
        for call in self.gpu.graphs[graph]:
            call()

    def destroy(self, graph: int) -> None:
        self.gpu.require_context()
        self.gpu.graphs[graph].clear()


class Function:
    """pycuda.driver.Function"""

    def __init__(self, gpu: Gpu, source: Source, entry: str) -> None:
        assert entry in source.entries
        self.gpu, self.source, self.entry = gpu, source, entry
        self.arg_format = ""
        self.shared_size_bytes = gpu.static_shared
        # Dynamic bytes that a block gets without asking.
        self.most_shared = (48 << 10) - self.shared_size_bytes

    def set_attribute(self, attribute: int, value: int) -> None:
        assert attribute == MAX_DYNAMIC_SHARED
        self.most_shared = value

    def prepare(self, arg_types: list[str]) -> Function:
        self.arg_format = "".join(arg_types)
        return self

    def prepared_async_call(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        stream: Any,
        *args: bytes,
        shared_size: int = 0,
    ) -> None:
        self.gpu.require_context()
        (parameters,) = args
        assert isinstance(parameters, bytes)
        assert self.arg_format == f"{len(parameters)}s"
        assert shared_size <= self.most_shared
        launch = Launch(self.source, self.entry, grid, block, (), shared_size)

        def call() -> None:
            self.gpu.runner.call(launch, np.frombuffer(parameters, np.uint64))

        call() if stream.kept is None else stream.kept.append(call)


def fake_pycuda(folder: Path) -> Any:
    """The module, of a machine with one GPU."""
    gpu, cuda = Gpu(folder), ModuleType("pycuda.driver")

    def in_context(call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any) -> Any:
            gpu.require_context()
            return call(*args)

        return checked

    def copy_in(address: int, content: Bytes, stream: Any) -> None:
        gpu.require_page_locked(content)
        gpu.at(address, len(content))[:] = content

    def copy_out(content: Bytes, address: int, stream: Any) -> None:
        gpu.require_page_locked(content)
        content[:] = gpu.at(address, len(content))

    def copy_on_gpu(target: int, source: int, count: int, stream: Any) -> None:
        gpu.at(target, count)[:] = gpu.at(source, count)

    def page_locked(count: int, dtype: Any) -> Bytes:
        gpu.page_locked.append(np.empty(count, dtype))
        return gpu.page_locked[-1]

    def pop() -> None:
        gpu.require_context()
        gpu.contexts -= 1

    def module(cubin: bytes) -> Any:
        found: Any = ModuleType("module")
        found.get_function = lambda entry: Function(gpu, gpu.sources[cubin.decode()], entry)
        return found

    def set_words(address: int, value: int, count: int, stream: Stream) -> None:
        gpu.at(address, 4 * count).view(np.uint32)[:] = value

    def allocate(count: int) -> Allocation:
        used = sum(len(block) for block in gpu.allocated.values())
        if used + count > MEMORY_BYTES:
            raise MemoryError("cuMemAlloc failed: out of memory")
        return Allocation(gpu, count)

    names: Mapping[str, Any] = {
        "gpu": gpu,
        "Error": Error,
        "MemoryError": MemoryError,
        "init": lambda: None,
        "get_driver_version": lambda: 13000,
        "device_attribute": type(
            "device_attribute", (), {"MULTIPROCESSOR_COUNT": 16, "CLOCK_RATE": 13}
        ),
        "function_attribute": type(
            "function_attribute", (), {"MAX_DYNAMIC_SHARED_SIZE_BYTES": MAX_DYNAMIC_SHARED}
        ),
        "Device": type("Device", (_Device,), {"gpu": gpu}),
        "Context": type("Context", (), {"pop": staticmethod(pop)}),
        "Event": lambda: Event(gpu),
        "Stream": lambda flags=0: Stream(gpu, flags),
        "mem_get_info": in_context(
            lambda: (
                MEMORY_BYTES - sum(len(block) for block in gpu.allocated.values()),
                MEMORY_BYTES,
            )
        ),
        "mem_alloc": in_context(allocate),
        "memcpy_htod_async": copy_in,
        "memcpy_dtoh_async": copy_out,
        "memcpy_dtod_async": copy_on_gpu,
        "memset_d8_async": lambda at, value, count, stream: gpu.at(at, count).fill(value),
        "memset_d32_async": set_words,
        "pagelocked_empty": in_context(page_locked),
        "module_from_buffer": in_context(module),
    }
    vars(cuda).update(names)
    return cuda


class _Device:
    """pycuda.driver.Device"""

    gpu: Gpu
    gpus = 1

    def __init__(self, index: int) -> None:
        assert 0 <= index < self.gpus

    @classmethod
    def count(cls) -> int:
        return cls.gpus

    def compute_capability(self) -> tuple[int, int]:
        return 9, 0

    def get_attribute(self, attribute: int) -> int:
        return {16: 132, 13: 1_980_000}[attribute]

    def name(self) -> str:
        return "NVIDIA H200"

    def pci_bus_id(self) -> str:
        return "00000000:1B:00.0"

    def total_memory(self) -> int:
        return MEMORY_BYTES

    def retain_primary_context(self) -> Context:
        return Context(self.gpu)
