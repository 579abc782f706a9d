"""The digits model in exact integers: held-out digits against the model in real numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.graph import evaluate as evaluate_graph
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.graph.fold_constants import FoldConstants
from veilgraph.passes.graph.fold_divisors import FoldDivisors
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.ranges.calibrate import Ranges, assume, calibrate
from veilgraph.passes.ranges.samples import read_samples
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.merge_truncations import MergeTruncations

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
BATCH = 100


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    with np.load(DIGITS / "heldout.npz") as held_out:
        return (held_out["images"] / 255).astype(np.float32)[:200]


def network(batch: int) -> Graph:
    graph = import_model(DIGITS / "digits.onnx", {"image": (batch, 1, 28, 28)})
    return FoldDivisors().run(FoldConstants().run(graph))


@pytest.fixture(scope="module")
def logits(images: np.ndarray) -> np.ndarray:
    graph = network(BATCH)
    parts = [evaluate_graph(graph, {"image": part})["logits"] for part in batches(images)]
    return np.concatenate(parts)


def batches(images: np.ndarray) -> list[np.ndarray]:
    return np.split(images, len(images) // BATCH)


@pytest.fixture(scope="module")
def calibrated() -> Ranges:
    samples = read_samples(DIGITS / "calibration.npz", {"image": (1, 1, 28, 28)})
    return calibrate(network(1), samples)


def compiled(ranges: Ranges, ring_bits: int | None) -> SecretProgram:
    """For a batch of images: ranges are those of one image."""
    graph = network(BATCH)
    visibility = InferVisibility({"image": "alice", "weights": "bob"}).run(graph)
    program = EncodeFixedPoint(ring_bits=ring_bits).run(graph, visibility, ranges)
    return ChooseComparison().run(MergeTruncations().run(program))


@pytest.mark.parametrize(
    ("ring_bits", "bound"), [(32, 0.01), (40, 0.002), (64, 0.002), (None, 0.05)]
)
def test_calibrated_digits(
    ring_bits: int | None,
    bound: float,
    images: np.ndarray,
    logits: np.ndarray,
    calibrated: Ranges,
) -> None:
    program = compiled(calibrated, ring_bits)
    check(program, images, logits, bound)


def test_digits_without_samples(images: np.ndarray, logits: np.ndarray) -> None:
    check(compiled(assume(network(1)), None), images, logits, 0.005)


def check(program: SecretProgram, images: np.ndarray, logits: np.ndarray, bound: float) -> None:
    generator = np.random.default_rng(6)
    found = []
    for part in batches(images):
        evaluation = evaluate(program, {"image": part}, generator)
        assert evaluation.excursions == []
        found.append(evaluation.outputs["logits"])
    answers = np.concatenate(found)
    np.testing.assert_array_equal(answers.argmax(axis=1), logits.argmax(axis=1))
    assert np.abs(answers - logits).max() < bound


def test_every_relu_is_fused_and_nothing_else_is_truncated(calibrated: Ranges) -> None:
    program = compiled(calibrated, 32)
    kinds = [op.operation.name.partition(".")[2] for op in program.operations]
    assert kinds.count("truncate_relu") == 3
    assert "truncate" not in kinds
    assert "relu" not in kinds


def test_compiling_twice_gives_the_same_text(calibrated: Ranges) -> None:
    assert str(compiled(calibrated, 40).module) == str(compiled(calibrated, 40).module)
