"""`veilgraph doctor`: what this machine has and lacks, and what the steps of a plan cost on it."""

from __future__ import annotations

from pathlib import Path

import click

from veilgraph.checks.diagnosis import diagnose, first_gpu
from veilgraph.commands import arguments
from veilgraph.ir.errors import UsageError
from veilgraph.reports.tables import Table, show, show_json
from veilgraph.runtime.devices.names import CPU, DeviceName, require_device

EPILOG = """\b
Examples, what is missing, for a script; and what a plan's steps cost here:
  veilgraph doctor --json
  veilgraph doctor --tune digits.plan

\b
What the link between two hosts does, as a network to compile for:
  alice$ veilgraph doctor --config alice.yaml --peer bob --write-network link.yaml
  bob$   veilgraph doctor --config bob.yaml --peer alice
"""


def _gpu(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """The processor, or the GPU of that name, as tables of costs call it."""
    if text is None:
        return None
    try:
        require_device(text)
    except UsageError as error:
        raise click.BadParameter(f"{error.message} {error.hint}") from error
    found = DeviceName.parse(text)
    return CPU if found.kind == CPU else found.gpu


@click.command("doctor", epilog=EPILOG)
@click.option(
    "--tune",
    type=arguments.PATH,
    metavar="PLAN",
    help="Measure what a plan's steps cost on this machine, and keep it for --device auto.",
)
@click.option(
    "--device",
    callback=_gpu,
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
        from veilgraph.commands.doctor.tuned_costs import measure_and_keep

        measure_and_keep(tune, device or first_gpu() or CPU, threads, as_json)
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
    from veilgraph.commands.doctor.measured_links import Asked, measure_and_write

    measure_and_write(Asked(config_file, peers, network_file, timeout_seconds), as_json)
