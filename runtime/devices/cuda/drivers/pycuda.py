"""A GPU's driver by PyCUDA. PyCUDA is imported when a GPU is opened, and by nothing else here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from veilgraph.ir.errors import UsageError
from veilgraph.kernels.cuda import Launch, Source
from veilgraph.runtime.devices.cuda.archs import gpu_arch
from veilgraph.runtime.devices.cuda.cubins import Cubins
from veilgraph.runtime.devices.cuda.drivers.gpus import cuda_version, gpu_of
from veilgraph.runtime.devices.cuda.drivers.interface import (
    Bytes,
    DriverFault,
    Event,
    Graph,
    Kernel,
    Launched,
)
from veilgraph.runtime.devices.cuda.drivers.libcuda import GraphCalls

UNASKED_SHARED_BYTES = 48 << 10  # what a block gets without asking, static memory included
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: the default stream is no matter to it

P = ParamSpec("P")
R = TypeVar("R")


class _HasModule(Protocol):
    _cuda: Any


S = TypeVar("S", bound=_HasModule)


def _faults(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """PyCUDA's errors as DriverFault."""

    @wraps(method)
    def told(self: S, /, *args: P.args, **named: P.kwargs) -> R:
        try:
            return method(self, *args, **named)
        except self._cuda.Error as error:
            raise DriverFault(" ".join(str(error).split())) from error

    return told


class PyCudaEvent:
    """See interface.Event."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self.event = cuda.Event()
        self._is_set = False

    @_faults
    def record(self, stream: Any) -> None:
        self.event.record(stream)
        self._is_set = True

    @_faults
    def synchronize(self) -> None:
        if self._is_set:
            self.event.synchronize()

    @_faults
    def seconds_since(self, earlier: Event) -> float:
        assert isinstance(earlier, PyCudaEvent)
        return float(self.event.time_since(earlier.event)) / 1e3


@dataclass(frozen=True)
class PyCudaKernel:
    """See interface.Kernel; `function` is prepared for one block of parameters."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


@dataclass(frozen=True)
class PyCudaGraph:
    """See interface.Graph; `handle` is the driver's."""

    calls: GraphCalls
    handle: int

    def close(self) -> None:
        self.calls.destroy(self.handle)


class PyCudaStream:
    """See interface.Stream."""

    def __init__(self, cuda: Any, flags: int = 0) -> None:
        self._cuda = cuda
        self._stream = cuda.Stream(flags)

    @property
    def handle(self) -> int:
        return int(self._stream.handle)

    @_faults
    def launch(self, kernel: Kernel, parameters: bytes) -> None:
        assert isinstance(kernel, PyCudaKernel)
        kernel.function.prepared_async_call(
            kernel.grid,
            kernel.block,
            self._stream,
            parameters,
            shared_size=kernel.shared_bytes,
        )

    def replay(self, graph: Graph) -> None:
        assert isinstance(graph, PyCudaGraph)
        graph.calls.launch(graph.handle, self.handle)

    @_faults
    def write(self, address: int, number: int) -> None:
        self._cuda.memset_d32_async(address, number, 1, self._stream)

    @_faults
    def copy_in(self, address: int, content: Bytes) -> None:
        self._cuda.memcpy_htod_async(address, content, self._stream)

    @_faults
    def copy_out(self, content: Bytes, address: int) -> None:
        self._cuda.memcpy_dtoh_async(content, address, self._stream)

    @_faults
    def clear(self, address: int, count: int) -> None:
        self._cuda.memset_d8_async(address, 0, count, self._stream)

    def record(self, event: Event) -> None:
        assert isinstance(event, PyCudaEvent)
        event.record(self._stream)

    @_faults
    def wait(self, event: Event) -> None:
        assert isinstance(event, PyCudaEvent)
        self._stream.wait_for_event(event.event)


class PyCudaDriver:
    """See interface.Driver: the primary context of a GPU, which devices of one process share.

    Args:
        cuda: the module pycuda.driver, initialised.
        index: the GPU's number.
        cubins: where machine code comes from.
        calls: the driver's calls for graphs, looked for when the first is made if None.

    Raises:
        UsageError: there is no such GPU.
    """

    def __init__(
        self, cuda: Any, index: int, cubins: Cubins, calls: GraphCalls | None = None
    ) -> None:
        self._cuda, self._cubins, self._given_calls = cuda, cubins, calls
        count = cuda.Device.count()
        if index >= count:
            raise UsageError(
                f"There is no GPU number {index}: this machine has {count}.",
                f"Name one of cuda:0 to cuda:{count - 1}.",
            )
        self._open(cuda.Device(index))
        self._modules: dict[str, Any] = {}
        self._allocations: dict[int, Any] = {}

    @_faults
    def _open(self, device: Any) -> None:
        self.gpu = gpu_of(self._cuda, device)
        gpu_arch(self.gpu.arch)
        self._context = device.retain_primary_context()

    @contextmanager
    def current(self) -> Iterator[None]:
        self._push()
        try:
            yield
        finally:
            self._pop()

    @_faults
    def _push(self) -> None:
        self._context.push()

    @_faults
    def _pop(self) -> None:
        self._cuda.Context.pop()

    @_faults
    def free_bytes(self) -> int:
        free, _ = self._cuda.mem_get_info()
        return int(free)

    @_faults
    def allocate(self, count: int) -> int:
        try:
            allocation = self._cuda.mem_alloc(count)
        except self._cuda.MemoryError as error:
            raise MemoryError(str(error)) from error
        self._allocations[int(allocation)] = allocation
        return int(allocation)

    @_faults
    def release(self, address: int) -> None:
        self._allocations.pop(address).free()

    def forget(self) -> None:
        self._modules.clear()

    @_faults
    def pinned(self, count: int) -> Bytes:
        try:
            found: Bytes = self._cuda.pagelocked_empty(max(count, 1), np.uint8)
        except self._cuda.MemoryError as error:
            raise MemoryError(str(error)) from error
        return found[:count]

    @_faults
    def stream(self) -> PyCudaStream:
        return PyCudaStream(self._cuda)

    @_faults
    def event(self) -> PyCudaEvent:
        return PyCudaEvent(self._cuda)

    @cached_property
    def _calls(self) -> GraphCalls:
        return self._given_calls or GraphCalls()

    @_faults
    def graph(self, launches: Sequence[Launched]) -> PyCudaGraph:
        """By capture, on a stream of its own: PyCUDA's launches are kept as they are."""
        stream = PyCudaStream(self._cuda, _NON_BLOCKING)
        self._calls.begin(stream.handle)
        try:
            for kernel, parameters in launches:
                stream.launch(kernel, parameters)
        except BaseException:
            self._calls.abandon(stream.handle)
            raise
        return PyCudaGraph(self._calls, self._calls.end(stream.handle))

    def prepare(self, sources: Iterable[Source]) -> None:
        self._cubins.make(sources, self.gpu.arch)

    @_faults
    def kernel(self, launch: Launch) -> PyCudaKernel:
        digest = launch.source.digest
        if digest not in self._modules:
            self._modules[digest] = self._load(launch)
        function = self._modules[digest].get_function(launch.entry)
        function.prepare([f"{8 * len(launch.arguments)}s"])
        if function.shared_size_bytes + launch.shared_bytes > UNASKED_SHARED_BYTES:
            wanted = self._cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(wanted, launch.shared_bytes)
        return PyCudaKernel(function, launch.grid, launch.block, launch.shared_bytes)

    def _load(self, launch: Launch) -> Any:
        cubin = self._cubins.cubin(launch.source, self.gpu.arch)
        try:
            return self._cuda.module_from_buffer(cubin)
        except self._cuda.Error as error:
            version = cuda_version(self._cuda.get_driver_version())
            raise UsageError(
                f"The driver (CUDA {version}) takes no machine code of kernel "
                f"`{launch.source.name}`: {error}.",
                "It is damaged, or of an nvcc newer than the driver: remove it, or update the "
                "driver.",
            ) from error
