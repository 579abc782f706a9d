"""The digits model under every suite and number of parties, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import veilgraph
from veilgraph.ir.plan.tables import Phase
from veilgraph.runtime.simulate import simulate_many

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
NAMES = ["alice", "bob", "carol", "erin", "frank"]
COUNT = 10


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        return (heldout["images"][:COUNT] / 255).astype(np.float32)


@pytest.mark.parametrize(
    ("suite", "count"), [("rep3", 3), ("additive", 2), ("additive", 3), ("additive", 5)]
)
def test_logits(suite: str, count: int, images: np.ndarray) -> None:
    dealer = "dave" if suite == "additive" else None
    plan, weights = veilgraph.compile(
        DIGITS / "digits.onnx",
        suite=suite,
        parties=NAMES[:count],
        dealer=dealer,
        ring=32,
        calibrate=DIGITS / "calibration.npz",
        shapes={"image": (1, 1, 28, 28)},
    )
    answer = simulate_many(plan, weights, [{"image": image[None]} for image in images])
    session = onnxruntime.InferenceSession(DIGITS / "digits.onnx")
    (expected,) = session.run(["logits"], {"image": images})
    logits = np.concatenate([run.outputs["logits"] for run in answer.runs])
    np.testing.assert_allclose(logits, expected, atol=0.05)
    np.testing.assert_array_equal(logits.argmax(axis=1), expected.argmax(axis=1))
    if dealer:  # who computes sends nothing ahead
        offline = plan.sent_bytes(Phase.OFFLINE)
        dealt = {f"dave->{name}" for name in NAMES[:count]}  # to each in turn
        assert {link for link, sent in offline.items() if sent} == dealt
