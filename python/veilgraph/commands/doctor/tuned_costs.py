"""`veilgraph doctor --tune`: what the steps of a plan cost on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veilgraph.ir.errors import UsageError
from veilgraph.plans import Plan
from veilgraph.reports.tables import Table, progress, remark, show, show_json
from veilgraph.reports.units import counted, seconds
from veilgraph.runtime.devices.costs import Costs, costs_file
from veilgraph.runtime.devices.minimum_cut import Prediction, predict
from veilgraph.runtime.devices.names import CPU
from veilgraph.runtime.devices.tuning import measure


def measure_and_keep(file: Path, device: str, threads: int, as_json: bool) -> None:
    """Measures what is not in the table yet, and says where steps of a plan are cheaper."""
    plan = Plan.load(file)
    gpus = [] if device == CPU else [device]
    path = costs_file()
    with progress("measuring") as tell:
        costs = measure(plan, gpus, _known(path, threads), tell)
    costs.save(path)
    parties = plan.manifest.parties
    found = [predict(plan, party, gpu, costs) for gpu in gpus for party in parties]
    if as_json:
        by_party = [vars(each) for each in found]
        show_json({"table": str(path), "kernels": _totals(costs), "parties": by_party})
        return
    tables = [_kernels(costs, [CPU, *gpus])]
    if found:
        headings = f"party|#cpu|#{device}|#auto|what `--device auto` does"
        tables.append(Table.of(headings, [_row(each) for each in found]))
    show(*tables)
    if not gpus:
        remark("No GPU was measured: none is there, or --device is cpu.")
    remark(f"The table of costs is {path}.")


def _known(path: Path, threads: int) -> Costs:
    """The table that is there, if it is of this machine with as many threads; else a new one."""
    if not path.exists():
        return Costs.none(threads)
    try:
        costs = Costs.load(path)
    except UsageError as error:
        remark(f"{error.message} It is made anew.")
        return Costs.none(threads)
    return costs if costs.threads == threads else Costs.none(threads)


def _totals(costs: Costs) -> dict[str, dict[str, Any]]:
    """By kernel how many forms of steps there are, and the seconds of one of each by device."""
    found: dict[str, dict[str, Any]] = {}
    for step in costs.steps.values():
        row = found.setdefault(step.kernel, {"forms": 0})
        row["forms"] += 1
        for name, spent in step.seconds.items():
            row[name] = row.get(name, 0.0) + spent
    return found


def _kernels(costs: Costs, devices: Sequence[str]) -> Table:
    rows = [
        [kernel, row["forms"], *(seconds(row.get(name, 0.0)) for name in devices)]
        for kernel, row in _totals(costs).items()
    ]
    return Table.of("|".join(["kernel", "#kinds of steps", *(f"#{d}" for d in devices)]), rows)


def _row(found: Prediction) -> list[str]:
    here = sum(found.on_host.values())
    of = ", ".join(f"{count} {kernel}" for kernel, count in found.on_host.items())
    what = f"{counted(here, 'step')} on the processor" + (f" ({of})" if of else "")
    return [
        found.party,
        seconds(found.host_seconds),
        seconds(found.gpu_seconds),
        seconds(found.placed_seconds),
        f"{what}, {counted(found.steps - here, 'step')} on the GPU",
    ]
