"""AlexNet and VGG-16 on pictures of CIFAR's size: what a step takes, and that it learns as float32.

    python -m benchmarks.training.networks [--quick] [--json] [--write]
        [--steps 300] [--rehearsed 300] [--case alexnet:128] ...
        [--max-noise 0.05] [--controls 2]

Networks of workloads.py, average pools, batches as CryptGPU and Piranha took them: AlexNet 128,
VGG-16 32. Three processes over mutual TLS on loopback: alice has made pictures (pictures.py), bob
their labels, carol computes; alice is told the loss of each step. Float32 is PyTorch's SGD from the
same parameters, on the same rows. The plan is compiled in a process of its own, whose memory is
told; the rehearsal in float32, which every use asks another length of, is apart. The largest
party's memory is that of its process. --steps 0 compiles and counts, and runs nothing. A control is
float32 again (control.py), without noise and with what rounding is allowed: the furthest is told.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

import veilgraph
from benchmarks.harness.reporting import Findings, apart, parser, report
from benchmarks.training.control import again
from benchmarks.training.digits import MOMENTUM, in_float, right, weights_of
from benchmarks.training.parties import NAMES, Attempt, Run, ended, written
from benchmarks.training.pictures import begun, pictures
from veilgraph.commands.compile.profile import LOG, profiled
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.training import START, STEP
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.training.compiling import MAX_NOISE
from veilgraph.training.plan_steps import step_bytes

HEADINGS = (
    "network|#batch|#sent a step|#rounds|#compiled|#processor|#memory|#a step|#memory, a party|"
    "#steps|#loss, float32|#in secret"
)
CURVE_HEADINGS = "up to step|#float32|#in secret|#apart|#float32 again, apart"
CASES = ("alexnet:128", "vgg16:32")
QUICK = "alexnet:2"
RATES = {"alexnet": 0.02, "vgg16": 0.005}
PICTURES, FEW_PICTURES = 10_000, 40
PARTS = 10  # of a loss curve
REHEARSE = "rehearse"
Controls: TypeAlias = Sequence[tuple[int, float]]  # seeds, and the share of noise


@dataclass(frozen=True)
class Compiling:
    """What compiling took.

    Attributes:
        rehearsal_seconds: of the float32 steps, which `seconds` and `processor_seconds` leave out.
        encoding: a step's rings, and the error of its updates, in a sentence.
    """

    seconds: float
    processor_seconds: float
    rehearsal_seconds: float
    peak_bytes: int
    encoding: str


def compiled(
    network: str, batch: int, count: int, steps: int, max_noise: float, folder: Path
) -> Compiling:
    """A plan of a step, which is then in the folder."""
    torch.set_num_threads(1)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False  # they are kept, and not printed
    with profiled() as profile:
        plan, _ = veilgraph.compile_training(
            begun(network, batch),
            pictures(count).given,
            loss="cross_entropy",
            batch=batch,
            optimizer=veilgraph.SGD(momentum=MOMENTUM),
            rate=RATES[network],
            steps=steps,
            max_noise=max_noise,
            owners={"labels": "bob"},
            reveal={"parameters": "alice", "loss": "alice"},
        )
    plan.save(folder / "model.plan")
    rows = [row for row in profile.rows if row.name != REHEARSE]
    return Compiling(
        sum(row.seconds for row in rows),
        sum(row.processor_seconds for row in rows),
        sum(row.seconds for row in profile.rows if row.name == REHEARSE),
        max(row.peak_bytes for row in profile.rows),
        plan.manifest.encoding.partition(f" {START}: ")[0],
    )


def trained(
    network: str, batch: int, count: int, steps: int, plan: Plan, controls: Controls
) -> dict[str, Any]:
    """The losses of float32, of it again, and of three parties, and what the parties took."""
    rows, module = pictures(count), begun(network, batch)
    torch.set_num_threads(1)
    wanted = in_float(module, rows, steps, 0, batch, RATES[network])
    private = begun(network, batch)
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), plan, weights_of(private), rows.owned)
        found = Attempt(Run(Path(folder), steps, None, 0, RATES[network])).end()
    parameters, losses = ended(found)
    private.load_state_dict({name: torch.tensor(x) for name, x in parameters.items()})
    took = [each for name in NAMES for each in found[name] if each[0] == "took"]
    return {
        "losses": losses,
        "float32_losses": wanted,
        "float32_again": [
            again(network, batch, rows, steps, RATES[network], *control) for control in controls
        ],
        "accuracy": right(private, rows),
        "float32_accuracy": right(module, rows),
        "step_seconds": max(seconds for _, seconds, _ in took) / steps,
        "party_bytes": max(held for _, _, held in took),
    }


def measured(
    case: str, count: int, steps: int, rehearsed: int, max_noise: float, controls: int
) -> dict[str, Any]:
    """All figures of a case: "alexnet:128"."""
    network, _, rows = case.partition(":")
    batch = int(rows)
    with tempfile.TemporaryDirectory() as folder:
        compiling = apart(compiled, network, batch, count, rehearsed, max_noise, Path(folder))
        plan = Plan.load(Path(folder) / "model.plan")
    entry = plan.manifest.entries.index(STEP)
    figures = {
        "network": network,
        "batch": batch,
        "step_bytes": step_bytes(plan),
        "rounds": sum(plan.rounds(phase, entry) for phase in (Phase.OFFLINE, Phase.ONLINE)),
        **asdict(compiling),
    }
    pairs = [*product(range(controls), (0.0, max_noise))]
    return figures | (trained(network, batch, count, steps, plan, pairs) if steps else {})


def _row(found: dict[str, Any]) -> list[str]:
    row = [
        found["network"],
        str(found["batch"]),
        units.size(found["step_bytes"]),
        str(found["rounds"]),
        units.duration(found["seconds"]),
        units.duration(found["processor_seconds"]),
        units.size(found["peak_bytes"]),
    ]
    if "losses" not in found:
        return [*row, *[""] * 5]
    return [
        *row,
        units.seconds(found["step_seconds"]),
        units.size(found["party_bytes"]),
        str(len(found["losses"])),
        *(f"{np.mean(found[which]):.4f}" for which in ("float32_losses", "losses")),
    ]


def _curve(found: dict[str, Any]) -> Table:
    """Mean losses of tenths of a run."""
    parts = np.array_split(np.arange(len(found["losses"])), PARTS)
    rows = list[list[str]]()
    for part in (each for each in parts if len(each)):
        real, secret, *repeated = (
            np.take(losses, part).mean()
            for losses in (found["float32_losses"], found["losses"], *found["float32_again"])
        )
        furthest = max((x / real - 1 for x in repeated), key=abs, default=None)
        told = "-" if furthest is None else f"{furthest:+.2%}"
        apart = f"{secret / real - 1:+.2%}"
        rows.append([str(part[-1] + 1), f"{real:.4f}", f"{secret:.4f}", apart, told])
    right = units.percent(found["float32_accuracy"]), units.percent(found["accuracy"])
    title = f"{found['network']}, test pictures right: float32 {right[0]}, in secret {right[1]}"
    return Table.of(CURVE_HEADINGS, rows, title)


def measure(options: argparse.Namespace) -> Findings:
    load, cases = os.getloadavg()[0], options.case or CASES
    count, steps, rehearsed = PICTURES, options.steps, options.rehearsed
    if options.quick:
        cases, count, steps, rehearsed = [QUICK], FEW_PICTURES, 2, 4
    found = [
        measured(case, count, steps, rehearsed, options.max_noise, options.controls)
        for case in cases
    ]
    tables = [Table.of(HEADINGS, [*map(_row, found)], f"{count:,} pictures")]
    tables += [_curve(each) for each in found if "losses" in each]
    notes = [
        f"{each['network']}, {each['batch']}: {each['encoding']} Rehearsal of {rehearsed} steps: "
        f"{units.duration(each['rehearsal_seconds'])}."
        for each in found
    ]
    notes.append(f"Load of the machine before: {load:.1f}.")
    return Findings(tables, {"cases": found, "load": load}, notes)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--steps", type=int, default=300)
    made.add_argument("--rehearsed", type=int, default=300, help="steps that compiling rehearses")
    made.add_argument("--case", action="append", help="a network and its batch, as vgg16:128")
    made.add_argument("--max-noise", type=float, default=MAX_NOISE, help="as compile_training's")
    made.add_argument("--controls", type=int, default=0, help="pairs of float32 again")
    options = made.parse_args()
    report("training.networks", options, lambda: measure(options))


if __name__ == "__main__":
    main()
