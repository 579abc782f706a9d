"""From graphs to fixed point: what is written, which ring is chosen, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from before_after import example, listing
from torch_mlir import ir

from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.legality import check_secret
from veilgraph.ir.meaning.graph import evaluate as evaluate_graph
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import SecretOp, attributes_of
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, Secrecy, Tensor
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Trial
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.graph.public_factors import constant
from veilgraph.passes.ranges.calibrate import Ranges, assume, calibrate
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.merge_truncations import MergeTruncations

CONV = {"strides": (1, 1), "pads_low": (1, 1), "pads_high": (1, 1), "dilations": (1, 1)}
POOL = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}
OWNERS = {"x": "alice", "weights": "bob"}


def dense() -> Graph:
    """y = relu(x w + b)."""
    generator = np.random.default_rng(0)
    weights = {"w": generator.uniform(-1, 1, (6, 4)), "b": generator.uniform(-1, 1, 4)}
    graph = Graph.create(context(), {"x": (2, 6)}, weights)
    x, w, b = graph.inputs["x"], graph.parameters["w"], graph.parameters["b"]
    for name, build in (
        ("product", lambda v: ops.Matmul.build(v, w)),
        ("sum", lambda v: ops.Add.build(v, b)),
        ("relu", ops.Relu.build),
    ):
        with graph.end(name):
            x = build(x)
    graph.finish({"y": x})
    return graph


def residual() -> Graph:
    """Two convolutions with a residual, pools, concatenation, clipping and a dense layer."""
    generator = np.random.default_rng(1)
    shapes = {"k": (4, 4, 3, 3), "l": (4, 4, 3, 3), "c": (4,), "d": (8, 3)}
    weights = {n: 0.3 * generator.standard_normal(s) for n, s in shapes.items()}
    graph = Graph.create(context(), {"x": (1, 4, 8, 8)}, weights)
    p, x = graph.parameters, graph.inputs["x"]
    with graph.end("first"):
        first = ops.Relu.build(ops.Conv.build(x, p["k"], bias=p["c"], groups=1, **CONV))
    with graph.end("second"):
        second = ops.Add.build(ops.Conv.build(first, p["l"], bias=None, groups=1, **CONV), first)
    with graph.end("six"):
        clipped = ops.Sub.build(
            ops.Relu.build(second), ops.Relu.build(ops.Add.build(second, constant(-0.7, x)))
        )
    with graph.end("joined"):
        largest = ops.MaxPool.build(clipped, dilations=(1, 1), **POOL)
        both = ops.concat([largest, ops.SumPool.build(clipped, **POOL)], 1)
    with graph.end("dense"):
        y = ops.Matmul.build(ops.ReduceSum.build(both, axes=(2, 3), keepdims=False), p["d"])
    graph.finish({"y": y})
    return graph


def samples(graph: Graph, count: int = 4) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(8)
    shape = tuple(graph.inputs["x"].type.shape)
    return {"x": generator.uniform(-1, 1, (count, *shape)).astype(np.float32)}


def encoded(graph: Graph, ranges: Ranges, **options: object) -> SecretProgram:
    visibility = InferVisibility(OWNERS).run(graph)
    program = EncodeFixedPoint(**options).run(graph, visibility, ranges)  # type: ignore[arg-type]
    check_secret(program)
    return program


def finished(graph: Graph, ranges: Ranges, **options: object) -> SecretProgram:
    program = MergeTruncations().run(encoded(graph, ranges, **options))
    check_secret(program)
    program = ChooseComparison().run(program)
    check_secret(program)
    return program


def error(graph: Graph, program: SecretProgram) -> float:
    """Relative root mean square error over fresh inputs, none of which leaves its range."""
    generator, differences, values = np.random.default_rng(9), [], []
    for x in samples(graph, 8)["x"][4:]:
        exact = evaluate_graph(graph, {"x": x}, dtype=np.float64)["y"]
        found = evaluate(program, {"x": x}, generator)
        assert found.excursions == []
        differences.append(found.outputs["y"] - exact)
        values.append(exact)
    return float(np.sqrt(np.mean(np.square(differences)) / np.mean(np.square(values))))


def test_a_function_lifts_what_truth_values_pick() -> None:
    """As the leaves of trees: the truth values themselves, which are many more, stay narrow."""
    generator = np.random.default_rng(3)
    graph = Graph.create(context(), {"x": (2, 32)}, {"w": generator.normal(size=(32, 1)) / 8})
    with graph.end("bits"):
        bits = ops.Step.build(graph.inputs["x"])
    with graph.end("sum"):
        total = ops.Matmul.build(bits, graph.parameters["w"])
    with graph.end("y"):
        y = ops.Sigmoid.build(total)
    graph.finish({"y": y})
    program = finished(graph, calibrate(graph, samples(graph)))
    lifted = [op for op in program.operations if isinstance(op, secret_ops.Lift)]
    assert [tuple(op.operation.operands[0].type.shape) for op in lifted] == [(2, 1)]
    (product,) = (op for op in program.operations if isinstance(op, secret_ops.Matmul))
    assert Tensor.of(product.operation.results[0]).encoding.ring_bits == 24
    assert error(graph, program) < 0.01


SIGNS = {  # what a sign multiplies; whether it is of fewer bits, and where a program trains
    "its operand": (True, True),
    "another": (False, False),
    "both": (False, True),
    "both, and is read": (False, False),
}


@pytest.mark.parametrize("multiplies", SIGNS)
@pytest.mark.parametrize("trains", [False, True])
def test_the_sign_of_a_relu_is_taken_of_the_bits_that_it_needs(
    multiplies: str, trains: bool
) -> None:
    """Of what masks another number alone nothing says how near to zero its operand matters; so of
    another sign of the same values.
    """
    generator = np.random.default_rng(3)
    graph = Graph.create(context(), {"x": (2, 32)}, {"w": generator.normal(size=(32, 8)) / 8})
    with graph.end("product"):
        product = ops.Matmul.build(graph.inputs["x"], graph.parameters["w"])
    with graph.end("y"):
        bit = ops.Step.build(product)
        masked = ops.Neg.build(product) if multiplies == "another" else product
        y = ops.Mul.build(masked, bit)
        if multiplies.startswith("both"):
            y = ops.Sub.build(y, ops.Mul.build(ops.Neg.build(product), bit))
        other = ops.Step.build(ops.Neg.build(product))
    graph.finish({"y": y, "other": other} | ({"bit": bit} if "read" in multiplies else {}))
    ranges = calibrate(graph, samples(graph))
    program = finished(graph, ranges, trains=trains)
    steps = [op for op in program.operations if isinstance(op, secret_ops.Step)]
    dropped = [attributes_of(op)["dropped_bits"] > 0 for op in steps]
    assert dropped == [SIGNS[multiplies][trains], False]
    assert error(graph, program) < 0.01


def test_docstring_example() -> None:
    graph = dense()
    assert listing(graph) == example(EncodeFixedPoint, "Before")
    program = encoded(graph, assume(graph), frac_bits=8)
    assert listing(program) == example(EncodeFixedPoint, "After")


def test_arguments_say_owner_scale_and_range() -> None:
    graph = dense()
    program = encoded(graph, calibrate(graph, samples(graph)), ring_bits=40, frac_bits=10)
    x, w, b = program.arguments
    assert [(a.name, a.role, a.owner) for a in (x, w, b)] == [
        ("x", "input", "alice"),
        ("w", "weight", "bob"),
        ("b", "weight", "bob"),
    ]
    assert x.tensor.encoding == Encoding(40, 10)
    assert b.tensor.encoding == Encoding(40, 20)
    assert x.range.source is RangeSource.CALIBRATED
    assert w.range.source is RangeSource.PROVEN
    assert 0.95 < x.range.bound <= 1.0
    assert program.weights.keys() == {"w", "b"}
    assert [op.location.name_str for op in program.operations][-1] == "relu"


def test_public_weights_stay_public() -> None:
    graph = dense()
    visibility = InferVisibility(OWNERS | {"w": "public"}).run(graph)
    program = EncodeFixedPoint().run(graph, visibility, assume(graph))
    secrecy = [a.tensor.encoding.secrecy for a in program.arguments]
    assert secrecy == [Secrecy.SECRET, Secrecy.PUBLIC, Secrecy.SECRET]


@pytest.mark.parametrize("build", [dense, residual])
@pytest.mark.parametrize(
    ("ring_bits", "bound"), [(24, 0.05), (32, 4e-3), (40, 4e-4), (48, 2e-4), (64, 2e-4)]
)
def test_calibrated_rings(build: object, ring_bits: int, bound: float) -> None:
    graph = build()  # type: ignore[operator]
    program = finished(graph, calibrate(graph, samples(graph)), ring_bits=ring_bits)
    assert error(graph, program) < bound


@pytest.mark.parametrize("build", [dense, residual])
def test_without_ranges_the_ring_is_64_bits_and_windows_are_wide(build: object) -> None:
    graph = build()  # type: ignore[operator]
    program = finished(graph, assume(graph))
    assert {a.tensor.encoding.ring_bits for a in program.arguments} == {64}
    assert "window_bits = 63" in listing(program, windows=True)
    assert "assumed" in program.encoding
    assert error(graph, program) < 1e-3


def rings(program: SecretProgram) -> set[int]:
    """The rings of all operations' results."""
    return {Tensor.of(op.operation.results[0]).encoding.ring_bits for op in program.operations}


def test_the_narrowest_rings_within_the_error_are_chosen() -> None:
    graph = residual()
    ranges = calibrate(graph, samples(graph))
    widest = []
    for allowed in (0.05, 2e-3, 2e-4, 2e-6):
        program = finished(graph, ranges, max_error=allowed)
        assert error(graph, program) < allowed
        widest.append(max(rings(program)))
    assert widest == sorted(widest)
    assert widest[0] < widest[1] < widest[3]


def test_rings_differ_by_layer() -> None:
    """What bears little on the outputs is narrower; the change is in a truncation."""
    graph = residual()
    program = finished(graph, calibrate(graph, samples(graph)), max_error=2e-3)
    assert len(rings(program)) > 1
    assert "rings of " in program.encoding
    changes = [
        op
        for op in program.operations
        if isinstance(op, secret_ops.Truncate) and _ring_of(op.operation.operands[0]) != _ring(op)
    ]
    assert changes
    assert not any(isinstance(op, secret_ops.Lift) for op in program.operations)


def _ring(op: SecretOp) -> int:
    return _ring_of(op.operation.results[0])


def _ring_of(value: ir.Value) -> int:
    return Tensor.of(value).encoding.ring_bits


@pytest.mark.parametrize("ring_bits", [32, 40, 64])
def test_a_ring_of_the_users_own_is_everywhere(ring_bits: int) -> None:
    graph = residual()
    program = finished(graph, calibrate(graph, samples(graph)), ring_bits=ring_bits)
    assert rings(program) == {ring_bits}
    assert {a.tensor.encoding.ring_bits for a in program.arguments} == {ring_bits}
    assert f"ring of {ring_bits} bits" in program.encoding


def test_fraction_bits_of_the_users_own() -> None:
    graph = residual()
    program = finished(graph, calibrate(graph, samples(graph)), ring_bits=40, frac_bits=13)
    kinds = {a.name: a.tensor.encoding.frac_bits for a in program.arguments}
    assert kinds == {"x": 13, "k": 13, "l": 13, "d": 13, "c": 26}
    assert "13 fraction bits" in program.encoding
    assert error(graph, program) < 5e-3


def test_fraction_bits_that_leave_no_room() -> None:
    graph = residual()
    with pytest.raises(AccuracyError, match=r"values of .* 32 bits with 14 fraction") as caught:
        encoded(graph, calibrate(graph, samples(graph)), ring_bits=32, frac_bits=14)
    assert caught.value.exit_code == 4
    assert "--ring" in caught.value.hint


def test_a_ring_in_which_rounding_drowns_the_answer() -> None:
    graph = residual()
    with pytest.raises(AccuracyError, match=r"ring of 16 bits .* most of it at '") as caught:
        encoded(graph, calibrate(graph, samples(graph)), ring_bits=16, margin=64.0)
    assert caught.value.exit_code == 4
    assert "--ring 64" in caught.value.hint


def test_numbers_that_drown_the_answer_in_the_widest_ring() -> None:
    graph = residual()
    with pytest.raises(AccuracyError, match=r"ring of 64 bits .* most of it at '") as caught:
        encoded(graph, calibrate(graph, samples(graph)), margin=1e16)
    assert "--ring" not in caught.value.hint
    assert "clip" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ring_bits": 33}, "33 bits"),
        ({"ring_bits": 72}, "72 bits"),
        ({"ring_bits": 8}, "8 bits"),
        ({"ring_bits": 32, "frac_bits": 16}, "16 fraction bits"),
        ({"frac_bits": 0}, "0 fraction bits"),
        ({"margin": 0.5}, "margin of 0.5"),
        ({"max_error": 0.0}, "error of 0.0"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    graph = dense()
    with pytest.raises(UsageError, match=message):
        encoded(graph, assume(graph), **options)


def test_encoding_twice_gives_the_same_text() -> None:
    texts = []
    for _ in range(2):
        graph = residual()
        program = finished(graph, calibrate(graph, samples(graph)))
        texts.append(str(program.module.operation.get_asm(enable_debug_info=True)))
    assert texts[0] == texts[1]


def test_the_margin_leaves_room() -> None:
    """Inputs beyond the samples, within the margin, still give the right answer."""
    graph = dense()
    program = finished(graph, calibrate(graph, samples(graph)), ring_bits=32, margin=4.0)
    x = 2.5 * samples(graph)["x"][0]
    exact = evaluate_graph(graph, {"x": x})["y"]
    found = evaluate(program, {"x": x})
    assert found.excursions == []
    np.testing.assert_allclose(found.outputs["y"], exact, atol=0.01)


def test_a_constant_of_a_wide_ring_is_read_modulo_a_narrow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """384 with 16 fraction bits, as the width of a layer normalisation: it fits no 24 bits."""
    graph = Graph.create(context(), {"x": (2, 6)}, {"w": np.full((6, 6), 1 / 64)})
    with graph.end("width"):
        width = constant(384.0, graph.inputs["x"])
    with graph.end("first"):
        product = ops.Mul.build(graph.inputs["x"], width)
    with graph.end("sum"):
        mixed = ops.Matmul.build(product, graph.parameters["w"])
    with graph.end("y"):
        graph.finish({"y": ops.Mul.build(mixed, width)})

    def rings(encode: EncodeFixedPoint, problem: ScaleProblem, known: bool) -> Trial:
        narrow, *others = problem.one_ring(24)
        return problem.attempt({narrow: 24, **dict.fromkeys(others, 48)})

    monkeypatch.setattr(EncodeFixedPoint, "_trial", rings)
    given = {"x": samples(graph)["x"] / 64}
    program = encoded(graph, calibrate(graph, given))
    assert {Tensor.of(op.operation.results[0]).encoding.ring_bits for op in program.operations} == {
        24,
        48,
    }
    exact = evaluate_graph(graph, {"x": given["x"][0]}, dtype=np.float64)["y"]
    found = evaluate(program, {"x": given["x"][0]}).outputs["y"]
    assert np.abs(found - exact).max() < 0.01 * np.abs(exact).max()
