"""What the levels' grammars refuse: each rule with a program that breaks it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.attributes import to_attribute
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.legality import IllegalProgram, check_graph, check_secret
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.dialect import Stated
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor

KNOWN = RealRange(-1.0, 1.0, RangeSource.PROVEN)


def graph() -> Graph:
    made = Graph.create(context(), {"x": (1, 4)}, {"w": np.ones((4, 4)), "v": np.ones((4, 4))})
    with made.end("product"):
        y = ops.Matmul.build(made.inputs["x"], made.parameters["w"])
    with made.end("sum"):
        z = ops.Add.build(y, ops.Matmul.build(made.inputs["x"], made.parameters["v"]))
    made.finish({"y": z})
    return made


def test_a_legal_graph() -> None:
    check_graph(graph(), encodable=True)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g: ops.Abs.build(g.inputs["x"]), "approximated"),
        (lambda g: ops.Pad.build(g.inputs["x"], low=(0, 1), high=(0, 0), value=1.0), "zeros"),
        (lambda g: ops.Mul.build(g.parameters["w"], g.parameters["v"]), "weights alone"),
    ],
)
def test_what_cannot_be_encoded(build: object, reason: str) -> None:
    made = graph()
    with made.before(list(made.block.operations)[-1]), ir.Location.name("odd"):
        build(made)  # type: ignore[operator]
    check_graph(made)
    with pytest.raises(IllegalProgram, match=f"'odd': .*{reason}"):
        check_graph(made, encodable=True)


def test_a_weight_without_its_argument() -> None:
    made = graph()
    made.weights["stray"] = np.zeros(3, np.float32)
    with pytest.raises(IllegalProgram):
        check_graph(made)


def secret(factor: int = 3, constant: int = 1) -> SecretProgram:
    tensor = Tensor((2,), Encoding(32, 4))
    arguments = [Argument(n, r, "a", tensor, KNOWN) for n, r in (("x", "input"), ("w", "weight"))]
    program = SecretProgram.create(context(), arguments, {"w": np.zeros(2, np.float32)})
    with program.at("layer"):
        x, w = program.block.arguments
        c = secret_ops.Constant.build(
            range=KNOWN, stated=Stated((), 4, 32), value=np.full(2, constant)
        )
        y = secret_ops.Add.build(x, secret_ops.Add.build(w, c, range=KNOWN), range=KNOWN)
        y = secret_ops.Scale.build(y, range=KNOWN, stated=Stated(frac_bits=8), factor=factor)
        y = secret_ops.TruncateRelu.build(
            y, range=KNOWN, stated=Stated(ring_bits=32), bits=4, window_bits=20, dropped_bits=4
        )
    program.finish({"y": y})
    return program


def test_a_legal_secret_program() -> None:
    check_secret(secret())


@pytest.mark.parametrize("factor", [0, 2**31, -(2**31)])
def test_factors(factor: int) -> None:
    with pytest.raises(IllegalProgram, match="a factor"):
        check_secret(secret(factor))


def test_constants() -> None:
    check_secret(secret(constant=-(2**31)))
    with pytest.raises(IllegalProgram, match="doesn't fit a ring of 32"):
        check_secret(secret(constant=2**31))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("window_bits", 32, "a window of 32 bits"),
        ("window_bits", 5, "a window of 5 bits, 4 dropped"),
        ("dropped_bits", -1, "-1 dropped"),
        ("dropped_bits", 5, "drops more bits than it truncates"),
        ("factor", 0, "a factor of 0"),
    ],
)
def test_windows(name: str, value: int, reason: str) -> None:
    program = secret()
    for op in program.operations:
        if name in op.operation.attributes:
            with program.module.context:
                op.operation.attributes[name] = to_attribute(value)
    with pytest.raises(IllegalProgram, match=f"'layer': {reason}|{reason}"):
        check_secret(program)


@pytest.mark.parametrize("pair", [(1.0, -1.0), (-math.inf, 0.0)])
def test_ranges(pair: tuple[float, float]) -> None:
    program = secret()
    with program.module.context:
        program.operations[0].operation.attributes["range"] = ir.DenseF64ArrayAttr.get(list(pair))
    with pytest.raises(IllegalProgram, match="range"):
        check_secret(program)


def test_weights_must_match_their_arguments() -> None:
    program = secret()
    for weights in ({}, {"w": np.zeros(3, np.float32)}):
        other = SecretProgram(program.module, weights)
        with pytest.raises(IllegalProgram, match="don't match"):
            check_secret(other)


def test_text_that_breaks_a_type_is_a_bug_too() -> None:
    program = secret()
    op = program.operations[-1]
    with program.module.context:
        op.operation.attributes["bits"] = to_attribute(5)
    with pytest.raises(IllegalProgram):
        check_secret(program)
