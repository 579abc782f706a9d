"""`veilgraph simulate`: all parties of a plan on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import numpy.typing as npt

from veilgraph.commands import arguments, outputs
from veilgraph.commands.files import check_destination, read_batches
from veilgraph.ir.errors import UsageError
from veilgraph.measuring import measure as benching
from veilgraph.plans import Plan
from veilgraph.reports.tables import progress, show, show_json
from veilgraph.reports.text import plan_inputs, plan_outputs
from veilgraph.runtime.simulate import entry_of
from veilgraph.runtime.store.weights import load_weights

EPILOG = """\b
Example, with every party in a process of its own and TLS between them:
  veilgraph simulate digits.plan --weights digits.weights \\
      --input image=@image.npy --output logits=@logits.npy --processes
"""


@click.command("simulate", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.option(
    "--weights",
    "weights_file",
    type=arguments.PATH,
    metavar="FILE",
    help="The weights that `compile` wrote beside the plan; not needed where they are public.",
)
@arguments.input_option
@arguments.output_option
@arguments.entry_option
@arguments.processes_option
@arguments.devices_option
@arguments.cubins_option
@arguments.threads_option
@arguments.isa_option
@arguments.json_option
def command(
    plan_file: Path,
    weights_file: Path | None,
    sources: arguments.Files,
    destinations: arguments.Files,
    entry: str | None,
    processes: bool,
    devices: tuple[tuple[str, str], ...],
    cubins: Path | None,
    threads: int,
    isa: str | None,
    as_json: bool,
) -> None:
    """Run all parties of PLAN here, with real randomness and the very steps of separate hosts.

    It shows what a plan computes, sends and takes. It protects nothing: one machine sees all.
    States begin as zero. A table in a file may have any number of rows: it is run in batches of as
    many rows as the plan takes at once.
    """
    plan = Plan.load(plan_file)
    number = entry_of(plan, entry)
    paths = arguments.by_name("--output", destinations)
    arguments.require_known("--output", paths, [t.name for t in plan_outputs(plan, number)])
    inputs = arguments.by_name("--input", sources)
    for path in paths.values():
        check_destination(path, plan_file, weights_file, *inputs.values(), is_printed=True)
    own = plan_inputs(plan, number)
    batches = read_batches(inputs, own, own, plan_outputs(plan, number))
    weights = _weights(plan, weights_file)
    with progress("running all parties"):
        measured = benching.measure(
            plan,
            weights,
            batches.inputs,
            processes=processes,
            device=arguments.devices(devices, plan.manifest.parties),
            threads=threads,
            isa=isa,
            cubins=cubins,
            entry=entry,
        )
    found = batches.joined([run.outputs for run in measured.runs])
    if as_json:
        answer = {"outputs": outputs.values(found, paths, plan)}
        show_json({**answer, **benching.values(measured)})
        return
    shown = outputs.lines(found, paths, plan) or ["Nobody receives an output."]
    show(*shown, *benching.tables(measured)[:2])


def _weights(plan: Plan, file: Path | None) -> Mapping[str, npt.ArrayLike]:
    """UsageError where the plan does not have them, and no file does."""
    if file is not None:
        return load_weights(file, plan.digest)
    if plan.secret_weights:
        raise UsageError(
            "This plan's weights are secret, and none were given.",
            "Give model.weights, which `compile` wrote beside the plan, with --weights.",
        )
    return {}
