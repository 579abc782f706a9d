"""The list of passes: a program's level, and what runs whenever a program is encoded."""

from __future__ import annotations

import numpy as np
import pytest
from models import model
from onnx import helper

from veilgraph.compilation.models import import_model
from veilgraph.ir.legality import IllegalProgram
from veilgraph.passes.pipeline import ENCODED, PIPELINE, check
from veilgraph.passes.program import Level, Options, Program
from veilgraph.targets.target import target


def program() -> Program:
    proto = model([helper.make_node("Abs", ["x"], ["y"], "node")], {"x": (1, 4)}, ["y"])
    graph, _ = import_model(proto, None, None)
    chosen = target("rep3", ("alice", "bob", "carol"), owners={"weights": "bob"})
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 1, 4)
    return Program(chosen, Options(samples={"x": x}), graph)


def test_each_stage_leaves_its_level() -> None:
    made, levels = program(), dict[str, Level]()
    for name, _, run in PIPELINE:
        run(made)
        check(made)
        levels[name] = made.level
    changes = [name for before, name in zip(levels, list(levels)[1:], strict=False)
               if levels[name] is not levels[before]]  # fmt: skip
    assert changes == ["infer_visibility", "encode_fixed_point", "expand_protocols", "batch_rounds"]
    assert sorted(levels.values(), key=lambda level: level.value) == list(levels.values())


def test_a_level_is_held_to_its_grammar() -> None:
    """An absolute value is legal in a graph, and not where it is to be encoded."""
    made = program()
    check(made)
    made.level = Level.VISIBLE
    with pytest.raises(IllegalProgram, match="must have been approximated"):
        check(made)


def test_the_steps_of_an_encoding_follow_it() -> None:
    names = [name for name, *_ in PIPELINE]
    first = names.index("encode_fixed_point") + 1
    assert names[first : first + len(ENCODED)] == [name for name, *_ in ENCODED]
    assert names[first + len(ENCODED)] == "verify_accuracy"
