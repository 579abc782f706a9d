"""`veilgraph doctor`: what this machine has and lacks, and what the steps of a plan cost on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from veilgraph.checks.diagnosis import diagnose, first_card
from veilgraph.commands import arguments
from veilgraph.ir.errors import UsageError
from veilgraph.plans import Plan
from veilgraph.reports.tables import Table, progress, remark, show, show_json
from veilgraph.reports.units import counted, seconds
from veilgraph.runtime.devices.choose import DeviceName, require_device
from veilgraph.runtime.devices.costs import CPU, Costs, costs_file
from veilgraph.runtime.devices.minimum_cut import Prediction, predict
from veilgraph.runtime.devices.tuning import measure

EPILOG = """\b
Examples, what is missing, for a script; and what a plan's steps cost here:
  veilgraph doctor --json
  veilgraph doctor --tune digits.plan

\b
What the link between two hosts does, as a network to compile for:
  alice$ veilgraph doctor --config alice.yaml --peer bob --write-network link.yaml
  bob$   veilgraph doctor --config bob.yaml --peer alice
"""


def _card(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """The processor, or the GPU of that name, as tables of costs call it."""
    if text is None:
        return None
    try:
        require_device(text)
    except UsageError as error:
        raise click.BadParameter(f"{error.message} {error.hint}") from error
    found = DeviceName.parse(text)
    return CPU if found.kind == CPU else found.card


@click.command("doctor", epilog=EPILOG)
@click.option(
    "--tune",
    type=arguments.PATH,
    metavar="PLAN",
    help="Measure what a plan's steps cost on this machine, and keep it for --device auto.",
)
@click.option(
    "--device",
    callback=_card,
    metavar="cpu|cuda:N",
    help="With --tune, what to measure beside the processor.  [default: the first GPU, if any]",
)
@click.option(
    "--config",
    "config_file",
    type=arguments.PATH,
    metavar="FILE",
    help="Measure the links to the other parties of this parties.yaml, who do so at the same time.",
)
@click.option(
    "--peer",
    "peers",
    metavar="NAME",
    multiple=True,
    help="With --config, a party to measure with; may be repeated.  [default: all others]",
)
@click.option(
    "--write-network",
    "network_file",
    type=arguments.PATH,
    metavar="FILE",
    help="With --config, write the slowest link as a file for --network.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0, max=86_400, min_open=True),
    metavar="SECONDS",
    help="With --config, how long peers are waited for.  [default: as in the configuration]",
)
@arguments.threads_option
@arguments.json_option
def command(
    tune: Path | None,
    device: str | None,
    config_file: Path | None,
    peers: tuple[str, ...],
    network_file: Path | None,
    timeout_seconds: float | None,
    threads: int,
    as_json: bool,
) -> None:
    """Look at processor, kernels, memory, TLS and packages; say what to do about what is missing.

    Nothing is changed, and nothing leaves this machine. With --tune a table of what steps cost is
    written into your cache.

    With --config this party and those that --peer names measure the links between them, over the
    mutual TLS that `run` uses: 15 round trips, and in either direction up to 160 MiB, in about five
    seconds. All start this within the timeout, in any order. Nothing listens before or after.
    """
    if config_file is not None:
        if tune is not None or device is not None:
            raise UsageError("--config measures links, and --tune steps.", "Give one of the two.")
        _measure_links(config_file, peers, network_file, timeout_seconds, as_json)
        return
    if peers or network_file is not None or timeout_seconds is not None:
        raise UsageError(
            "--peer, --write-network and --timeout are for measuring links.",
            "Give this party's parties.yaml with --config too.",
        )
    if tune is not None:
        _tune(Plan.load(tune), device or first_card() or CPU, threads, as_json)
        return
    if device is not None:
        raise UsageError("--device says what --tune measures.", "Give --tune PLAN too.")
    findings = diagnose()
    if as_json:
        show_json({"findings": [{**vars(found), "ok": found.is_ok} for found in findings]})
        return
    rows = [("ok" if f.is_ok else "warn", f.what, f.found, f.advice) for f in findings]
    show(Table.of("|what|found|what to do", rows))


def _measure_links(
    config_file: Path,
    peers: tuple[str, ...],
    network_file: Path | None,
    timeout_seconds: float | None,
    as_json: bool,
) -> None:
    from veilgraph.commands.measured_links import Asked, measure_and_write

    measure_and_write(Asked(config_file, peers, network_file, timeout_seconds), as_json)


def _tune(plan: Plan, device: str, threads: int, as_json: bool) -> None:
    """Measures what is not in the table yet, and says where steps are cheaper."""
    cards = [] if device == CPU else [device]
    path = costs_file()
    with progress("measuring") as tell:
        costs = measure(plan, cards, _known(path, threads), tell)
    costs.save(path)
    parties = plan.manifest.parties
    found = [predict(plan, party, card, costs) for card in cards for party in parties]
    if as_json:
        by_party = [vars(each) for each in found]
        show_json({"table": str(path), "kernels": _totals(costs), "parties": by_party})
        return
    tables = [_kernels(costs, [CPU, *cards])]
    if found:
        headings = f"party|#cpu|#{device}|#auto|what `--device auto` does"
        tables.append(Table.of(headings, [_row(each) for each in found]))
    show(*tables)
    if not cards:
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
        seconds(found.card_seconds),
        seconds(found.placed_seconds),
        f"{what}, {counted(found.steps - here, 'step')} on the GPU",
    ]
