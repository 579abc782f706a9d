"""`veilgraph demo`: handwritten digits among three processes, start to end."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.measuring.demo import drawing, find_examples, run_demo, tables
from veilgraph.reports.tables import is_terminal, progress, show

EPILOG = """\b
Example, leaving what is needed to run the parties by hand:
  veilgraph demo --out out
"""
INTRODUCTION = (
    "alice has handwritten digits, bob a network that reads them, carol helps. Three processes",
    "compute the answers over mutual TLS; none sees the digits of another, or the weights.",
)


@click.command("demo", epilog=EPILOG)
@click.option(
    "--digits",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="How many held-out digits to classify.",
)
@click.option(
    "--examples",
    type=arguments.PATH,
    metavar="DIR",
    help="Where digits.onnx lies.  [default: examples/digits, here or above, or those installed]",
)
@click.option(
    "--out",
    type=arguments.PATH,
    metavar="DIR",
    help="Keep the plan, the weights and each party's files here.",
)
def command(digits: int, examples: Path | None, out: Path | None) -> None:
    """Classify held-out handwritten digits among three processes with mutual TLS on loopback,
    and show their answers beside ONNX Runtime's, with rounds, bytes and seconds.
    """
    folder = find_examples(examples)
    show(*INTRODUCTION)
    with progress("reading the digits") as tell:
        demo = run_demo(folder, digits, out, tell)
    if is_terminal(sys.stdout):
        show("", *drawing(demo.images))
    show("", *tables(demo))
    if out is not None:
        show("", *_by_hand(out))


def _by_hand(out: Path) -> list[str]:
    """The commands with which each party can be started in a terminal of its own."""
    run = f"veilgraph run {out}/digits.plan"
    return [
        "The same by hand, each line in a terminal of its own:",
        f"  {run} --party alice --config {out}/alice.yaml --input image=@{out}/image.npy",
        f"  {run} --party bob --config {out}/bob.yaml --weights {out}/digits.weights",
        f"  {run} --party carol --config {out}/carol.yaml",
    ]
