"""What the samples say in exact integers: told in the plan, aimed at again, or refused."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from models import model, run_onnx
from onnx import ModelProto, helper
from torch_mlir import ir

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.compilation import compile as compilation
from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.ops import Neg
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes import pipeline, trials
from veilgraph.passes.encode.aim import Aim
from veilgraph.passes.encode.verify_accuracy import VerifyAccuracy, missed
from veilgraph.passes.program import Program
from veilgraph.passes.ranges import calibrate as ranges
from veilgraph.passes.ranges.noise_gains import noise_gains
from veilgraph.passes.secret.round_outputs import SHARE
from veilgraph.runtime.simulate import simulate

RANGE = RealRange(-4.0, 4.0, RangeSource.CALIBRATED)
SAMPLES = {"x": np.random.default_rng(3).standard_normal((6, 2, 12)).astype(np.float32)}


def layers() -> ModelProto:
    generator = np.random.default_rng(2)
    shapes = {"w": (12, 16), "v": (16, 16), "u": (16, 5)}
    weights = {n: generator.standard_normal(s).astype(np.float32) / 3 for n, s in shapes.items()}
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["a"], "first"),
        node("Relu", ["a"], ["b"], "relu1"),
        node("MatMul", ["b", "v"], ["c"], "second"),
        node("Relu", ["c"], ["d"], "relu2"),
        node("MatMul", ["d", "u"], ["y"], "third"),
    ]
    return model(nodes, {"x": (2, 12)}, ["y"], weights)


def told(plan: veilgraph.Plan) -> tuple[float, float]:
    """The predicted and the measured error that a plan's sentence states."""
    found = re.search(
        r"predicted relative error (\S+), measured (\S+) on the first (\d) of \d+ samples$",
        plan.manifest.encoding,
    )
    assert found is not None, plan.manifest.encoding
    assert found[3] == "4", "of six samples four are run"
    return float(found[1]), float(found[2])


@pytest.mark.parametrize("max_error", [0.02, 1e-3, 1e-5])
def test_the_error_is_held_and_told(max_error: float) -> None:
    plan, weights = veilgraph.compile(layers(), calibrate=SAMPLES, max_error=max_error)
    predicted, measured = told(plan)
    assert measured <= max_error
    assert max_error / 64 < predicted <= 0.76 * max_error
    assert plan.manifest.options["max_error"] == max_error
    held_out = {"x": np.random.default_rng(4).standard_normal((8, 2, 12)).astype(np.float32)}
    (output,) = check(plan, weights, layers(), held_out, tolerance=1.0).outputs
    assert output.mean / np.abs(SAMPLES["x"]).mean() < max_error


def test_a_miss_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aimed at ten times the error allowed, the first program misses it."""
    shares = []
    encode = pipeline.EncodeFixedPoint

    def counted(**options: Any) -> object:
        shares.append(options["aim"].share)
        return encode(**options)

    monkeypatch.setattr(compilation, "Program", partial(Program, aim=Aim(10.0)))
    monkeypatch.setattr(pipeline, "EncodeFixedPoint", counted)
    plan, _ = veilgraph.compile(layers(), calibrate=SAMPLES, max_error=1e-3)
    assert told(plan)[1] <= 1e-3
    assert len(shares) > 1
    assert shares == sorted(shares, reverse=True)


def spread(kind: str) -> ModelProto:
    """What is made of the distances of ten numbers from their mean."""
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["x", "axis"], ["m"], "mean"),
        node("Sub", ["x", "m"], ["d"], "distance"),
        node("Mul", ["d", "d"], ["q"], "square"),
        *{
            "variance": [node("ReduceMean", ["q", "axis"], ["y"], "last")],
            "distance": [
                node("ReduceSum", ["q", "axis"], ["s"], "sum"),
                node("Sqrt", ["s"], ["y"], "last"),
            ],
            "mean and deviation": [
                node("ReduceMean", ["q", "axis"], ["v"], "variance"),
                node("Sqrt", ["v"], ["s"], "root"),
                node("Concat", ["m", "s"], ["y"], "last", axis=1),
            ],
        }[kind],
    ]
    return model(nodes, {"x": (4, 10)}, ["y"], {"axis": np.int64([1])})


def spread_samples(centre: float) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(1).standard_normal((8, 4, 10))
    return {"x": (centre + numbers).astype(np.float32)}


@pytest.mark.parametrize("max_error", [None, 1e-3, 1e-5])
@pytest.mark.parametrize("kind", ["variance", "distance", "mean and deviation"])
@pytest.mark.parametrize("centre", [0.0, 30.0])
def test_what_is_made_of_distances_from_a_mean(
    kind: str, centre: float, max_error: float | None
) -> None:
    """Their derivative by the mean is nothing, and an error of it is not."""
    samples = spread_samples(centre)
    plan, weights = veilgraph.compile(spread(kind), calibrate=samples, max_error=max_error)
    predicted, measured = told(plan)
    allowed = max_error or pipeline.MAX_ERROR
    assert predicted / 8 < measured < 2 * predicted + SHARE * allowed  # the outputs' own rounding
    assert measured <= allowed
    for x in samples["x"][4:]:
        wanted = run_onnx(spread(kind), {"x": x})["y"]
        found = simulate(plan, weights, {"x": x}).outputs["y"]
        assert np.abs(found - wanted).mean() < 3 * allowed * np.abs(wanted).mean()


@pytest.mark.parametrize("share", [1e-8, 0.0])
@pytest.mark.parametrize("max_error", [None, 1e-4])
def test_a_prediction_that_is_far_too_good_is_mended_by_the_samples(
    share: float, max_error: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gains(*given: object) -> dict[ir.Value, float]:
        found = noise_gains(*given)  # type: ignore[arg-type]
        return {value: gain * share for value, gain in found.items()}

    monkeypatch.setattr(ranges, "noise_gains", gains)
    plan, weights = veilgraph.compile(layers(), calibrate=SAMPLES, max_error=max_error)
    allowed = max_error or pipeline.MAX_ERROR
    found = re.search(r"measured (\S+) on the first 4 of \d+ samples$", plan.manifest.encoding)
    assert found is not None
    assert float(found[1]) <= allowed
    (output,) = check(plan, weights, layers(), SAMPLES, tolerance=1.0).outputs
    assert output.mean / np.abs(SAMPLES["x"]).mean() < 3 * allowed


def test_more_than_is_aimed_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MAX_ERROR", 1e-12)
    plan, _ = veilgraph.compile(layers(), calibrate=SAMPLES)
    assert plan.manifest.encoding.endswith(
        "on the first 4 of 6 samples: more than the 1e-10% aimed at, and no ring does better"
    )


def test_what_64_bits_can_not_do_is_refused() -> None:
    with pytest.raises(AccuracyError, match=r"Even with rings of up to 64 bits .* on the samples"):
        veilgraph.compile(layers(), calibrate=SAMPLES, max_error=1e-14)


def test_a_ring_of_the_users_own_is_refused_where_it_misses() -> None:
    with pytest.raises(AccuracyError, match="In a ring of 24 bits the outputs are") as caught:
        veilgraph.compile(layers(), calibrate=SAMPLES, ring=24, max_error=1e-4)
    assert caught.value.exit_code == 4
    assert "--ring auto" in caught.value.hint
    plan, _ = veilgraph.compile(layers(), calibrate=SAMPLES, ring=24)
    assert told(plan)[1] > 1e-4, "without a bound it is only told"


def test_an_error_without_samples_is_refused() -> None:
    with pytest.raises(UsageError, match=r"largest error .* samples"):
        veilgraph.compile(layers(), max_error=1e-3)


def negation() -> tuple[SecretProgram, dict[str, Any]]:
    """Of two numbers, which are an output, too; and a sample."""
    program = SecretProgram.create(
        context(), [Argument("x", "input", "a", Tensor((2,), Encoding(32, 4)), RANGE)], {}
    )
    x = program.block.arguments[0]
    with program.at("same"):
        y = Neg.build(x, range=RANGE)
    program.finish({"same": x, "negated": y})
    return program, {"x": np.float32([1.0, -3.0])}


def test_of_several_outputs_the_worst_counts() -> None:
    program, sample = negation()
    wanted = {"same": np.float32([1.0, -3.0]), "negated": np.float32([-1.5, 2.5])}
    verify = VerifyAccuracy([sample], [wanted])
    found = verify.measure(program)
    assert found.error == 1 / 4
    assert verify.told(found, 1 / 4).encoding.endswith("measured 2.5e-01 on 1 sample")
    assert "more than the 0.1% aimed at" in verify.told(found, 0.001).encoding
    assert "25% of their size" in missed(found, 0.001, given="").message


def test_errors_of_updates_are_root_mean_squares() -> None:
    """One element that is off by much counts for more than many that are off by little."""
    program, sample = negation()
    wanted = {"same": sample["x"], "negated": np.float32([-1.0, 2.0])}
    found = VerifyAccuracy([sample], [wanted], sizes={"negated": 2.0}).measure(program)
    assert found.error == pytest.approx(math.sqrt((0 + 1) / 2) / 2)


@pytest.mark.parametrize(
    ("sizes", "most", "run"),
    [
        ({}, math.inf, 3),
        ({}, 0.25, 3),
        ({}, 0.16, 2),
        ({}, 0.08, 1),
        ({"negated": 2.0}, math.inf, 3),
        ({"negated": 2.0}, 0.16, 2),
        ({"negated": 2.0}, 0.14, 1),
    ],
)
def test_samples_are_run_until_the_error_is_too_large_for_sure(
    sizes: dict[str, float], most: float, run: int
) -> None:
    """Each of three samples adds as much to an error that is counted on all of them."""
    program, sample = negation()
    wanted = {"same": sample["x"], "negated": np.float32([-1.5, 2.5])}
    seen: list[str] = []
    verify = VerifyAccuracy([sample] * 3, [wanted] * 3, at=seen.append, sizes=sizes)
    found, whole = verify.measure(program, most), VerifyAccuracy([sample], [wanted], sizes=sizes)
    share = math.sqrt(run / 3) if sizes else run / 3
    assert found.error == pytest.approx(share * whole.measure(program).error)
    assert len(seen) == run


def test_a_ring_that_was_given_may_not_make_the_answer_useless() -> None:
    with pytest.raises(AccuracyError, match=r"With 1 fraction bits .* of their size off on"):
        veilgraph.compile(layers(), calibrate=SAMPLES, ring=64, frac_bits=1)


def test_numbers_that_seem_to_do_nothing_keep_their_bits() -> None:
    # Noise along x cancels in x / |x|, and the signs that gains are estimated with lie along it.
    node = helper.make_node("LpNormalization", ["x"], ["y"], "norm", axis=0, p=1)
    samples = {"x": np.float32([[3, 4]])}
    plan, weights = veilgraph.compile(model([node], {"x": (2,)}, ["y"]), calibrate=samples, ring=64)
    found = simulate(plan, weights, {"x": samples["x"][0]}).outputs["y"]
    np.testing.assert_allclose(found, [3 / 7, 4 / 7], atol=2e-3)
