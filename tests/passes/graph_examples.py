"""The example in a pass's docstring, as programs: what it says before and after, in MLIR text."""

from __future__ import annotations

import re
import textwrap

import numpy as np
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph.program import Graph


def example(docstring: str | None, context: ir.Context) -> tuple[Graph, Graph]:
    """The programs under "Before::" and "After::", with the same random weights by name.

    The weights after the pass are meant by name only: their values are drawn anew where the pass
    changes a shape.
    """
    before, after = (_block(docstring or "", title) for title in ("Before", "After"))
    return _program(before, context), _program(after, context)


def _block(docstring: str, title: str) -> str:
    found = re.search(rf"^( *){title}::\n\n((?:\1 +.*\n|\n)+)", docstring + "\n", re.MULTILINE)
    assert found is not None, f"the docstring shows nothing under {title}"
    return textwrap.dedent(found.group(2))


def _program(text: str, context: ir.Context) -> Graph:
    rng = np.random.default_rng(7)
    bare = Graph.parse(context, text, {})
    weights = {
        name: rng.uniform(0.5, 2, shape_of(value)).astype(np.float32)
        for name, value in bare.parameters.items()
    }
    return Graph.parse(context, text, weights)
