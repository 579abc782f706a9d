"""The device `cuda`: a party's memory and steps on one GPU, from input to reveal.

The arena is one allocation, and the public constants and the session's key schedules lie beside it.
Steps between two rounds are launched one after another with parameters that were laid out when the
plan was opened, or replayed as one graph; nothing waits for the GPU but what the host reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import DeviceError, ResourceLimitError
from veilgraph.ir.plan.tables import ROUND
from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import Launch, key_schedules
from veilgraph.kernels.cuda.launch import KEY_BYTES
from veilgraph.runtime.devices.cuda.drivers.interface import DriverFault, Kernel, Launched
from veilgraph.runtime.devices.cuda.graphs import Graphs
from veilgraph.runtime.devices.cuda.long_rounds import StagedLongRound
from veilgraph.runtime.devices.cuda.packing import Freshness
from veilgraph.runtime.devices.cuda.program import (
    GIB,
    NUMBER_BYTES,
    CudaProgram,
    require_memory,
    session_bytes,
)
from veilgraph.runtime.devices.cuda.staging import StagedRound, Staging, staging_bytes
from veilgraph.runtime.devices.cuda.timeline import Timeline
from veilgraph.runtime.devices.interface import MemoryRange, Piece, Places
from veilgraph.runtime.links.links import Buffer, byte_view
from veilgraph.runtime.randomness import require_number

PIECE_BYTES = 1 << 20  # least pinned memory, for inputs and outputs


@dataclass(frozen=True)
class Bound:
    """A launch with its parameters laid out."""

    step: int
    kernel: Kernel
    parameters: bytes


@dataclass(frozen=True)
class CudaReady:
    """See device.Ready; `graphs` as of a CudaDevice."""

    made: CudaProgram
    graphs: bool = True

    @property
    def product(self) -> str:
        return self.made.driver.gpu.name

    def open(self, keys: bytes) -> CudaDevice:
        return CudaDevice(self.made, keys, self.graphs)


class CudaDevice:
    """A party's program on a GPU; see device.Device.

    Args:
        made: the program, ready for the GPU.
        keys: in the plan's order, 16 bytes each.
        graphs: whether ranges of steps that come again are replayed as graphs.

    Raises:
        ResourceLimitError: the GPU has less memory free by now.
        DeviceError: the GPU failed.
    """

    def __init__(self, made: CudaProgram, keys: bytes, graphs: bool = True) -> None:
        self._plan, self._program, self._driver = made.plan, made.program, made.driver
        driver = made.driver
        self._failed = self._closed = False
        self._latest = 0, 0  # the steps that were begun last
        self._run = 0
        self._allocations: list[tuple[int, int]] = []  # address and bytes
        with self._on_gpu():
            require_memory(made.plan, made.program, driver, made.laid.beside_bytes)
            self._compute, self._done = driver.stream(), driver.event()
            self._arena = self._allocated(self._program.arena_bytes)
            self._constants = self._allocated(len(made.plan.constants))
            self._number = self._allocated(session_bytes(made.program))
            self._keys = self._number + NUMBER_BYTES
            self._scratch = self._allocated(made.laid.scratch_bytes)
            self._packed = self._allocated(made.laid.bytes)
            self._freshness = Freshness(self._program, made.packed)
            self._staging = self._staged(max(PIECE_BYTES, staging_bytes(self._program)))
            self._ranges: dict[tuple[int, int], list[Bound]] = {}
            self._lay_out(made)
            self._graphs = Graphs(driver, self._launches) if graphs else None
            kernels = [int(kernel) for kernel in self._program.steps["kernel"]]
            names = ["round" if k == ROUND else KERNELS[k] for k in kernels]
            self._timeline = Timeline(driver, self._compute, names)
            self._write(self._constants, np.frombuffer(made.plan.constants, np.uint8))
            # Last, so that no secret is on the GPU of a device that could not be made.
            self._write_keys(keys)

    # Steps

    @property
    def native(self) -> None:
        """None: a GPU does the work."""

    def rekey(self, keys: bytes) -> None:
        with self._on_gpu():
            self._write_keys(keys)

    def _write_keys(self, keys: bytes) -> None:
        assert len(keys) == KEY_BYTES * len(self._program.keys), "other keys than the plan's"
        schedules = key_schedules(keys).reshape(-1)
        self._write(self._keys, schedules)
        self._staging.pinned[: len(schedules)] = 0

    def run(self, first: int, last: int, run: int) -> None:
        self._run_steps((first, last), first, last, run)

    def _run_steps(self, steps: tuple[int, int], first: int, last: int, run: int) -> None:
        """Steps [first, last) of a range, of which a fault may be anywhere."""
        assert 0 <= first <= last <= len(self._program.steps), "steps out of range"
        require_number(run, 1 << 32)
        self._latest = steps
        if first == last:
            return
        with self._on_gpu():
            if run != self._run:
                self._compute.write(self._number, run)
                self._run = run
            if self._freshness.is_due(first, last):
                for kernel, parameters in self._fills:
                    self._compute.launch(kernel, parameters)
            (self._run_traced if self._timeline.traces else self._run_all)(first, last)

    def _run_all(self, first: int, last: int) -> None:
        start = self._timeline.mark()
        graph = self._graphs.find(first, last) if self._graphs else None
        if graph is None:
            self._launch(first, last)
        else:
            self._compute.replay(graph)
        self._timeline.add(first, last, start, self._timeline.mark())

    def _launches(self, first: int, last: int) -> list[Launched]:
        return [(bound.kernel, bound.parameters) for bound in self._launches_of(first, last)]

    def _launches_of(self, first: int, last: int) -> list[Bound]:
        """The launches of steps [first, last), those joined that lie inside."""
        if (first, last) not in self._ranges:
            found = {step: self._bound[step] for step in range(first, last)}
            for prologue, products in self._prologues:
                if first <= prologue.first and prologue.last < last:
                    found.update({step: [] for step in prologue.sums} | products)
            for epilogue, bound in self._epilogues:
                if first <= epilogue.product and epilogue.follower < last:
                    found[epilogue.product] = found[epilogue.product][:-1]
                    found[epilogue.follower] = [bound]
            self._ranges[first, last] = [bound for step in found.values() for bound in step]
        return self._ranges[first, last]

    def _run_traced(self, first: int, last: int) -> None:
        start = self._timeline.mark()
        for step in range(first, last):
            self._launch(step, step + 1)
            end = self._timeline.mark()
            self._timeline.add(step, step + 1, start, end)
            start = end

    def _launch(self, first: int, last: int) -> None:
        launch = self._compute.launch
        for bound in self._launches_of(first, last):
            try:
                launch(bound.kernel, bound.parameters)
            except DriverFault:
                self._latest = bound.step, bound.step + 1
                raise

    def finish(self) -> None:
        with self._on_gpu():
            self._finish()

    def _finish(self) -> None:
        self._compute.record(self._done)
        self._done.synchronize()

    # Memory

    def round(self, sends: Mapping[int, Places], receives: Mapping[int, Places]) -> StagedRound:
        return self._staging.round(sends, receives)

    def long_round(
        self, first: int, last: int, sends: Sequence[Piece], receives: Sequence[Piece]
    ) -> StagedLongRound:
        steps = partial(self._run_steps, (first, last))
        return StagedLongRound(self._staging, first, last, sends, receives, steps)

    def copy_in(self, offset: int, content: Buffer) -> None:
        view = np.frombuffer(byte_view(content), np.uint8)
        self._require_place((offset, len(view)))
        with self._on_gpu():
            self._write(self._arena + offset, view)
        self._freshness.wrote((offset, len(view)))

    def _write(self, address: int, content: npt.NDArray[np.uint8]) -> None:
        self._finish()  # the pinned memory is free then
        for start, pinned in self._pieces(len(content)):
            pinned[:] = content[start : start + len(pinned)]
            self._compute.copy_in(address + start, pinned)
            self._finish()

    def copy_out(self, place: MemoryRange) -> npt.NDArray[np.uint8]:
        self._require_place(place)
        offset, count = place
        found = np.empty(count, np.uint8)
        with self._on_gpu():
            self._finish()
            for start, pinned in self._pieces(count):
                self._compute.copy_out(pinned, self._arena + offset + start)
                self._finish()
                found[start : start + len(pinned)] = pinned
        return found

    def _pieces(self, count: int) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """Starts of pieces of so many bytes, and pinned memory of each one's length."""
        pinned = self._staging.pinned
        for start in range(0, count, len(pinned)):
            yield start, pinned[: count - start]

    def _require_place(self, place: MemoryRange) -> None:
        offset, count = place
        end = offset + count
        assert 0 <= offset <= end <= self._program.arena_bytes, "a place beyond the party's memory"

    # Times

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        with self._on_gpu():
            return self._timeline.profile

    def reset_profile(self) -> None:
        with self._on_gpu():
            self._timeline.reset()

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        with self._on_gpu():
            return self._timeline.spans

    def trace(self) -> None:
        with self._on_gpu():
            self._timeline.trace()

    def note(self, step: int, start: int, end: int) -> None:
        self._timeline.note(step, start, end)

    # Making and ending

    @contextmanager
    def _on_gpu(self) -> Iterator[None]:
        """In the GPU's context; a fault there ends the device, and names the step."""
        assert not self._closed, "this device was closed"
        try:
            with self._driver.current():
                yield
        except DriverFault as fault:
            self._failed = True
            raise self._error(fault) from fault

    def _error(self, fault: DriverFault) -> DeviceError:
        first, last = self._latest
        gpu = self._driver.gpu.name
        if first == last:
            return DeviceError(f"The {gpu} failed: {fault}.", "`veilgraph doctor` looks at it.")
        what = self._said(first)
        if last - first > 1:
            what = f"one of {what} to {self._said(last - 1)}"
        return DeviceError(
            f"{self._program.party}'s {gpu} failed in {what}: {fault}.",
            "With CUDA_LAUNCH_BLOCKING=1 in the environment, and `,no-graphs` behind the device's "
            "name, the very step is named.",
        )

    def _said(self, step: int) -> str:
        row = self._program.steps[step]
        layers, number = self._plan.layers, int(row["layer"])
        layer = layers[number].name if number < len(layers) else ""
        kernel = KERNELS[int(row["kernel"])]
        return f"step {step} ({kernel}{f' of layer {layer}' if layer else ''})"

    def _allocated(self, count: int) -> int:
        """The address of so many zeros."""
        try:
            address = self._driver.allocate(max(count, 1))
        except MemoryError as error:
            raise ResourceLimitError(
                f"The {self._driver.gpu.name} has no {count / GIB:.2f} GiB in one piece.",
                "End what else uses it, or compile for a smaller batch with --shape.",
            ) from error
        self._compute.clear(address, max(count, 1))
        self._allocations.append((address, max(count, 1)))
        return address

    def _staged(self, count: int) -> Staging:
        try:
            wrote = self._freshness.wrote
            return Staging(self._driver, self._compute, self._arena, count, self._on_gpu, wrote)
        except MemoryError as error:
            raise ResourceLimitError(
                f"This host has no {count / GIB:.2f} GiB of memory to pin for messages.",
                "End what else pins memory, or compile for a smaller batch with --shape.",
            ) from error

    def _lay_out(self, made: CudaProgram) -> None:
        """Binds all launches."""
        self._bound = [self._bind_step(*each) for each in enumerate(made.laid.steps)]
        self._prologues = [
            (each, {step: self._bind_step(step, made) for step, made in each.products.items()})
            for each in made.prologues
        ]
        self._epilogues = [
            (each, Bound(each.follower, *self._bind(each.launch))) for each in made.epilogues
        ]
        self._fills = [self._bind(launch) for launch in made.laid.fills]

    def _bind_step(self, step: int, launches: Iterable[Launch]) -> list[Bound]:
        return [Bound(step, *self._bind(launch)) for launch in launches]

    def _bind(self, launch: Launch) -> Launched:
        regions = self._arena, self._constants, self._scratch, self._packed
        parameters = launch.bind(regions, self._keys, self._number)
        return self._driver.kernel(launch), parameters.tobytes()

    def close(self) -> None:
        """Zeros over shares, keys and messages, and the memory given back.

        After a fault the GPU takes no more orders: the driver gives its memory to nobody before
        this process ends, and clears it then.
        """
        if self._closed:
            return
        if self._failed:
            self._staging.wipe()
        else:
            with self._on_gpu():
                self._release()
        self._closed = True

    def _release(self) -> None:
        self._staging.settle()
        self._staging.wipe()
        for address, count in self._allocations:
            self._compute.clear(address, count)
        self._finish()
        for address, _ in self._allocations:
            self._driver.release(address)
        if self._graphs:
            self._graphs.close()
        # The rest goes with the last reference, and has to go in the GPU's context.
        self._bound.clear()
        self._fills.clear()
        self._prologues.clear()
        self._epilogues.clear()
        self._ranges.clear()
        del self._staging, self._timeline, self._compute, self._done
        self._driver.forget()
