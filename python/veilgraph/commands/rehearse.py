"""`veilgraph rehearse`: a plan that trains, in exact integers in the clear, beside float32."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import veilgraph
from veilgraph.commands import arguments
from veilgraph.ir.training import Schedule
from veilgraph.reports import units
from veilgraph.reports.tables import Table, progress, show, show_json

if TYPE_CHECKING:
    from veilgraph.training.exact_rehearsal import Judged, Rehearsal

EPILOG = """\b
Example, with rows that may be seen; 60,000 others will be trained on:
  veilgraph rehearse digits.plan --weights digits.weights --model digits.onnx \\
      --data public.npz --rate 0.1 --epochs 2 --rows 60000 --network lan
"""


@click.command("rehearse", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@arguments.weights_option
@arguments.model_option
@click.option(
    "--data",
    "data_file",
    type=arguments.PATH,
    required=True,
    metavar="FILE.npz",
    help="Rows to train on: an array an input, and `labels` where the loss has a name.",
)
@click.option(
    "--test",
    "test_file",
    type=arguments.PATH,
    metavar="FILE.npz",
    help="Other rows, by which both are judged.  [default: those of --data]",
)
@arguments.rate_option
@click.option(
    "--epochs",
    type=click.IntRange(1, 1_000_000),
    default=1,
    show_default=True,
    help="How often each row is taken.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many rows the parties will train on, for the time.  [default: as many as --data has]",
)
@arguments.network_option
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order of rows."
)
@arguments.json_option
def command(
    plan_file: Path,
    weights_file: Path,
    model: Path,
    data_file: Path,
    test_file: Path | None,
    rate: Schedule,
    epochs: int,
    rows: int | None,
    network: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Train by PLAN's exact integers in the clear, and beside them in float32.

    Whoever runs this sees all rows: it is for rows that their owner may use so. The last line says
    how right both models are, what a step sends, and how long training will take. The end is exit
    code 4 where a value left its range.
    """
    with progress("rehearsing") as tell:
        found = veilgraph.rehearse(
            plan_file,
            weights_file,
            model,
            data_file,
            rate=rate,
            epochs=epochs,
            test=test_file,
            rows=rows,
            network=network,
            seed=seed,
            progress=tell,
        )
    if as_json:
        show_json(_values(found))
    else:
        show(*_lines(found))
    status = found.status()
    if status is not None:
        status.is_reported = as_json  # "ok" says so
        raise status


def _lines(found: Rehearsal) -> list[Table | str]:
    rows = [
        (number, *(units.real(each.loss) for each in both), *map(_right, both))
        for number, both in enumerate(found.epochs, 1)
    ]
    headings = "epoch|#float loss|#fixed loss|#float right|#fixed right"
    taken = units.counted(found.steps, "step")
    inside = [] if found.excursions else [f"No value left its range in {taken}."]
    noise = [found.noise_line] if found.noise_line else []
    return [Table.of(headings, rows), *inside, found.rounding_line, *noise, found.line]


def _right(found: Judged) -> str:
    return str(found) if found.decisions else ""


def _values(found: Rehearsal) -> dict[str, Any]:
    return {
        "ok": found.status() is None,
        "steps": found.steps,
        "epochs": [{"float": vars(real), "fixed": vars(fixed)} for real, fixed in found.epochs],
        "excursions": [
            {"name": each.name, "op": each.op, "reached": [each.low, each.high]}
            for each in found.excursions
        ],
        "rounding_noise": dict(found.rounding_noise),
        "rounding_steps": {number: dict(each) for number, each in found.rounding_steps.items()},
        "step_bytes": found.step_bytes,
        "network": found.network,
        "told_steps": found.told_steps,
        "seconds": found.seconds,
        "sensitivity": None if found.sensitivity is None else asdict(found.sensitivity),
        "line": found.line,
    }
