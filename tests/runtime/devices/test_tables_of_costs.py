"""Tables of measured costs: what is measured, what is refused, and partitions by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_plans import W, X, small_plan
from whole_plans import check_devices

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.kernels import KERNELS
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.costs import (
    CPU,
    Copies,
    Costs,
    Step,
    costs_file,
    form_of,
    machine_name,
)
from veilgraph.runtime.devices.heterogeneous import HeterogeneousReady
from veilgraph.runtime.devices.interface import Ready
from veilgraph.runtime.devices.minimum_cut import by_costs, partition, predict, values_of
from veilgraph.runtime.devices.partition import GPU, HOST
from veilgraph.runtime.devices.tuning import measure

EMULATOR = "host-emulator"


pytestmark = pytest.mark.usefixtures("emulator_cache")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return small_plan()


def made_up(plan: Plan, seconds: Callable[[str, int], tuple[float, float]]) -> Costs:
    """A table that has of each form what a function says of its kernel and one of its steps."""
    steps = {}
    for party in plan.manifest.parties:
        program = plan.party(party)
        for number, row in enumerate(program.steps):
            if int(row["kernel"]) < len(KERNELS):
                kernel = KERNELS[int(row["kernel"])]
                host, gpu = seconds(kernel, number)
                steps[form_of(program, number)] = Step(kernel, 8, {CPU: host, EMULATOR: gpu})
    copies = {EMULATOR: Copies("host emulator", 1e-6, 1e10)}
    return replace(Costs.none(1), devices=copies, steps=steps)


# The table


def test_what_is_measured_is_kept(plan: Plan) -> None:
    told: list[str] = []
    costs = measure(plan, [EMULATOR], Costs.none(1), told.append)
    assert any("of alice on cpu" in each for each in told)
    assert any("of carol on host-emulator" in each for each in told)
    assert all(step.seconds.keys() == {CPU, EMULATOR} for step in costs.steps.values())
    assert all(spent > 0 for step in costs.steps.values() for spent in step.seconds.values())
    assert all(step.bytes > 0 for step in costs.steps.values())
    assert costs.devices[EMULATOR].product == "host emulator"
    costs.save(costs_file())
    assert Costs.load(costs_file()) == costs
    told.clear()
    assert measure(plan, [EMULATOR], costs, told.append) == costs
    assert not told


def test_forms_are_shared_by_steps_that_differ_in_place_and_draws(plan: Plan) -> None:
    program = plan.party("alice")
    fused = [i for i, row in enumerate(program.steps) if row["kernel"] == 0]
    buffers = program.buffers.copy()
    buffers["offset"] += 64
    moved = replace(program, buffers=buffers)
    assert form_of(moved, fused[0]) == form_of(program, fused[0])
    buffers["bits"] += 1
    assert form_of(moved, fused[0]) != form_of(program, fused[0])
    forms = {form_of(program, i) for i in fused}
    assert 1 < len(forms) <= len(fused)


def no_date(content: dict[str, Any]) -> None:
    del content["date"]


def negative(content: dict[str, Any]) -> None:
    next(iter(content["steps"].values()))["seconds"]["cpu"] = -1.0


def no_number(content: dict[str, Any]) -> None:
    content["devices"][EMULATOR]["bytes_per_second"] = "fast"


def no_kernel(content: dict[str, Any]) -> None:
    next(iter(content["steps"].values()))["kernel"] = "fft"


def a_list(content: dict[str, Any]) -> None:
    content["steps"] = []


@pytest.mark.parametrize("damage", [no_date, negative, no_number, no_kernel, a_list])
def test_a_damaged_table(plan: Plan, damage: Callable[[dict[str, Any]], None]) -> None:
    made_up(plan, lambda kernel, number: (1.0, 1.0)).save(costs_file())
    content = json.loads(costs_file().read_text())
    damage(content)
    costs_file().write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"costs\.json is damaged: ") as caught:
        Costs.load(costs_file())
    assert "doctor --tune PLAN" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "can't be read: "),
        ("[]", "is of format None, and this is 1"),
        ('{"version": 2}', "is of format 2, and this is 1"),
    ],
)
def test_no_table_of_ours(text: str, said: str) -> None:
    costs_file().write_text(text)
    with pytest.raises(UsageError, match=said):
        Costs.load(costs_file())


def test_no_table() -> None:
    with pytest.raises(UsageError, match="There is no table of costs at "):
        Costs.load(costs_file())


def test_a_table_of_another_machine(plan: Plan) -> None:
    costs = replace(Costs.none(1), machine="Abacus, 1 core")
    costs.save(costs_file())
    with pytest.raises(UsageError, match="is of another machine: Abacus, 1 core"):
        Costs.load(costs_file())
    assert machine_name() != "Abacus, 1 core"


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        Costs.none(1).save(tmp_path / "file" / "costs.json")


# Placements


def test_products_on_the_gpu(plan: Plan) -> None:
    costs = made_up(plan, lambda kernel, number: (1.0, 0.1 if kernel == "matmul" else 2.0))
    program = plan.party("bob")
    partitioned = partition(plan, "bob", EMULATOR, costs)
    assert len(partitioned) == len(program.steps)
    on_gpu = {int(k) for k, s in zip(program.steps["kernel"], partitioned, strict=True) if s == GPU}
    assert on_gpu == {KERNELS.index("matmul")}
    found = predict(plan, "bob", EMULATOR, costs)
    assert found.placed_seconds < min(found.host_seconds, found.gpu_seconds)
    assert sum(found.on_host.values()) == found.steps - sum(side == GPU for side in partitioned)
    assert "fused" in found.on_host
    assert "matmul" not in found.on_host


def test_copies_that_cost_more_than_they_bring(plan: Plan) -> None:
    costs = made_up(plan, lambda kernel, number: (1.0, 0.9))
    costs = replace(costs, devices={EMULATOR: Copies("host emulator", 100.0, 1e10)})
    assert set(partition(plan, "alice", EMULATOR, costs)) == {HOST}


def test_outputs_and_inputs_are_the_hosts(plan: Plan) -> None:
    program = plan.party("alice")
    values = values_of(program, lambda count: float(count))
    assert any(value.maker is None for value in values)
    assert any(len(program.steps) in value.readers for value in values)
    assert all(value.maker is None or max(value.readers) > value.maker for value in values)


def test_a_device_that_was_not_measured(plan: Plan) -> None:
    with pytest.raises(UsageError, match="has nothing of `cuda:0`") as caught:
        partition(plan, "alice", "cuda:0", made_up(plan, lambda kernel, number: (1.0, 1.0)))
    assert "--device cuda:0" in caught.value.hint


def test_a_plan_that_was_not_measured(plan: Plan) -> None:
    costs = replace(made_up(plan, lambda kernel, number: (1.0, 1.0)), steps={})
    with pytest.raises(UsageError, match=r"lacks a step of alice in this plan \(fused\)"):
        partition(plan, "alice", EMULATOR, costs)


# The device


def auto(plan: Plan, party: str) -> Ready:
    return by_costs(
        plan, party, EMULATOR, ready(CPU, plan, party), lambda: ready(EMULATOR, plan, party)
    )


def test_a_device_by_costs_has_the_same_wire(plan: Plan) -> None:
    costs = made_up(plan, lambda kernel, number: (1.0, 0.5 if number % 3 else 2.0))
    costs.save(costs_file())
    made = auto(plan, "bob")
    assert isinstance(made, HeterogeneousReady)
    assert {HOST, GPU} == set(made.partition)
    assert made.product == "the processor and host emulator"
    check_devices(plan, [{"x": X}, {"x": -X}], {"w": W}, [auto, auto, "cpu"])


@pytest.mark.parametrize(("seconds", "alone"), [(2.0, "the processor"), (0.001, "host emulator")])
def test_a_device_that_has_all_steps_is_alone(plan: Plan, seconds: float, alone: str) -> None:
    """Its long messages move while its steps run, and no share lies anywhere else."""
    made_up(plan, lambda kernel, number: (1.0, seconds)).save(costs_file())
    made = auto(plan, "bob")
    assert not isinstance(made, HeterogeneousReady)
    assert made.product == alone
    check_devices(plan, [{"x": X}], {"w": W}, [auto] * 3)


def test_a_table_of_another_gpu(plan: Plan) -> None:
    costs = made_up(plan, lambda kernel, number: (1.0, 0.5))
    replace(costs, devices={EMULATOR: Copies("NVIDIA H100", 1e-6, 1e10)}).save(costs_file())
    with pytest.raises(
        UsageError, match="of a NVIDIA H100, and `host-emulator` is a host emulator"
    ):
        auto(plan, "alice")


def test_auto_wants_a_table(plan: Plan) -> None:
    """Before it looks for a GPU."""
    for name in ("auto", "auto:1", "auto,no-graphs"):
        with pytest.raises(UsageError, match="There is no table of costs"):
            ready(name, plan, "alice")
