"""`veilgraph serve`: one party's part in a service, until it is told to leave."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click

from veilgraph.commands import arguments
from veilgraph.commands.serving.signals import on_signals
from veilgraph.reports.tables import remark
from veilgraph.runtime.service.host import MOST_AHEAD
from veilgraph.serving.service import MOST_WAIT_SECONDS, WAIT_SECONDS, Service

EPILOG = """\b
Example, three hosts, each with its own parties.yaml, key and folder of models:
  alice$ veilgraph serve --party alice --config alice.yaml --models models
  bob$   veilgraph serve --party bob --config bob.yaml --models models
  carol$ veilgraph serve --party carol --config carol.yaml --models models
"""


@click.command("serve", epilog=EPILOG)
@arguments.party_option
@arguments.config_option
@click.option(
    "--models",
    type=arguments.PATH,
    metavar="DIR",
    required=True,
    help="Holds NAME/VERSION/model.plan, and beside each plan model.weights at their owner, or "
    "model.PARTY.shares.",
)
@click.option(
    "--ahead",
    type=click.IntRange(0, MOST_AHEAD),
    default=2,
    show_default=True,
    help="Inferences of each plan to prepare while nobody asks; the least of all parties counts.",
)
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(0, MOST_WAIT_SECONDS),
    default=WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long a request of few rows waits for others; the most of all parties counts.",
)
@click.option(
    "--watch-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Of this host's loopback: /metrics for Prometheus, /health, and /ready.",
)
@click.option(
    "--trace",
    "traces",
    type=arguments.PATH,
    metavar="DIR",
    help="Write when each step of each inference ran here, of the latest alone; `veilgraph trace` "
    "puts the files of all parties on one time line.",
)
@arguments.trust_author_option
@arguments.device_option
@arguments.threads_option
def command(party: str, config_file: Path, models: Path, **options: Any) -> None:
    """Serve plans to clients as one party, together with those on the other hosts.

    Plans are verified first. Links come up when all parties are there, and again after a break.
    SIGHUP reads parties.yaml and the folder of models again; SIGTERM ends what is open, and leaves.
    Clients ask with `veilgraph infer`; me.clients in parties.yaml says who may.
    """
    with Service(party, config_file, models, **options) as service:
        ends = dict.fromkeys((signal.SIGTERM, signal.SIGINT), service.leave)
        with on_signals({**ends, signal.SIGHUP: service.reload}):
            remark(f"{party} listens at {service.address}, and looks for the others")
            service.run()
    remark(f"{party} has left")
