"""Issue 3's figures, and issue 8's for two parties and a dealer: digits, and ResNet-50.

    python -m benchmarks.whole_path [--quick] [--json] [--write]

Digits: the 1,000 held-out images of examples/digits under each suite and ring, one image an
inference, a process a party over mutual TLS on loopback: classes equal to ONNX Runtime's, the worst
error of a logit, and the median online time of the inferences. ResNet-50: the `light_resnet50`
graph of the package onnx with random weights (max pool, softmax and all) compiled, and simulated
with a process a party: seconds of the whole call, offline and online seconds of its one inference,
bytes of all parties offline and online, and the largest party's memory. --quick takes 20 digits,
and no ResNet-50.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

import veilgraph
from benchmarks.harness.reporting import ROOT, Findings, parser, report, spread
from benchmarks.harness.sessions import SUITES
from tests.models import light_model
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.processes import simulate_processes
from veilgraph.measuring.spread import Spread
from veilgraph.reports import units
from veilgraph.reports.tables import Table

DIGITS = ROOT / "examples" / "digits"
WARM_UP = 5  # inferences that the latency leaves out
SAMPLES = 4  # that ResNet-50's ranges are calibrated on
DIGIT_HEADINGS = "suite|#ring|#digits|#classes equal|#worst logit error|#at most|#online"
LARGE_HEADINGS = "suite|#ring|#compile|#simulate|#offline|#online|#bytes|#memory, a party"
LEAST_ERROR = {32: 0.05, 64: 0.01}


def digits(suite: str, ring: int, count: int) -> dict[str, Any]:
    """`count` held-out digits, one an inference of one session."""
    plan, weights = veilgraph.compile(
        DIGITS / "digits.onnx",
        ring=ring,
        calibrate=DIGITS / "calibration.npz",
        shapes={"image": (1, 1, 28, 28)},
        **SUITES[suite],
    )
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        images = heldout["images"][:count].astype(np.float32) / 255
    batches = [{"image": image[None]} for image in images]
    answer, _ = simulate_processes(plan, weights, batches)
    logits = np.concatenate([run.outputs["logits"].reshape(1, -1) for run in answer.runs])
    expected = _by_onnx_runtime(images)
    online = [run.seconds(Phase.ONLINE) for run in answer.runs[WARM_UP:]]
    return {
        "suite": suite,
        "ring_bits": ring,
        "digits": count,
        "equal_classes": int((logits.argmax(1) == expected.argmax(1)).sum()),
        "worst_error": float(np.abs(logits - expected).max()),
        "online_seconds": vars(Spread.of(online)),
    }


def _by_onnx_runtime(images: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    session = onnxruntime.InferenceSession(DIGITS / "digits.onnx")
    found = [session.run(["logits"], {"image": image[None]})[0].reshape(1, -1) for image in images]
    return np.concatenate(found)


def large(suite: str, ring: int) -> dict[str, Any]:
    """The resnet50 graph at 1x3x224x224, compiled and run once with a process a party."""
    model = light_model("resnet50", seed=0)
    image = model.graph.input[0].name
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((SAMPLES, 1, 3, 224, 224), dtype=np.float32)
    start = time.perf_counter()
    plan, weights = veilgraph.compile(model, ring=ring, calibrate={image: samples}, **SUITES[suite])
    compiled = time.perf_counter()
    answer, reports = simulate_processes(plan, weights, [{image: samples[0]}])
    done = time.perf_counter()
    found = next(iter(answer.outputs.values()))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, {image: samples[0]})[0]
    return {
        "suite": suite,
        "ring_bits": ring,
        "compile_seconds": compiled - start,
        "simulate_seconds": done - compiled,
        "offline_seconds": answer.offline_seconds,
        "online_seconds": answer.online_seconds,
        "sent_bytes": answer.sent_bytes,
        "peak_memory_bytes": {party: report.peak_bytes for party, report in reports.items()},
        "relative_error": float(
            np.abs(found.ravel() - expected.ravel()).sum() / np.abs(expected).sum()
        ),
    }


def _digit_row(figures: dict[str, Any]) -> list[str]:
    return [
        figures["suite"],
        str(figures["ring_bits"]),
        str(figures["digits"]),
        str(figures["equal_classes"]),
        f"{figures['worst_error']:.2g}",
        f"{LEAST_ERROR[figures['ring_bits']]:g}",
        spread(Spread(**figures["online_seconds"])),
    ]


def _large_row(figures: dict[str, Any]) -> list[str]:
    phases = ("compile", "simulate", "offline", "online")
    return [
        figures["suite"],
        str(figures["ring_bits"]),
        *(units.seconds(figures[f"{phase}_seconds"]) for phase in phases),
        units.size(figures["sent_bytes"]),
        units.size(max(figures["peak_memory_bytes"].values())),
    ]


def measure(options: argparse.Namespace) -> Findings:
    count = 20 if options.quick else 1000
    small = [digits(suite, ring, count) for suite in SUITES for ring in LEAST_ERROR]
    found = Findings(figures={"digits": small, "resnet50": []})
    title = "Held-out digits beside ONNX Runtime, processes over TLS"
    found.tables.append(Table.of(DIGIT_HEADINGS, [_digit_row(f) for f in small], title))
    if options.quick:
        return found
    graphs = [large(suite, ring) for suite, ring in (("rep3", 32), ("rep3", 64), ("additive", 32))]
    found.figures["resnet50"] = graphs
    title = "The resnet50 graph, max pool and all; at most 60 s, 60 s and 3 GiB (rep3)"
    found.tables.append(Table.of(LARGE_HEADINGS, [_large_row(f) for f in graphs], title))
    return found


def main() -> None:
    options = parser(__doc__).parse_args()
    report("whole_path", options, lambda: measure(options))


if __name__ == "__main__":
    main()
