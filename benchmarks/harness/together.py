"""All parties of a plan as threads of one process, on one device, over queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Any, Self

from benchmarks.gpu.matmul import opened
from benchmarks.harness.sessions import compiled
from benchmarks.harness.workloads import Network
from veilgraph.ir.plan.tables import Phase
from veilgraph.kernels.cuda import DeviceShape
from veilgraph.measuring.measure import COUNTED, Measurement, measure
from veilgraph.plans import Plan
from veilgraph.runtime.devices.cuda.drivers.gpus import Gpu
from veilgraph.runtime.devices.cuda.drivers.interface import Driver
from veilgraph.runtime.devices.cuda.packing import fixed_buffers
from veilgraph.runtime.devices.cuda.program import needed_bytes, step_launches
from veilgraph.runtime.devices.dataflow import accesses

PARTS = ("steps", "links", "other")  # of a run's seconds


class MemoryWatch:
    """The most of a GPU's memory that was taken at once while it watched, looked at often.

    Args:
        free: says how many bytes are free.
        seconds: between two looks.
    """

    def __init__(self, free: Callable[[], int], seconds: float = 5e-3) -> None:
        self._free, self._seconds = free, seconds
        self._stop = Event()
        self._thread = Thread(target=self._look)

    def __enter__(self) -> Self:
        self._before = self._least = self._free()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(self._seconds):
            self._least = min(self._least, self._free())

    @property
    def taken_bytes(self) -> int:
        return self._before - self._least


def free_of(driver: Driver) -> Callable[[], int]:
    """Bytes that a GPU has free, from any thread."""

    def free() -> int:
        with driver.current():
            return driver.free_bytes()

    return free


def beside_arena(plan: Plan, party: str, gpu: Gpu) -> int:
    """Bytes that a party has on a GPU beside its arena: constants, keys, scratch memory, and
    weights laid out for its kernels."""
    program = plan.party(party)
    shape = DeviceShape(gpu.multiprocessors, gpu.arch)
    laid, _ = step_launches(program, accesses(program), shape, fixed_buffers(program))
    return needed_bytes(plan, program, laid.beside_bytes) - program.arena_bytes


def shares(found: Measurement) -> dict[str, float]:
    """Shares of all parties' seconds in the median run: in steps, in links, and the rest."""
    splits = found.splits().values()
    spent = {
        "steps": sum(sum(split.kernels.values()) for split in splits),
        "links": sum(split.waiting + (split.encryption or 0.0) for split in splits),
        "other": sum(split.other for split in splits),
    }
    whole = sum(spent.values()) or 1.0
    return {part: spent[part] / whole for part in PARTS}


def together(network: Network, device: str, runs: int) -> dict[str, Any]:
    """Seconds, bytes, rounds and memory of a session; memory is watched in one of its own."""
    ours, driver = compiled(network, "rep3", "auto"), opened(device)
    plan, parties = ours.plan, ours.plan.manifest.parties

    def session(iterations: int) -> Measurement:
        return measure(
            plan, ours.weights, ours.inputs, iterations=iterations, warm_up=1, device=device
        )

    with MemoryWatch(free_of(driver)) as memory:
        session(1)
    found = session(runs)
    return {
        "seconds": vars(found.seconds(*COUNTED)),
        "online_seconds": vars(found.seconds(Phase.ONLINE)),
        "rounds": sum(plan.rounds(phase) for phase in COUNTED),
        "sent_bytes": ours.sent_bytes,
        "party_bytes": dict(found.peak_memory_bytes),
        "beside_bytes": {p: beside_arena(plan, p, driver.gpu) for p in parties},
        "taken_bytes": memory.taken_bytes,
        "shares": shares(found),
        "split": {party: dict(split.rows()) for party, split in found.splits().items()},
    }


def whole_bytes(found: Mapping[str, Any]) -> int:
    """Of all parties on one GPU, by the plan."""
    return sum((*found["party_bytes"].values(), *found["beside_bytes"].values()))
