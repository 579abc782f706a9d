"""`veilgraph prepare`: offline phases ahead of time, into this party's store."""

from __future__ import annotations

from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.ir.plan import Phase
from veilgraph.plans import Plan
from veilgraph.runtime.joining import require_store
from veilgraph.session import Session
from veilgraph.tables import remark, show, show_json
from veilgraph.units import counted, seconds, size

EPILOG = """\b
Example, on bob's host while alice and carol do the same on theirs:
  veilgraph prepare digits.plan --party bob --config parties.yaml \\
      --weights digits.weights --store bob.store --count 100
  veilgraph run digits.plan --party bob --config parties.yaml --store bob.store
"""


@click.command("prepare", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.option("--party", required=True, metavar="NAME", help="The party that this host is.")
@click.option(
    "--config",
    type=arguments.PATH,
    required=True,
    metavar="FILE",
    help="This party's parties.yaml.",
)
@click.option(
    "--weights", type=arguments.PATH, metavar="FILE", help="model.weights, at their owner's alone."
)
@click.option(
    "--store",
    type=arguments.PATH,
    metavar="DIR",
    help="A new folder to fill; none at the dealer, who keeps nothing.",
)
@click.option(
    "--count",
    type=click.IntRange(1, 1_000_000),
    required=True,
    metavar="N",
    help="Inferences to prepare.",
)
@click.option("--threads", type=click.IntRange(1), default=1, help="Threads of the kernels.")
@arguments.json_option
def command(
    plan_file: Path,
    party: str,
    config: Path,
    weights: Path | None,
    store: Path | None,
    count: int,
    threads: int,
    as_json: bool,
) -> None:
    """Run the offline phase of inferences to come, together with all parties of PLAN.

    What it leaves is stored in this party's folder, encrypted under its private key. `run --store`
    uses each prepared inference once. A dealer takes no part in that, so it has no store.
    """
    plan = Plan.load(plan_file)
    require_store(plan, party, store)
    with Session(
        plan, party, config, weights=weights, threads=threads, inferences=count
    ) as session:
        session.prepare(store, count)
        spent = sum(t.phases[Phase.OFFLINE].seconds for t in session.transcripts)
    used = 0 if store is None else sum(file.stat().st_size for file in store.iterdir())
    if as_json:
        show_json({"prepared": count, "offline_seconds": spent, "store_bytes": used})
        return
    done = counted(count, "inference")
    if store is None:
        show(f"dealt {done} in {seconds(spent)}; the dealer keeps nothing.")
        return
    show(f"{done} prepared in {seconds(spent)}; {store} holds {size(used)}.")
    remark("Don't copy the store: each of its inferences can be used once.")
