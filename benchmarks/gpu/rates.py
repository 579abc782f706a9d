"""Kernels on a GPU: bytes a second of copies, draws, fused programs and depthwise convolutions.

The bar is the driver's own copy on the GPU, where there is a GPU. What draws take of a fused
program is what it takes less with zeros in their place, at the price of words packed to planes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.calls import Filtered
from benchmarks.gpu.matmul import layer_seconds, opened
from benchmarks.harness.alone import LEAST_ARCH
from benchmarks.harness.kernel_calls import Call, Words, fused
from benchmarks.harness.sessions import Ours, compiled
from benchmarks.harness.workloads import Network
from benchmarks.kernels import Layer, mobilenet_v2
from veilgraph.ir.plan.tables import BufferKind, PartyPlan, Phase
from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import DeviceShape, buffers_of
from veilgraph.kernels.cuda.steps import launches
from veilgraph.kernels.fused.declaration import HEADER, INSTRUCTION, instruction, program
from veilgraph.kernels.fused.instructions import Op
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.cuda.drivers.gpus import load_pycuda
from veilgraph.runtime.devices.cuda.drivers.interface import Driver
from veilgraph.runtime.devices.names import CUDA, DeviceName
from veilgraph.runtime.randomness import fresh_seed

GIGA = 1e9
COPY_SHARE, DRAW_RATE, MOST_DRAWS = 0.8, 250e9, 0.4  # issue 6, of an H100 or H200
DEPTHWISE_SHARE = 0.5  # of a copy, as issue 4 asks of a processor
TYPICAL = 3
BLOCK_BITS = 128  # of AES
WORD_BITS = 64  # planes of zeros that one word is packed to


@dataclass(frozen=True)
class Rate:
    """Bytes a second of a kernel on the GPU, and what it has to reach; 0: report only.

    Attributes:
        draws: the share of its time that draws take; None where it has none.
    """

    what: str
    bytes_per_second: float
    least: float = 0.0
    draws: float | None = None

    @property
    def row(self) -> list[str]:
        least = f"{self.least / GIGA:.0f} GB/s" if self.least else "report"
        draws = ["", ""]
        if self.draws is not None:
            draws = [units.percent(self.draws), units.percent(MOST_DRAWS)]
        return [self.what, f"{self.bytes_per_second / GIGA:.1f} GB/s", least, *draws]


# Copies and draws


def driver_copy_rate(cuda: Any, driver: Driver, size: int, runs: int) -> float:
    """Bytes a second read and written by cuMemcpyDtoD, from one place on the GPU to another."""
    found = []
    with driver.current():
        target, source = (driver.allocate(size) for _ in range(2))
        stream, start, end = cuda.Stream(), cuda.Event(), cuda.Event()
        for _ in range(runs + 1):
            start.record(stream)
            cuda.memcpy_dtod_async(target, source, size, stream)
            end.record(stream)
            end.synchronize()
            found.append(float(end.time_since(start)) / 1e3)
        for address in (target, source):
            driver.release(address)
    return 2 * size / median(found[1:])


def copy_rate(device: str, words: int, runs: int) -> float:
    """Bytes a second read and written by the kernel `copy`."""
    call = Call("copy", [Words((words,), 64)] * 2, (), device)
    return 2 * 8 * words / call.median_seconds(runs)


def draw_rate(device: str, words: int, runs: int) -> float:
    """Bytes a second of AES-128-CTR draws, written to memory."""
    draw = {"op": Op.DRAW, "word": 64, "dst": 0, "a": 0, "count": 64}
    store = {"op": Op.STORE, "word": 64, "a": 0, "b": 0}
    call = Call("fused", [Words((words,), 64)], fused(words, 1, 0, [draw, store]), device)
    return 8 * words / call.median_seconds(runs)


def copies_and_draws(device: str, words: int, runs: int) -> list[Rate]:
    """The bar first: the driver's own copy, or ours where there is no GPU."""
    rates = []
    if DeviceName.parse(device).kind == CUDA:
        theirs = driver_copy_rate(load_pycuda(), opened(device), 8 * words, runs)
        rates.append(Rate("copy, the driver's", theirs))
    ours = copy_rate(device, words, runs)
    rates.append(Rate("copy, ours", ours, COPY_SHARE * rates[0].bytes_per_second if rates else 0.0))
    return [*rates, Rate("AES draws", draw_rate(device, words, runs), DRAW_RATE)]


# Fused programs


def stream_bytes(party: PartyPlan, step: int) -> int:
    """Bytes of the buffers of a step, what is repeated (stride 0) counted once."""
    return sum(_buffer_bytes(each) for each in party.buffers_of(party.steps[step]))


def _buffer_bytes(row: np.void) -> int:
    rank, kind = int(row["rank"]), BufferKind(int(row["kind"]))
    shape, strides = row["shape"][:rank], row["strides"][:rank]
    if kind in (BufferKind.WORDS32, BufferKind.WORDS64):
        words = int(np.prod(shape[strides != 0], dtype=np.int64))
        return words * (8 if kind is BufferKind.WORDS64 else 4)
    return int(shape[0]) * int(row["bits"]) // 8


def inference_steps(party: PartyPlan) -> list[int]:
    """Fused steps of the offline and the online phase."""
    is_fused = party.steps["kernel"] == KERNELS.index("fused")
    found: list[int] = np.flatnonzero(is_fused & (party.steps["phase"] != Phase.SETUP)).tolist()
    return found


def typical_steps(party: PartyPlan) -> list[int]:
    """Of the printed kernels that move most bytes of an inference, the largest step of each."""
    by_source: dict[str, list[int]] = {}
    for step in inference_steps(party):
        by_source.setdefault(_source_digest(party, step), []).append(step)

    def moved(found: Sequence[int]) -> int:
        return sum(stream_bytes(party, step) for step in found)

    largest = sorted(by_source.values(), key=moved, reverse=True)[:TYPICAL]
    return [max(found, key=lambda step: stream_bytes(party, step)) for found in largest]


def _source_digest(party: PartyPlan, step: int) -> str:
    """What steps share that run one kernel: draws and constants are its parameters."""
    row = party.steps[step]
    buffers, params = buffers_of(party.buffers_of(row)), party.params_of(row)
    (launch,) = launches("fused", buffers, params.tolist(), DeviceShape(1, LEAST_ARCH))
    return launch.source.digest


def blocks_an_element(params: npt.NDArray[np.int64]) -> float:
    """AES blocks that a fused program encrypts for each of its elements."""
    table = params[HEADER:].view(INSTRUCTION)
    drawn = table[(table["op"] == Op.DRAW) | (table["op"] == Op.DRAW_BITS)]
    return int(drawn["count"].sum()) / BLOCK_BITS


def without_draws(params: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same fused program with zeros in place of draws, which no compiler can see to be zeros.

    A drawn word becomes a constant, which is a parameter of the kernel; drawn planes are packed
    from one.
    """
    elements, words, bits, _ = params[:HEADER].tolist()
    zero = {"op": Op.CONST, "word": 64, "dst": words}
    table: list[tuple[int, ...]] = [instruction(**zero)]
    for row in params[HEADER:].view(INSTRUCTION):
        if row["op"] == Op.DRAW:
            what = {name: int(row[name]) for name in ("word", "dst")}
            table.append(instruction(op=Op.CONST, **what))
        elif row["op"] == Op.DRAW_BITS:
            table += _packed_zeros(row, words)
        else:
            table.append(tuple(row.tolist()))
    return program(elements, words + 1, bits, table)


def _packed_zeros(row: np.void, zero: int) -> list[tuple[int, ...]]:
    """PACKs of the word register `zero` to the planes that an instruction draws."""
    first, step, count = (int(row[name]) for name in ("dst", "dst_step", "count"))
    return [
        instruction(
            op=Op.PACK,
            word=64,
            dst=first + done * step,
            dst_step=step,
            a=zero,
            count=min(WORD_BITS, count - done),
        )
        for done in range(0, count, WORD_BITS)
    ]


def step_alone(
    plan: Plan, party: PartyPlan, step: int, params: npt.NDArray[np.int64]
) -> tuple[Plan, str]:
    """A plan of one step of a party, with other parameters, in the memory where it lies."""
    row = party.steps[step : step + 1].copy()
    row["first_param"], row["param_count"] = 0, len(params)
    alone = replace(party, steps=row, params=params, messages=party.messages[:0])
    return replace(plan, programs={party.party: alone}), party.party


def step_seconds(
    plan: Plan, party: PartyPlan, step: int, params: npt.NDArray[np.int64], device: str, runs: int
) -> float:
    """The median of `runs` runs of a step, after one that isn't counted."""
    keys = b"".join(fresh_seed() for _ in party.keys)
    opened_device = ready(device, *step_alone(plan, party, step, params)).open(keys)
    found = []
    for number in range(1, runs + 2):
        opened_device.reset_profile()
        opened_device.run(0, 1, number)
        found.append(sum(spent for _, spent in opened_device.profile.values()) / 1e9)
    opened_device.close()
    return median(found[1:])


def fused_rates(network: Network, device: str, bar: float, runs: int) -> list[Rate]:
    """The typical fused programs of the first party of a network's plan."""
    ours = compiled(network, "rep3", "auto")
    party = _first(ours)
    rates = []
    for number, step in enumerate(typical_steps(party), start=1):
        params, size = party.params_of(party.steps[step]), stream_bytes(party, step)
        seconds = step_seconds(ours.plan, party, step, params, device, runs)
        draws = None
        if blocks_an_element(params):
            plain = step_seconds(ours.plan, party, step, without_draws(params), device, runs)
            draws = max(0.0, 1 - plain / seconds)
        what = f"fused program {number} of {network.name}, {units.size(size)}"
        rates.append(Rate(what, size / seconds, COPY_SHARE * bar, draws))
    return rates


def _first(ours: Ours) -> PartyPlan:
    return ours.plan.party(ours.plan.manifest.parties[0])


# Depthwise convolutions


def depthwise_rates(
    layers: Sequence[Layer], batch: int, device: str, bar: float, runs: int
) -> list[Rate]:
    """All depthwise layers together: bytes of images, weights and outputs a second."""
    bench, rates = Bench(opened(device), runs), []
    for bits in (64, 32):
        buffers = [b for layer in layers for b in Filtered(layer, batch).buffers(bits)]
        moved = sum(buffer.bytes for buffer in buffers)
        spent = sum(layer_seconds(bench, layer, batch, 1, bits) for layer in layers)
        what = f"depthwise of MobileNetV2, batch {batch}, modulo 2^{bits}"
        rates.append(Rate(what, moved / spent, DEPTHWISE_SHARE * bar))
    return rates


def depthwise_layers() -> list[Layer]:
    return [layer for layer in mobilenet_v2() if layer.groups > 1]
