"""A small model compiled in every way that a plan's program differs by, and lies about one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import veilgraph
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.program import Program
from veilgraph.ir.party.text import parse_program, print_program
from veilgraph.ir.plan.tables import Phase, Tensor
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.plan.lower import costs, lower
from veilgraph.plans import Plan

DEALT = {"suite": "additive", "parties": ("alice", "bob"), "dealer": "dave"}
RNG = np.random.default_rng(0)
SAMPLES = {"x": RNG.normal(size=(4, 1, 6)).astype(np.float32)}
WAYS: dict[str, dict[str, Any]] = {
    "rep3": {},
    "rep3, one ring": {"ring": 32, "calibrate": SAMPLES},
    "rep3, mixed rings": {"calibrate": SAMPLES, "max_error": 0.001},
    "rep3, shared weights": {"owners": {"weights": "shared"}},
    "rep3, public weights": {"owners": {"weights": "public"}},
    "rep3, argmax": {"reveal_as": "argmax", "calibrate": SAMPLES},
    "rep3, two receivers": {"receivers": {"y": ("carol", "alice")}},
    "rep3, all of one party": {"owners": {"x": "bob", "weights": "bob"}},
    "additive": DEALT,
    "additive, shared weights": DEALT | {"owners": {"weights": "shared"}},
    "additive, three parties": DEALT | {"parties": ("alice", "bob", "carol")},
    "cleartext": {"suite": "cleartext", "parties": ("alice",)},
}


def small_model() -> onnx.ModelProto:
    """sigmoid(relu(x w + b) v), of six numbers three."""
    shapes = {"w": (6, 5), "b": (5,), "v": (5, 3)}
    rng = np.random.default_rng(1)
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="first"),
            helper.make_node("Relu", ["h"], ["r"], name="relu"),
            helper.make_node("MatMul", ["r", "v"], ["z"], name="second"),
            helper.make_node("Sigmoid", ["z"], ["y"], name="sigmoid"),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(**options: Any) -> Plan:
    return veilgraph.compile(small_model(), **options)[0]


@cache
def plan_of(way: str = "rep3") -> Plan:
    """A plan of WAYS, compiled once in a process: whoever changes one changes a copy."""
    plan = compiled(**WAYS[way])
    for program in plan.programs.values():
        for table in (program.steps, program.buffers, program.messages, program.params):
            table.flags.writeable = False
    return plan


def bare(program: Program) -> None:
    """Sends the first input without the mask that was taken from it."""
    nodes = program.nodes
    rests = (nodes[n.args[0]] for n in nodes if n.op is ops.SEND)
    rest = next(n for n in rests if n.args and nodes[n.args[0]].op is ops.INPUT)
    nodes[rest.id] = replace(rest, op=ops.RESHAPE, args=rest.args[:1])


def retold(plan: Plan, change: Callable[[Program], None]) -> Plan:
    """A plan of another program, its tables lowered from it: only its meaning is false."""
    program = parse_program(plan.ir["party"])
    change(program)
    return of_program(plan, program)


def of_program(plan: Plan, program: Program) -> Plan:
    known: dict[str, Tensor] = {
        tensor.name: Tensor(
            *(tensor.name, tensor.shape, tensor.ring_bits, tensor.frac_bits, tensor.owner, 0),
            *(tensor.low, tensor.high),
        )
        for each in plan.programs.values()
        for tensor in each.tensors
    }
    schedule = batch_rounds(program, plan.manifest.pace)
    found = costs(schedule)
    layers = tuple(
        replace(
            layer,
            online_bits=found[i].bits[Phase.ONLINE],
            offline_bits=found[i].bits[Phase.OFFLINE],
            multiply_adds=found[i].multiply_adds,
            rounds=len(found[i].rounds),
        )
        for i, layer in enumerate(plan.layers)
    )
    programs = lower(schedule, list(known.values()))
    text = {**plan.ir, "party": print_program(program)}
    return replace(plan, programs=programs, layers=layers, ir=text)


def insert(program: Program, node: Node) -> None:
    """Puts a node in front of the one that has its number."""
    at = node.id
    later = [
        replace(n, id=n.id + 1, args=tuple(i + (i >= at) for i in n.args))
        for n in program.nodes[at:]
    ]
    program.nodes[at:] = [node, *later]
