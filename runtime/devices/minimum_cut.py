"""Where the steps of a party are cheaper, by a table of measured costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import ROUND, PartyPlan
from veilgraph.kernels import KERNELS
from veilgraph.runtime.devices.costs import Costs, costs_file
from veilgraph.runtime.devices.dataflow import Access, Segments, accesses, tensor_place
from veilgraph.runtime.devices.heterogeneous import HeterogeneousReady
from veilgraph.runtime.devices.interface import Ready
from veilgraph.runtime.devices.partition import GPU, HOST, Value, cost, partition_of

_NOBODY, _INPUTS = -1, -2  # who wrote what no step did


def values_of(program: PartyPlan, copies: Callable[[int], float]) -> list[Value]:
    """What the steps of a program hand each other, for a partition: each step's result as one.

    Inputs are the host's, and a reader behind the last step takes the outputs there.
    """
    found = accesses(program)
    segments = Segments(program, found)
    maker = np.full(len(segments), _NOBODY)
    readers: dict[int, set[int]] = {}
    for tensor in program.inputs:
        maker[segments.touching(tensor_place(tensor))] = _INPUTS
    outputs = Access(tuple(tensor_place(tensor) for tensor in program.outputs))
    for step, access in enumerate([*found, outputs]):
        for read in access.reads:
            for made in np.unique(maker[segments.touching(read)]).tolist():
                readers.setdefault(made, set()).add(step)
        for written in access.writes:
            maker[segments.touching(written)] = step
    readers.pop(_NOBODY, None)
    inputs = readers.pop(_INPUTS, set())
    sizes = {made: sum(count for _, count in found[made].writes) for made in readers}
    values = [Value(m, tuple(sorted(by - {m})), copies(sizes[m])) for m, by in readers.items()]
    size = sum(tensor_place(tensor)[1] for tensor in program.inputs)
    return [*values, Value(None, tuple(sorted(inputs)), copies(size))]


def partition(plan: Plan, party: str, device: str, costs: Costs) -> list[int]:
    """HOST or GPU for each step of a party, of least cost by a table.

    Raises:
        UsageError: the device or a step was not measured.
    """
    program = plan.party(party)
    work = costs.work(program, device)
    return partition_of(work, values_of(program, costs.devices[device]))[: len(program.steps)]


@dataclass(frozen=True)
class Prediction:
    """Seconds of a party's own work, setup included: on the processor, a device, and both."""

    party: str
    steps: int
    host_seconds: float
    gpu_seconds: float
    placed_seconds: float
    on_host: Mapping[str, int]  # of the steps as partitioned, by kernel


def predict(plan: Plan, party: str, device: str, costs: Costs) -> Prediction:
    """What a party's work takes by a table.

    Raises:
        UsageError: the device or a step was not measured.
    """
    program = plan.party(party)
    work = costs.work(program, device)
    values = values_of(program, costs.devices[device])
    partitioned = partition_of(work, values)
    host = [HOST] * len(work)
    gpu = [HOST if each.fixed else GPU for each in work]
    host_seconds, gpu_seconds, placed_seconds = (
        cost(work, values, sides) for sides in (host, gpu, partitioned)
    )
    names = ["" if k == ROUND else KERNELS[int(k)] for k in program.steps["kernel"]]
    pairs = zip(names, partitioned, strict=False)
    on_host = Counter(name for name, side in pairs if name and side == HOST)
    steps = sum(map(bool, names))
    return Prediction(party, steps, host_seconds, gpu_seconds, placed_seconds, on_host)


def by_costs(plan: Plan, party: str, gpu: str, host: Ready, make_gpu: Callable[[], Ready]) -> Ready:
    """The processor and a GPU, each step where this user's table of costs has it cheaper.

    One alone where it has all of them: that one's messages then move while its steps run.

    Raises:
        UsageError: there is no table, or it lacks this GPU or a step of the plan.
    """
    costs = Costs.load(costs_file())
    program = plan.party(party)
    partitioned = partition(plan, party, gpu, costs)
    kernels = program.steps["kernel"] != ROUND
    sides = set(np.array(partitioned, np.int64)[kernels].tolist())
    if GPU not in sides:
        return host
    made, measured = make_gpu(), costs.devices[gpu].product
    if made.product != measured:
        raise UsageError(
            f"The table of costs is of a {measured}, and `{gpu}` is a {made.product}.",
            f"Measure again: veilgraph doctor --tune PLAN --device {gpu}.",
        )
    return HeterogeneousReady(program, host, made, partitioned) if HOST in sides else made
