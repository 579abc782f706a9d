"""How soon after its start a service answers, with shares of weights kept from before.

    python -m benchmarks.serving.start [--quick] [--json] [--write] [--environments FOLDER]

Pretrained EfficientNet-Lite0 (benchmarks/models/pretrained.py has where it is from; the example's
digits if --quick). Three processes of `veilgraph serve` on loopback share its weights once, and
end. Then they start again and again, all at once; a client tries to ask from then on. Beside it is
what an inference takes in a session, as `bench --processes` has it. All share this machine's cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean

import numpy as np

import veilgraph
from benchmarks.harness.reporting import ROOT, Findings, parser, report, spread
from benchmarks.harness.sessions import Ours
from benchmarks.models.pretrained import exported
from benchmarks.peers.environments import Unavailable, add_option
from benchmarks.serving.asking import Question, back
from benchmarks.serving.requests import digits, samples_of_digits
from benchmarks.serving.ward import Ward
from veilgraph.measuring.spread import Spread
from veilgraph.reports.tables import Table

STARTS, RUNS, CALIBRATIONS, TESTS = 7, 5, 32, 4
FIRST_SECONDS, ALLOWED_SECONDS = 300.0, 1.5
HEADINGS = (
    "model|#starts|#first answer after|#of processor, a party|#an inference in a session|#more"
)


def efficientnet(environments: Path, folder: Path) -> tuple[Ours, Question]:
    """The network for a client, and what is asked about it."""
    crops = exported(environments, folder)
    model = folder / "model.onnx"
    calibrate = {"image": crops["calibrate"][:CALIBRATIONS, None]}
    plan, weights = veilgraph.compile(
        model,
        calibrate=calibrate,
        clients=("patient",),
        owners={"image": "patient", "weights": "bob"},
        receivers={"logits": ("patient",)},
    )
    ours = Ours(plan, weights, {"image": calibrate["image"][0]})
    return ours, Question.of("served", str(model), crops["test"][:TESTS].astype(np.float32), 1)


def example() -> tuple[Ours, Question]:
    model = str(ROOT / "examples" / "digits" / "digits.onnx")
    return digits(), Question.of("served", model, samples_of_digits(), 1)


def starts(
    folder: Path, ours: Ours, asked: Question, count: int
) -> tuple[list[float], list[float]]:
    """From the start of three processes to the first answer, again and again.

    Returns:
        Seconds; and seconds of processor until then, in the mean of the parties.
    """
    found, spent = list[float](), list[float]()
    with Ward(folder, {"served/1": ours}, 1, 0) as ward:
        first = back(ward.clients[0], asked, FIRST_SECONDS)
        assert first <= FIRST_SECONDS, "the service did not begin"
        print(f"shared for the first time, and answered: {first:.2f} s", file=sys.stderr)
        for _ in range(count):
            ward.end()
            start = time.monotonic()
            for party in ward.processes:
                ward.start(party)
            back(ward.clients[0], asked, FIRST_SECONDS)
            found.append(time.monotonic() - start)
            spent.append(fmean(processor_seconds(each.pid) for each in ward.processes.values()))
            print(f"started, and answered: {found[-1]:.2f} s", file=sys.stderr)
    return found, spent


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def measure(options: argparse.Namespace) -> Findings:
    load, count = os.getloadavg()[0], 2 if options.quick else STARTS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            ours, asked = example() if options.quick else efficientnet(options.environments, folder)
        except Unavailable as reason:
            return Findings(
                figures={"starts": []}, notes=[f"EfficientNet-Lite0 left out: {reason}"]
            )
        (folder / "ward").mkdir()
        seconds, spent = starts(folder / "ward", ours, asked, count)
    ours.run(2 if options.quick else RUNS)
    model = "digits" if options.quick else "EfficientNet-Lite0"
    more = Spread.of(seconds).median - Spread.of(ours.seconds).median
    spreads = (spread(Spread.of(each)) for each in (seconds, spent, ours.seconds))
    row = [model, str(count), *spreads, f"{more:.2f} s"]
    title = "From the start of three processes to the first answer, shares of weights kept"
    note = f"Wanted: {ALLOWED_SECONDS:g} s more at most. Load of the machine before: {load:.1f}."
    figures = {
        "starts": seconds,
        "processor": spent,
        "inferences": ours.seconds,
        "more": more,
        "load": load,
    }
    return Findings([Table.of(HEADINGS, [row], title)], figures, [note])


def main() -> None:
    made = parser(__doc__)
    add_option(made)
    options = made.parse_args()
    report("serving.start", options, lambda: measure(options))


if __name__ == "__main__":
    main()
