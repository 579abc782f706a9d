"""Rows that are said to be independent are: held to what programs compute, and to models."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from random_programs import RandomProgram
from torch import Tensor, nn

import veilgraph
from veilgraph.ir.meaning.party import evaluate, uniform_draws
from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Program
from veilgraph.ir.party.text import parse_program
from veilgraph.ir.types import Kind, words
from veilgraph.passes.party.independent_rows import bounds_of, independent_rows

ROWS = 4
MOST_EXTENT = 130  # of the random programs' first axes


@pytest.mark.parametrize("seed", range(120))
def test_elements_depend_on_no_other_rows_than_their_bounds_say(seed: int) -> None:
    made = RandomProgram(random.Random(seed))
    expanded = made.grow(60)
    program, inputs = expanded.program, made.inputs()
    if not inputs:
        return
    bounds = bounds_of(program.nodes, MOST_EXTENT)
    assert bounds is not None
    before = values(program, expanded.constants, inputs, made.weight_values)
    row = random.Random(seed).choice([0, 1, 2, 3])
    for name, array in inputs.items():
        if array.ndim and len(array) > row:
            array = array.copy()
            array[row] = array[row] + 1 + np.arange(array[row].size).reshape(array[row].shape)
        inputs[name] = array
    after = values(program, expanded.constants, inputs, made.weight_values)
    for node, old, new, own in zip(program.nodes, before, after, bounds, strict=True):
        changed = old != new
        if node.type.kind is Kind.PLANES:
            changed = changed.any(axis=0)
        if node.type.kind is Kind.BLOCKS:
            changed = changed.any(axis=-1)
        first, last = np.broadcast_to(own, (2, *node.shape)) * np.array([1, -1]).reshape(
            2, *(1,) * len(node.shape)
        )
        assert not (changed & ~((first <= row) & (row <= last))).any(), node.op


@pytest.mark.parametrize("shapes", [((0, 3), (0, 5)), ((2, 0, 3), (7, 0)), ((0,), (4, 0))])
def test_no_elements_in_other_shapes(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """What a plan says is a reshape of nothing, to any other shape of nothing, has an end."""
    program = Program(("alice",))
    x = program.source("input", "x", 0, shapes[0], words(32))
    program.output(x.reshape(shapes[1]), 0, "y", 0)
    bounds = bounds_of(program.nodes, MOST_EXTENT)
    assert bounds is not None
    assert np.broadcast_to(bounds[-1], (2, *shapes[1])).size == 0


def values(program: Program, constants: Any, inputs: Any, weights: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    widths = {node["name"]: node.type.bits for node in program.nodes if node.op in NAMED}
    found = {**inputs, **{name: fixed(name, program) for name in widths if name not in inputs}}
    modulo = {
        name: np.asarray(array).astype(np.int64).view(np.uint64)
        & np.uint64((1 << widths[name]) - 1)
        for name, array in found.items()
        if name in widths
    }
    stated = [np.asarray(each).astype(np.int64).view(np.uint64) for each in constants]
    return evaluate(program, modulo, uniform_draws(rng), stated).values


NAMED = (ops.INPUT, ops.WEIGHT)


def fixed(name: str, program: Program) -> Any:
    (shape,) = {n.shape for n in program.nodes if n.op is ops.WEIGHT and n["name"] == name}
    return np.random.default_rng(len(name)).integers(-50, 50, shape)


class Net(nn.Module):
    def __init__(self, computes: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.computes = computes
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.computes(self.inner(x))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.reshape(-1, 2, 3).repeat(1, 1, 2))


def rows_of(net: nn.Module, suite: str = "rep3", **options: Any) -> int:
    exported = torch.export.export(net.eval(), (torch.zeros(ROWS, 6),))
    samples = np.random.default_rng(2).uniform(-1, 1, (8, ROWS, 6)).astype(np.float32)
    (name,) = (
        each.arg.name for each in exported.graph_signature.input_specs if each.arg.name == "x"
    )
    plan, _ = veilgraph.compile(exported, suite=suite, calibrate={name: samples}, **options)
    return independent_rows(parse_program(plan.ir["party"]))


INDEPENDENT: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "softmax": lambda x: torch.softmax(x, 1),
    "maximum of a row": lambda x: x.max(1, keepdim=True).values,
    "argmax": lambda x: x.argmax(1),
    "mean of a row": lambda x: x.mean(1) * x.sum(1),
    "layer norm": lambda x: torch.layer_norm(x, (6,)),
    "columns": lambda x: torch.cat([x[:, 3:], x[:, :2].flip(1)], 1),
    "images": lambda x: torch.max_pool2d(x.reshape(ROWS, 1, 2, 3), 2).reshape(ROWS, -1),
    "products in a row": lambda x: (x.reshape(ROWS, 2, 3) @ x.reshape(ROWS, 3, 2)).flatten(1),
}
DEPENDENT: dict[str, Callable[[Tensor], Tensor]] = {
    "mean of a column": lambda x: x - x.mean(0, keepdim=True),
    "maximum of a column": lambda x: x - x.max(0, keepdim=True).values,
    "rows turned round": lambda x: x.flip(0),
    "next row": lambda x: torch.cat([x[1:], x[:1]]),
    "products of rows": lambda x: x @ x.transpose(0, 1),
    "columns as rows": lambda x: x.reshape(6, ROWS).transpose(0, 1),
    "no row": lambda x: x.sum(0),
    "one row for all": lambda x: x * 0.5 + x[:1],
    "softmax of a column": lambda x: torch.softmax(x, 0),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_that_are_computed_alone(name: str) -> None:
    assert rows_of(Net(INDEPENDENT[name])) == ROWS


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_are_not(name: str) -> None:
    assert rows_of(Net(DEPENDENT[name])) == 1


@pytest.mark.parametrize("suite", [{}, {"suite": "additive", "parties": ("a", "b"), "dealer": "d"}])
def test_every_comparison_keeps_rows_apart(suite: dict[str, Any]) -> None:
    for goal in ("fewest-rounds", "least-bytes"):
        assert rows_of(Net(torch.relu), **suite, goal=goal) == ROWS


@pytest.mark.parametrize("seed", [1, 3])  # whose norms compare numbers that nearly fill the ring
def test_attention_within_rows(seed: int) -> None:
    torch.manual_seed(seed)
    assert rows_of(Attention()) == ROWS
