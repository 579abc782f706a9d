"""`veilgraph run`: one party's part in a session with the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from veilgraph import units
from veilgraph.benching import Spread
from veilgraph.commands import arguments, outputs
from veilgraph.commands.files import check_destination, read_arrays
from veilgraph.ir.plan import Phase
from veilgraph.plans import Plan
from veilgraph.session import Session
from veilgraph.tables import Table, progress, show, show_json

EPILOG = """\b
Example, three hosts, each with its own parties.yaml and key:
  alice$ veilgraph run digits.plan --party alice --config alice.yaml \\
             --input image=@image.npy --output logits=@logits.npy
  bob$   veilgraph run digits.plan --party bob --config bob.yaml \\
             --weights digits.weights
  carol$ veilgraph run digits.plan --party carol --config carol.yaml
"""


@click.command("run", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.option("--party", required=True, metavar="NAME", help="Which party of the plan this is.")
@click.option(
    "--config",
    "config_file",
    type=arguments.PATH,
    required=True,
    metavar="FILE",
    help="This party's parties.yaml: addresses, certificates, and its own key.",
)
@click.option(
    "--weights",
    "weights_file",
    type=arguments.PATH,
    metavar="FILE",
    help="The weights, at their owner.",
)
@arguments.input_option
@arguments.output_option
@click.option(
    "--iterations",
    type=click.IntRange(1, 1_000_000),
    default=1,
    show_default=True,
    help="Inferences in this session, all on the same input; the same number at every party.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long a peer may be silent.  [default: as in the configuration]",
)
@click.option(
    "--store",
    type=arguments.PATH,
    metavar="DIR",
    help="What `prepare` filled: weights and offline phases come from there, each used once.",
)
@click.option(
    "--insecure-plaintext",
    is_flag=True,
    help="No TLS, for measurements; refused for any address but loopback.",
)
@arguments.device_option
@arguments.threads_option
@arguments.isa_option
@arguments.json_option
def command(
    plan_file: Path,
    party: str,
    config_file: Path,
    weights_file: Path | None,
    sources: arguments.Files,
    destinations: arguments.Files,
    iterations: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Take part in a session of PLAN as one party, together with those on the other hosts.

    All parties start this within the timeout, in any order. They first make sure that they run the
    same plan; then the weights are shared, once, and each inference is run.
    """
    plan = Plan.load(plan_file)
    paths = arguments.by_name("--output", destinations)
    own = plan.programs[party].outputs if party in plan.programs else ()
    arguments.require_known("--output", paths, [tensor.name for tensor in own])
    for path in paths.values():
        check_destination(path)
    arrays = read_arrays(arguments.by_name("--input", sources))
    peers = ", ".join(name for name in plan.manifest.parties if name != party)
    with (
        progress(f"waiting for {peers}") as tell,
        Session(plan, party, config_file, weights=weights_file, **options) as session,
    ):
        tell(f"running with {peers}")
        found: dict[str, npt.NDArray[np.float32]] = {}
        for _ in range(iterations):
            found = session.run(arrays)
    if as_json:
        answer = {"party": party, "outputs": outputs.values(found, paths)}
        show_json({**answer, **_values(session, party)})
        return
    show(*(outputs.lines(found, paths) or [f"{party} receives no output."]), _table(session, party))


def _spreads(session: Session) -> dict[str, Spread]:
    """Seconds of this party by phase."""
    runs = [transcript.phases for transcript in session.transcripts]
    return {
        "setup": Spread.of([session.setup_seconds]),
        "offline": Spread.of([run[Phase.OFFLINE].seconds for run in runs]),
        "online": Spread.of([run[Phase.ONLINE].seconds for run in runs]),
    }


def _sent(session: Session, party: str) -> dict[str, dict[str, int]]:
    """Bytes that this party sent, by phase and link; a transcript equals its plan."""
    return {
        phase.name.lower(): {
            link: count
            for link, count in session.plan.sent_bytes(phase).items()
            if link.startswith(f"{party}->")
        }
        for phase in Phase
    }


def _values(session: Session, party: str) -> dict[str, Any]:
    spreads = _spreads(session)
    return {
        **{f"{phase}_seconds": vars(spread) for phase, spread in spreads.items()},
        "rounds": session.plan.rounds(Phase.ONLINE),
        "sent_bytes": _sent(session, party),
    }


def _table(session: Session, party: str) -> Table:
    spreads, sent = _spreads(session), _sent(session, party)
    rows = [
        (
            phase.name.lower(),
            units.seconds(spreads[phase.name.lower()].median),
            session.plan.rounds(phase),
            ", ".join(f"{units.size(n)} {link}" for link, n in sent[phase.name.lower()].items()),
        )
        for phase in Phase
    ]
    return Table.of("phase|#seconds|#rounds|sent", rows)
