"""With real functions: rings that suffice, coarse series where they may be, no guard lost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from models import model, run_onnx
from onnx import ModelProto, helper
from torch_mlir import ir

import veilgraph
from veilgraph.compilation import compile as compilation
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.fourier import values
from veilgraph.ir.secret.ops import Neg
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes.encode.aim import Aim
from veilgraph.passes.encode.encode_fixed_point import MAX_ERROR, EncodeFixedPoint
from veilgraph.passes.encode.functions.choose_approximations import (
    COARSE_UNITS,
    ChooseApproximations,
    Price,
)
from veilgraph.passes.encode.scales.width_search import WIDEST
from veilgraph.passes.encode.verify_accuracy import VerifyAccuracy
from veilgraph.passes.program import Program
from veilgraph.runtime.simulate import simulate
from veilgraph.targets.functions.catalogue import FUNCTIONS
from veilgraph.targets.functions.fourier_series import series_of
from veilgraph.targets.functions.function_block import FIT_UNITS

RANGE = RealRange(-4.0, 4.0, RangeSource.CALIBRATED)
SAMPLES = {"x": np.random.default_rng(3).standard_normal((8, 4, 16)).astype(np.float32)}
SAMPLE = {"x": np.float32([1.0, -3.0])}
WANTED = {"y": np.float32([-1.0, 3.0])}


def perceptron(*kinds: str) -> ModelProto:
    """Two linear layers, with `kinds` in between."""
    generator = np.random.default_rng(2)
    weights = {
        name: (generator.standard_normal((16, 16)) / 3).astype(np.float32) for name in ("u", "v")
    }
    nodes = [helper.make_node("MatMul", ["x", "u"], ["a"], "first")]
    last = "a"
    for number, kind in enumerate(kinds):
        nodes.append(helper.make_node(kind, [last], [f"f{number}"], f"function{number}"))
        last = f"f{number}"
    nodes.append(helper.make_node("MatMul", [last, "v"], ["y"], "second"))
    return model(nodes, {"x": (4, 16)}, ["y"], weights)


def compiled(proto: ModelProto, **options: object) -> tuple[veilgraph.Plan, dict[str, np.ndarray]]:
    return veilgraph.compile(proto, calibrate=SAMPLES, **options)  # type: ignore[arg-type]


def sent(plan: veilgraph.Plan) -> int:
    cost = plan.cost()
    return cost.online.total_bytes + cost.offline.total_bytes


@cache
def in_the_widest(**options: Any) -> tuple[int, int]:
    """Bytes and rounds with the widest rings around functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncodeFixedPoint, "narrows", lambda *given: False)
        plan, _ = compiled(perceptron("Gelu"), **options)
    assert "64 bits, " in plan.manifest.encoding
    return sent(plan), plan.cost().online.rounds


@pytest.mark.parametrize("max_error", [0.05, None, 1e-3])
def test_the_cheaper_plan_holds_the_error(max_error: float | None) -> None:
    plan, weights = compiled(perceptron("Gelu"), max_error=max_error)
    bytes_before, rounds_before = in_the_widest(max_error=max_error)
    assert sent(plan) < 0.85 * bytes_before
    assert plan.cost().online.rounds <= rounds_before
    assert " 64 bits, " not in plan.manifest.encoding
    held_out = np.random.default_rng(4).standard_normal((4, 4, 16)).astype(np.float32)
    wanted = [run_onnx(perceptron("Gelu"), {"x": x})["y"] for x in held_out]
    found = [simulate(plan, weights, {"x": x}).outputs["y"] for x in held_out]
    allowed = max_error or MAX_ERROR
    assert np.abs(np.subtract(found, wanted)).mean() < allowed * np.abs(wanted).mean()


@pytest.mark.parametrize("max_error", [0.05, None])
@pytest.mark.parametrize("kind", ["Sigmoid", "Gelu", "Softmax"])
def test_functions_hold_wherever_owners_can_lead_them(kind: str, max_error: float | None) -> None:
    """Samples showed differences of 1 at the most, and owners may give 38."""
    named = {"axis": -1} if kind == "Softmax" else {}
    nodes = [
        helper.make_node("Sub", ["x", "z"], ["d"]),
        helper.make_node(kind, ["d"], ["y"], **named),
    ]
    proto = model(nodes, {"x": (1, 8), "z": (1, 8)}, ["y"])
    rng = np.random.default_rng(7)
    x = rng.uniform(-10, 10, (16, 1, 8)).astype(np.float32)
    samples = {"x": x, "z": x + rng.uniform(-1, 1, x.shape).astype(np.float32)}
    plan, weights = veilgraph.compile(proto, calibrate=samples, max_error=max_error)
    rings = ("ring of 24 bits",) if max_error else ("ring of 24 bits", "ring of 32 bits")
    assert plan.manifest.encoding.startswith(rings)
    is_coarse = max_error is not None and kind != "Softmax"
    assert ("Fourier series within 8 units" in plan.manifest.encoding) == is_coarse
    given = {"x": np.float32([[19, -19, 3, -3, 12, -7, 0, 18]])}
    given["z"] = np.float32([[-19, 19, 3, 2, -12, 9, 0.5, -18]])
    wanted, found = run_onnx(proto, given)["y"], simulate(plan, weights, given).outputs["y"]
    assert np.abs(found - wanted).max() < 0.05 * max(1.0, np.abs(wanted).mean())


def test_a_plan_says_what_was_chosen() -> None:
    loose, _ = compiled(perceptron("Gelu"), max_error=0.05)
    assert (
        ", Fourier series within 8 units; real functions hold wherever" in loose.manifest.encoding
    )
    assert "; 5% allowed, predicted relative error " in loose.manifest.encoding
    untold, _ = compiled(perceptron("Gelu"))
    assert "Fourier series within" not in untold.manifest.encoding
    assert "; 0.5% allowed, predicted relative error " in untold.manifest.encoding
    without, _ = compiled(perceptron("Relu"), max_error=0.05)
    assert "series" not in without.manifest.encoding
    assert "allowed" not in without.manifest.encoding


def test_without_an_error_allowed_series_stay_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChooseApproximations, "run", None)
    compiled(perceptron("Gelu"))
    ringed, _ = compiled(perceptron("Gelu"), max_error=0.05, ring=48)
    assert ringed.manifest.encoding.startswith("ring of 48 bits")
    compiled(perceptron("Relu"), max_error=0.05)


def test_integer_parts_keep_their_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChooseApproximations, "run", None)
    for options in ({}, {"max_error": 0.05}):
        plan, _ = compiled(perceptron("Gelu", "Floor"), **options)
        assert "64 bits, " in plan.manifest.encoding
        assert "allowed" not in plan.manifest.encoding


def test_where_predictions_failed_series_stay_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChooseApproximations, "run", None)
    monkeypatch.setattr(compilation, "Program", partial(Program, aim=Aim(100.0)))
    compiled(perceptron("Gelu"), max_error=1e-4)


def test_what_a_class_is_made_of_is_in_the_rings_that_it_needs() -> None:
    """Its scores are measured, though they are not revealed; truth values of a model are not."""
    plan, weights = compiled(perceptron("Gelu"), reveal_as="argmax")
    assert "64 bits, " not in plan.manifest.encoding
    assert sent(plan) < 0.995 * in_the_widest(reveal_as="argmax")[0]
    held_out = np.random.default_rng(4).standard_normal((4, 4, 16)).astype(np.float32)
    wanted = [run_onnx(perceptron("Gelu"), {"x": x})["y"].argmax(-1) for x in held_out]
    found = [simulate(plan, weights, {"x": x}).outputs["y"] for x in held_out]
    assert np.mean(np.equal(found, wanted)) > 0.9
    turned, _ = compiled(perceptron("Gelu", "Floor"), reveal_as="argmax")
    assert "64 bits, " in turned.manifest.encoding


@pytest.mark.parametrize("refused", [True, False])
def test_where_a_function_asks_for_more_rings_stay_the_widest(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds in no narrower ring, or would trust a range there."""
    encoded = EncodeFixedPoint._encoded

    def narrow(self: EncodeFixedPoint, *given: Any) -> SecretProgram:
        if self.around_functions == WIDEST:
            return encoded(self, *given)
        if refused:
            raise AccuracyError("It does not fit.", "Take a wider ring.")
        return replace(encoded(self, *given), trusting=("function0",))

    monkeypatch.setattr(EncodeFixedPoint, "_encoded", narrow)
    plan, _ = compiled(perceptron("Gelu"))
    assert "64 bits, " in plan.manifest.encoding
    assert "trusted" not in plan.manifest.encoding


@pytest.mark.parametrize("name", ["gelu none", "sigmoid", "tanh", "exp"])
def test_coarser_sums_have_fewer_series_and_stay_within_their_units(name: str) -> None:
    fine, coarse = (series_of(name, -4.0, 2.0, 12, 12, 64, u) for u in (FIT_UNITS, COARSE_UNITS))
    assert fine is not None
    assert coarse is not None
    assert len(coarse.cosines) < len(fine.cosines)
    x = np.arange(-(4 << 12), 2 << 12, 7)
    mask = np.random.default_rng(5).integers(0, 1 << coarse.window_bits, x.size)
    found = np.ldexp(values(coarse, x, mask).astype(np.float64), -coarse.frac_bits)
    real = [float(FUNCTIONS[name].value(Decimal(int(i)) / 4096)) for i in x]
    worst = np.abs(found - real).max() * 4096
    assert 2 * FIT_UNITS < worst <= COARSE_UNITS + FIT_UNITS


def test_a_function_with_a_pole_is_as_exact_as_ever() -> None:
    """What it makes multiplies others, and it is computed for rows more often than for elements."""
    proto = model([helper.make_node("Reciprocal", ["x"], ["y"])], {"x": (4, 16)}, ["y"])
    samples = {"x": 1 + SAMPLES["x"] ** 2}
    plan, _ = veilgraph.compile(proto, calibrate=samples, max_error=0.05)
    assert plan.manifest.encoding.startswith("ring of ")
    assert "series" not in plan.manifest.encoding


def program(factor: int, trusting: tuple[str, ...] = ()) -> SecretProgram:
    """y = x or y = -x, as `factor` says."""
    made = SecretProgram.create(
        context(), [Argument("x", "input", "a", Tensor((2,), Encoding(32, 4)), RANGE)], {}
    )
    y: ir.Value = made.block.arguments[0]
    with made.at("op"):
        y = Neg.build(y, range=RANGE)
        y = y if factor < 0 else Neg.build(y, range=RANGE)
    made.finish({"y": y})
    return replace(made, trusting=trusting)


EXACT, WRONG, TRUSTING = program(-1), program(1), program(-1, ("softmax",))
VERIFY = VerifyAccuracy([SAMPLE], [WANTED])


@pytest.mark.parametrize(
    ("coarse", "before", "prices", "taken"),
    [
        (EXACT, program(-1), (1, 2), True),
        (WRONG, program(-1), (1, 2), False),
        (None, program(-1), (1, 2), False),
        (EXACT, program(-1), (2, 2), False),
        (EXACT, program(-1), (3, 2), False),
        (TRUSTING, program(-1), (1, 2), False),
        (TRUSTING, program(-1, ("softmax", "exp")), (1, 2), True),
    ],
)
def test_coarse_series_are_taken_where_they_hold_and_cost_less(
    coarse: SecretProgram | None, before: SecretProgram, prices: tuple[int, int], taken: bool
) -> None:
    def encode() -> SecretProgram:
        if coarse is None:
            raise AccuracyError("It does not fit.", "Take a wider ring.")
        return coarse

    def price(of: SecretProgram) -> Price:
        return Price(prices[of.module is before.module], 9)

    chosen = ChooseApproximations(0.1, VERIFY, encode, price).run(before)
    if taken:
        assert coarse is not None
        assert chosen.module is coarse.module
        assert chosen.encoding.endswith("measured 0.0e+00 on 1 sample")
    else:
        assert chosen is before


def test_a_price_is_what_the_plan_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[Program] = []

    def kept(*given: object, **named: object) -> Program:
        programs.append(Program(*given, **named))  # type: ignore[arg-type]
        return programs[-1]

    monkeypatch.setattr(compilation, "Program", kept)
    plan, _ = compiled(perceptron("Gelu"), max_error=0.05, roles="rotated")
    found = Price.of(programs[0].secret, programs[0].target)
    assert found.bits == sum(layer.online_bits + layer.offline_bits for layer in plan.layers)
    cost = plan.cost()
    assert found.rounds == cost.online.rounds + cost.offline.rounds
    assert Price(5, 1) < Price(5, 2) < Price(6, 1)
