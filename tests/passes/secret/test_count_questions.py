"""The number of equal questions that tell a derivative, against what least squares find."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from models import model
from onnx import ModelProto, helper

from veilgraph.compilation.compile import compile
from veilgraph.compilation.models import import_model
from veilgraph.ir.errors import UsageError
from veilgraph.ir.meaning.integers import Floats, Integers
from veilgraph.ir.meaning.secret import encode, evaluate
from veilgraph.ir.plan.tables import QUESTIONS
from veilgraph.ir.secret.ops import SecretOp
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Tensor
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.pipeline import PIPELINE
from veilgraph.passes.program import Options, Program, Protection
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.count_questions import Questions
from veilgraph.passes.secret.merge_truncations import MergeTruncations
from veilgraph.targets.target import target
from veilgraph.targets.variants import Roles

ROWS, INPUTS, HIDDEN = 256, 4, 24
TRIALS = 60


def perceptron(outputs: int = 1) -> ModelProto:
    """All its hidden units are active, so that derivatives are its last weights."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(size=(INPUTS, HIDDEN)) / 4,
        "b1": np.full(HIDDEN, 6.0),
        "w2": rng.uniform(0.5, 1.5, (HIDDEN, outputs)) * rng.choice([-1, 1], (HIDDEN, 1)),
        "b2": rng.normal(size=outputs),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "fc1"),
        helper.make_node("Relu", ["h"], ["a"], "relu"),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["y"], "fc2"),
    ]
    named = {name: value.astype(np.float32) for name, value in weights.items()}
    return model(nodes, {"x": (ROWS, INPUTS)}, ["y"], named)


def samples() -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(4).normal(size=(2, ROWS, INPUTS))
    return {"x": numbers.astype(np.float32)}


def compiled(suite: str, protection: Protection = Protection.NONE) -> Program:
    """The program up to what is counted."""
    dealer = "dave" if suite == "additive" else None
    names = ("alice", "bob", "carol")[: 2 if dealer else 3]
    graph, _ = import_model(perceptron(), None, None)
    chosen = target(suite, names, owners={"weights": "bob"}, dealer=dealer)
    options = Options(samples=samples(), protection=protection, roles=Roles.ROTATED)
    program = Program(chosen, options, graph)
    for name, _, run in PIPELINE:
        run(program)
        if name == "count_questions":
            return program
    raise AssertionError("nothing counts")


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_least_squares_need_as_many(suite: str) -> None:
    """Within a factor of two: outputs of equal rows are fitted to how one unit was rounded."""
    program = compiled(suite)
    (found,) = program.questions
    assert (found.receiver, found.layer) == ("alice", "relu")
    assert found.count is not None
    rng, hidden = np.random.default_rng(5), np.zeros(0)
    weights = program.secret.weights["w2"][:, 0]
    best, estimates = int(np.abs(weights).argmax()), []

    def observe(op: SecretOp, integers: Integers, reals: Floats) -> None:
        nonlocal hidden
        if op.location.name_str == "relu":
            hidden = reals[:, best]

    for _ in range(TRIALS):
        above, below = 0.0, 0.0
        for _ in range(4):
            x = np.tile(rng.normal(size=INPUTS).astype(np.float32), (ROWS, 1))
            y = evaluate(program.secret, {"x": x}, rng, observe).outputs["y"][:, 0]
            rounded = hidden - hidden.mean()
            above, below = above + rounded @ y, below + rounded @ rounded
        estimates.append(above / below)
    off = np.std(np.array(estimates)) / abs(weights[best])
    needed = 4 * ROWS * off**2
    assert needed / 2 < found.count < 2 * needed


def test_a_figure_says_little_by_itself() -> None:
    assert str(Questions("alice", "relu", 1999.0)).endswith("from about 1,000 equal questions")
    assert str(Questions("alice", "relu", 0.3)).endswith("from about 1 equal question")
    assert str(Questions("alice", "relu")).endswith("equal questions tell alice a weight")


def told(
    network: ModelProto | Mapping[str, ModelProto] | None = None, **options: object
) -> list[str]:
    plan, _ = compile(network or perceptron(3), **options)  # type: ignore[arg-type]
    return [d.why for d in plan.manifest.disclosures if d.what in QUESTIONS]


def test_what_is_said_of_whom() -> None:
    first, *_ = told(calibrate=samples(), roles="rotated")
    assert first.startswith("alice learns one derivative of layer relu")
    assert told(roles="rotated") == [str(Questions("alice", "relu"))]
    assert told(reveal_as="argmax", calibrate=samples()) == []


def test_a_receiver_in_a_fixed_role_knows_no_threshold() -> None:
    """It prepares what the others compute with, and sees none of their roundings."""
    (only,) = told(calibrate=samples(), roles="fixed")
    assert only.startswith("alice knows no threshold of a rounding")
    assert told(receivers={"y": ("bob",)}, calibrate=samples()) == []
    assert told(owners={"weights": "public"}, calibrate=samples()) == []


def weights_read(program: SecretProgram, rows: int) -> tuple[int, int]:
    """How many last weights a receiver reads exactly who knows how each hidden unit was rounded.

    What a threshold tells, but for one unknown number; of all that are there.
    """
    rng, hidden = np.random.default_rng(7), np.zeros((0, HIDDEN))

    def observe(op: SecretOp, integers: Integers, reals: Floats) -> None:
        nonlocal hidden
        if op.location.name_str == "relu":
            hidden = integers.astype(np.float64)

    x = np.tile(rng.normal(size=INPUTS).astype(np.float32), (ROWS, 1))
    known, given = [], []
    for _ in range(rows // ROWS):
        y = evaluate(program, {"x": x}, rng, observe).integers["y"]
        known.append(hidden)
        given.append(y)
    fitted = np.c_[np.concatenate(known), np.ones(rows)]
    found = np.linalg.lstsq(fitted - fitted.mean(0), np.concatenate(given), rcond=None)[0][:-1]
    (w2,) = (a for a in program.arguments if a.name == "w2")
    truth = encode(program.weights["w2"], w2.tensor)
    bits = [
        Tensor.of(op.operation.results[0]).encoding.frac_bits
        for op in program.operations
        if op.location.name_str.startswith("fc2")
    ]
    cut = max(bits) - Tensor.of(program.outputs["y"]).encoding.frac_bits
    return int((np.rint(found * 2.0**cut) == truth).sum()), truth.size


def test_exact_outputs_give_weights_and_rounded_ones_do_not() -> None:
    """One batch of equal rows, as a receiver asks: known_thresholds of what an attacker found."""
    program = compiled("rep3")
    read, there = weights_read(program.secret, 3072)
    assert read <= there / 10
    program.secret = MergeTruncations().run(
        EncodeFixedPoint(target=program.target).run(
            program.graph, program.visibility, program.ranges
        )
    )
    read, there = weights_read(ChooseComparison().run(program.secret), 3072)
    assert read == there == HIDDEN


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_exact_rounding_leaves_nothing_to_fit(suite: str) -> None:
    program = compiled(suite, Protection.EXACT)
    assert program.questions == [Questions("alice")]
    x = np.tile(np.ones(INPUTS, np.float32), (ROWS, 1))
    seen = []

    def observe(op: SecretOp, integers: Integers, reals: Floats) -> None:
        if np.shape(integers)[:1] == (ROWS,):
            seen.append((op.location.name_str, len(np.unique(integers[:, 0]))))

    evaluate(program.secret, {"x": x}, np.random.default_rng(1), observe)
    assert {name for name, distinct in seen if distinct > 1} == {"y as revealed"}


def test_a_receiver_without_a_threshold_is_told_of_none() -> None:
    assert compiled("rep3", Protection.ROLES).questions == [Questions("alice")]


def linear() -> ModelProto:
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "fc")]
    return model(nodes, {"x": (2, 3)}, ["y"], {"w": np.full((3, 2), 0.37, np.float32)})


def test_a_linear_model_has_no_threshold_to_know() -> None:
    x = np.random.default_rng(5).normal(size=(4, 2, 3)).astype(np.float32)
    assert told(linear(), calibrate={"x": x}) == [str(Questions("alice"))]


def test_entries_are_counted_each_though_they_are_one_program() -> None:
    """Two layers have one name, and are rounded otherwise."""
    weights = {"w": np.full((3, 40), 0.37, np.float32), "v": np.full((40, 2), 0.61, np.float32)}
    nodes = [
        helper.make_node("Gemm", ["u", "w"], ["h"], "relu"),
        helper.make_node("Gemm", ["h", "v"], ["z"], "fc"),
    ]
    short = model(nodes, {"u": (2, 3)}, ["z"], weights)
    u = {"u": np.random.default_rng(5).normal(size=(2, 2, 3)).astype(np.float32)}
    apart = [*told(calibrate=samples(), roles="rotated"), *told(short, calibrate=u)]
    models = {"long": perceptron(3), "short": short}
    assert told(models, calibrate={**samples(), **u}, roles="rotated") == [*dict.fromkeys(apart)]
    assert len(set(apart)) > 1


def branches() -> ModelProto:
    """y is read early; s comes after one more unit, and is coarse."""
    rng = np.random.default_rng(6)
    weights = {"w1": rng.normal(size=(4, 16)), "w2": rng.normal(size=(16, 3))}
    weights |= {"w3": rng.normal(size=(3, 16)), "w4": rng.normal(size=(16, 3))}
    nodes = [
        helper.make_node("Gemm", ["x", "w1"], ["h"], "fc1"),
        helper.make_node("Relu", ["h"], ["a"], "early"),
        helper.make_node("Gemm", ["a", "w2"], ["y"], "fc2"),
        helper.make_node("Gemm", ["y", "w3"], ["g"], "fc3"),
        helper.make_node("Relu", ["g"], ["b"], "late"),
        helper.make_node("Gemm", ["b", "w4"], ["s"], "fc4"),
    ]
    named = {name: value.astype(np.float32) for name, value in weights.items()}
    # Of 256 elements, three parts in three turns of the roles: each party knows some thresholds.
    return model(nodes, {"x": (16, 4)}, ["y", "s"], named)


def test_a_receiver_learns_of_layers_that_its_outputs_depend_on() -> None:
    x = np.random.default_rng(4).normal(size=(2, 16, 4)).astype(np.float32)
    receivers = {"y": ("alice",), "s": ("carol",)}
    alice, carol = told(branches(), calibrate={"x": x}, receivers=receivers)
    assert alice.startswith("alice learns one derivative of layer early ")
    assert carol.startswith("carol learns one derivative of layer ")
    both = told(branches(), calibrate={"x": x}, receivers={"y": ("alice",), "s": ("alice",)})
    assert len(both) == 1


def test_protections_that_are_not_there() -> None:
    for options, said in (
        ({"protect_weights": "magic"}, "can't be protected by 'magic'"),
        ({"protect_weights": "roles", "suite": "additive", "dealer": "d"}, "In suite additive no"),
    ):
        with pytest.raises(UsageError, match=said):
            compile(perceptron(), **options)  # type: ignore[arg-type]
