"""Measures what the steps of a plan cost on this machine, for runtime/devices/costs.py.

Steps run on memory of zeros with fresh keys: no kernel's time depends on data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import PartyPlan
from veilgraph.kernels import KERNELS
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.costs import Copies, Costs, Step, form_of, today
from veilgraph.runtime.devices.dataflow import accesses
from veilgraph.runtime.devices.interface import Device
from veilgraph.runtime.devices.names import CPU
from veilgraph.runtime.randomness import fresh_seed

_SMALL, _LARGE = 4096, 16 << 20  # bytes of the copies that are timed
_LEAST_SECONDS = 2e-3  # of a measurement, so that clocks and waiting do not count
_MOST_CALLS = 64
_TIMES = 3
Progress = Callable[[str], None]


def measure(plan: Plan, devices: Sequence[str], costs: Costs, progress: Progress) -> Costs:
    """The table with all steps of all parties of a plan on the processor and these devices.

    Args:
        devices: by name, as in devices.ready; `cpu` is measured besides.
        costs: what is known; forms that it has on a device are not measured again.
        progress: is told what is being measured.

    Raises:
        VeilgraphError: as devices.ready.
    """
    steps, copies = dict(costs.steps), dict(costs.devices)
    for party in plan.manifest.parties:
        program = plan.party(party)
        for name in (CPU, *devices):
            missing = [
                (form, number)
                for form, number in _forms(program)
                if form not in steps or name not in steps[form].seconds
            ]
            if not missing and (name == CPU or name in copies):
                continue
            progress(f"{len(missing)} kinds of steps of {party} on {name}")
            opened = ready(name, plan, party, threads=costs.threads)
            device = opened.open(b"".join(fresh_seed() for _ in program.keys))
            try:
                for form, number in missing:
                    row = steps.get(form, _unmeasured(program, number))
                    seconds = {**row.seconds, name: step_seconds(device, number)}
                    steps[form] = replace(row, seconds=seconds)
                if name != CPU:
                    copies[name] = copy_seconds(device, program.arena_bytes, opened.product)
            finally:
                device.close()
    return replace(costs, date=today(), devices=copies, steps=steps)


def _forms(program: PartyPlan) -> Iterator[tuple[str, int]]:
    """Each form of a program's steps, with one step of it."""
    found: dict[str, int] = {}
    for number in np.flatnonzero(program.steps["kernel"] < len(KERNELS)).tolist():
        found.setdefault(form_of(program, number), number)
    yield from found.items()


def _unmeasured(program: PartyPlan, number: int) -> Step:
    row = program.steps[number]
    access = accesses(replace(program, steps=program.steps[number : number + 1]))[0]
    moved = sum(count for _, count in {*access.reads, *access.writes})
    return Step(KERNELS[int(row["kernel"])], moved, {})


def step_seconds(device: Device, step: int) -> float:
    """Of one step, among others of its kind: the wait for the last one is shared by all."""

    def run(calls: int) -> float:
        device.finish()
        start = time.perf_counter()
        for _ in range(calls):
            device.run(step, step + 1, 1)
        device.finish()
        return max(time.perf_counter() - start, 1e-9)

    run(1)  # warms caches up
    once = run(1)
    calls = min(_MOST_CALLS, max(1, round(_LEAST_SECONDS / once)))
    return median(run(calls) / calls for _ in range(_TIMES))


def copy_seconds(device: Device, memory_bytes: int, product: str) -> Copies:
    """What a copy takes: a part for the copy, and a part for each byte."""

    def spent(count: int) -> float:
        found = []
        for _ in range(_TIMES + 1):
            start = time.perf_counter()
            device.copy_in(0, device.copy_out((0, count)))
            device.finish()
            found.append((time.perf_counter() - start) / 2)
        return median(found[1:])

    small, large = min(_SMALL, memory_bytes // 2), min(_LARGE, memory_bytes)
    few, many = spent(small), spent(large)
    rate = (large - small) / max(many - few, 1e-9)
    return Copies(product, max(few - small / rate, 1e-9), rate)
