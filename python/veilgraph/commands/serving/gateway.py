"""`veilgraph gateway`: a service's client, for programs that ask a KServe or Triton server."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.commands.serving.signals import on_signals
from veilgraph.reports.tables import remark
from veilgraph.runtime.client.loopback import LOOPBACK
from veilgraph.serving.gateway import Gateway

EPILOG = """\b
Example, for a program that asks localhost:8000 for the model digits:
  patient$ veilgraph gateway --config patient.yaml --port 8000
"""


@click.command("gateway", epilog=EPILOG)
@arguments.config_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="Of this host's loopback.",
)
@arguments.timeout_option
def command(config_file: Path, port: int, timeout_seconds: float | None) -> None:
    """Speak the Open Inference Protocol on loopback, and ask the parties of a service.

    Whoever reaches the port asks as this client. Programs on other hosts don't.
    """
    with (
        Gateway(config_file, port, timeout_seconds=timeout_seconds) as gateway,
        on_signals(dict.fromkeys((signal.SIGTERM, signal.SIGINT), gateway.stop)),
    ):
        remark(f"the gateway listens at {LOOPBACK}:{gateway.port}")
        gateway.run()
