"""A plan has the categories of text, and not what a model makes of them; nor where gaps go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto
from test_missing_numbers import COLUMNS, model_of, tree
from test_what_plans_tell import CATEGORIES, DECIMALS, ROWS, found_in, numbers_of, parts_of, single

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.graph.table_options import TableOptions

CITIES = ("Lima", "Oslo", "Rome")


def encoder(**values: Any) -> ModelProto:
    """A LabelEncoder of four columns of text."""
    proto = single("LabelEncoder", keys_strings=CITIES, **values)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    return proto


@pytest.mark.parametrize(
    "values",
    [
        {"values_floats": DECIMALS[:3], "default_float": 1.357911},
        {"values_int64s": CATEGORIES[:3], "default_int64": 6_543_217},
    ],
    ids=["real", "whole"],
)
def test_the_numbers_of_categories_are_not_told(values: Any, tmp_path: Path) -> None:
    proto = encoder(**values)
    rows = np.array(CITIES, object)[np.random.default_rng(0).integers(0, 3, (4 * ROWS, 4))]
    plan, _ = veilgraph.compile(
        proto, shapes={"X": (ROWS, 4)}, calibrate={"X": rows.reshape(4, ROWS, 4)}
    )
    numbers = numbers_of(proto)
    assert len(numbers) == 4
    assert found_in(parts_of(plan, tmp_path), numbers) == set()


def test_programs_of_other_numbers_are_the_same() -> None:
    shapes = {"X": (ROWS, 4)}
    one = import_model(encoder(values_floats=[0.5, 2.0, 4.0], default_float=1.0), shapes)
    other = import_model(encoder(values_floats=DECIMALS[:3], default_float=9.0), shapes)
    assert one.text() == other.text()


def test_which_way_a_gap_goes_is_not_told() -> None:
    shapes = {"X": (ROWS, COLUMNS)}
    texts = []
    for mode in ("BRANCH_LEQ", "BRANCH_GT"):
        proto = model_of([tree(mode, 1)], {})
        graph = import_model(proto, shapes, tables=TableOptions(lacks=True))
        assert graph.given["X"].flagged == tuple(range(COLUMNS))
        texts.append(graph.text())
    assert texts[0] == texts[1]  # one goes the way of yes, the other the way of no
