"""`veilgraph bench`: seconds, rounds, bytes and memory of a plan, measured here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click
import numpy.typing as npt

from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination, read_inputs, replacing
from veilgraph.measuring import measure as benching
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import progress, show, show_json
from veilgraph.reports.text import plan_inputs
from veilgraph.reports.tracing import chrome_trace
from veilgraph.runtime.links.shaping import Shape
from veilgraph.runtime.simulate import entry_of
from veilgraph.runtime.store.weights import load_weights

EPILOG = """\b
Example, three processes over TLS on loopback:
  veilgraph bench digits.plan --weights digits.weights --iterations 10 --processes
"""


@click.command("bench", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.option(
    "--weights",
    "weights_file",
    type=arguments.PATH,
    metavar="FILE",
    help="The weights; without them random ones, which take as long.",
)
@arguments.input_option
@click.option(
    "--iterations",
    type=click.IntRange(1, 1_000_000),
    default=10,
    show_default=True,
    help="Inferences to measure, after one that warms up.",
)
@arguments.entry_option
@arguments.processes_option
@click.option(
    "--trace",
    "trace_file",
    type=arguments.PATH,
    metavar="FILE.json",
    help="Write when each step of the last run ran; https://ui.perfetto.dev shows it.",
)
@click.option(
    "--netem",
    "shape",
    type=arguments.link_shape,
    metavar="RTT_MS,MBIT",
    help="Links as of a network with this round trip and bandwidth; takes --processes as given.",
)
@arguments.devices_option
@arguments.cubins_option
@arguments.threads_option
@arguments.isa_option
@arguments.json_option
def command(
    plan_file: Path,
    weights_file: Path | None,
    sources: arguments.Files,
    iterations: int,
    entry: str | None,
    processes: bool,
    trace_file: Path | None,
    shape: Shape | None,
    devices: tuple[tuple[str, str], ...],
    cubins: Path | None,
    threads: int,
    isa: str | None,
    as_json: bool,
) -> None:
    """Measure PLAN with all parties on this machine: median, least and most over several runs.

    Seconds are those of the slowest party; setup, which shares the weights, is once a session.
    Inputs that are not given are drawn at random from their declared range: what a plan does, and
    how long it takes, depends on no value. States begin as zero, and a run goes on from the one
    before.

    Where the time of the median run went is split into kernels, encryption (TLS itself), waiting
    (for the system, and for what others had not sent yet) and the rest.
    """
    plan = Plan.load(plan_file)
    number = entry_of(plan, entry)
    device = arguments.devices(devices, plan.manifest.parties)
    processes = processes or shape is not None
    if trace_file is not None:
        check_destination(trace_file)
    named = arguments.by_name("--input", sources)
    given = read_inputs(named, plan_inputs(plan, number))
    drawn = {n: x for n, x in benching.random_inputs(plan, number).items() if n not in given}
    with progress(f"running {units.counted(iterations, 'inference')}"):
        measured = benching.measure(
            plan,
            _weights(plan, weights_file),
            drawn | given,
            iterations=iterations,
            warm_up=benching.WARM_UP_RUNS,
            processes=processes,
            device=device,
            threads=threads,
            isa=isa,
            cubins=cubins,
            trace=trace_file is not None,
            shape=shape,
            entry=entry,
        )
    if trace_file is not None:
        _write_trace(trace_file, measured)
    made_up = [*drawn, *(["weights"] if plan.secret_weights and weights_file is None else [])]
    if as_json:
        settings = {
            "processes": processes,
            "netem": shape and vars(shape),
            "device": device,
            "threads": threads,
            "random": made_up,
        }
        show_json({**settings, **benching.values(measured)})
        return
    made = _sentence(iterations, processes, shape, device, threads, made_up)
    show(*benching.tables(measured), made)


def _write_trace(file: Path, measured: benching.Measurement) -> None:
    trace = chrome_trace(measured.plan, measured.runs[-1].transcripts)
    with replacing(file) as content:
        content.write(json.dumps(trace).encode())


def _weights(plan: Plan, file: Path | None) -> Mapping[str, npt.ArrayLike]:
    return benching.random_weights(plan) if file is None else load_weights(file, plan.digest)


def _sentence(
    iterations: int,
    processes: bool,
    shape: Shape | None,
    device: Mapping[str, str],
    threads: int,
    made_up: list[str],
) -> str:
    """How it was measured."""
    where = "processes over TLS on loopback" if processes else "threads of one process, no TLS"
    if shape is not None:
        there_and_back, rate = shape.round_trip_seconds, shape.bytes_per_second
        where += f" shaped to {units.seconds(there_and_back)} and {units.size(rate)}/s"
    drawn = f"; random {', '.join(made_up)}" if made_up else ""
    kernels = "1 thread" if threads == 1 else f"{threads} threads"
    done = units.counted(iterations, "inference")
    gpus = [f"{party} on {name}" for party, name in device.items() if name != "cpu"]
    computed = ", ".join([kernels, *gpus])
    return f"{done} after one to warm up; parties are {where}, {computed}{drawn}."
