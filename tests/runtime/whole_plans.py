"""Sessions whose parties compute on different devices, held against one on the CPU alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from interpreters import Where, known_keys, run_interpreters, run_prepared
from tiny_models import tiny_plan

import veilgraph
from veilgraph.ir.plan.plan import Plan
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.heterogeneous import HeterogeneousReady
from veilgraph.runtime.devices.interface import Ready

DIGITS = Path(__file__).parents[2] / "examples" / "digits"

Arrays = Mapping[str, npt.NDArray[Any]]
Partitioning = Callable[[int], Sequence[int]]  # of so many steps, each one's side


def heterogeneous(partitioning: Partitioning, gpu: str = "cpu") -> Where:
    """A device of the processor and another, each with the steps that a partition gives it."""

    def make(plan: Plan, party: str) -> Ready:
        program = plan.party(party)
        partition = partitioning(len(program.steps))
        return HeterogeneousReady(
            program, ready("cpu", plan, party), ready(gpu, plan, party), partition
        )

    return make


def check_devices(
    plan: Plan, batches: Sequence[Arrays], weights: Arrays, devices: Sequence[Where], seed: int = 1
) -> None:
    """Every message and every output is that of parties on the CPU, byte for byte."""
    keys = known_keys(len(plan.manifest.parties), seed)
    expected = run_interpreters(plan, keys, batches, weights)
    found = run_interpreters(plan, keys, batches, weights, devices=devices)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.wire.keys() == theirs.wire.keys()
        for message, content in theirs.wire.items():
            assert mine.wire[message] == content, f"{message} differs"
        _check_outputs(mine.outputs, theirs.outputs)


def check_prepared(
    plan: Plan, batches: Sequence[Arrays], weights: Arrays, devices: Sequence[Where]
) -> None:
    """The same for outputs of inferences whose offline phases were run ahead and stored."""
    keys = known_keys(len(plan.manifest.parties), 1)
    expected = run_prepared(plan, keys, batches, weights)
    found = run_prepared(plan, keys, batches, weights, devices)
    for mine, theirs in zip(found, expected, strict=True):
        _check_outputs(mine, theirs)


def check_digits(suite: str, devices: Sequence[Where]) -> None:
    """A LeNet on one digit: convolutions, comparisons, pools and dense layers."""
    dealer = {"parties": ["alice", "bob"], "dealer": "dave"} if suite == "additive" else {}
    plan, weights = veilgraph.compile(
        DIGITS / "digits.onnx",
        suite=suite,
        calibrate=DIGITS / "calibration.npz",
        shapes={"image": (1, 1, 28, 28)},
        **dealer,
    )
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        image = heldout["images"][:1].astype(np.float32) / 255
    check_devices(plan, [{"image": image}], weights, devices)


def check_tiny(model: str, suite: str, devices: Sequence[Where]) -> None:
    """A model of tiny_models.MODELS, in two inferences."""
    plan, weights, x = tiny_plan(model, suite)
    if model == "mixed_rings":
        assert {layer.ring_bits for layer in plan.layers} >= {32, 40}
    check_devices(plan, [{"x": x}, {"x": -x}], weights, devices)


def _check_outputs(
    mine: Mapping[tuple[int, str], npt.NDArray[np.uint64]],
    theirs: Mapping[tuple[int, str], npt.NDArray[np.uint64]],
) -> None:
    assert mine.keys() == theirs.keys()
    for place, value in theirs.items():
        np.testing.assert_array_equal(mine[place], value, err_msg=str(place))
