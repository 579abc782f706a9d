"""The last step of a classifier in secret: who receives it learns a class, and no scores.

Positions of the largest numbers come from ranks (ir/graph/ranking.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.graph.ranking import Ranked

FORMS = "argmax, topk:5 or softmax"


class FormKind(Enum):
    """What is revealed: the place of the largest number, places in order, or shares of one."""

    ARGMAX = "argmax"
    TOPK = "topk"
    SOFTMAX = "softmax"


@dataclass(frozen=True)
class Form:
    """What is revealed in place of numbers along the last axis.

    Attributes:
        kind: what is revealed.
        count: of positions, largest number first.
    """

    kind: FormKind
    count: int = 1

    @staticmethod
    def parse(text: str) -> Form:
        """`argmax`, `topk:K` or `softmax`; UsageError for anything else."""
        kind, _, count = text.partition(":")
        if kind == FormKind.TOPK.value:
            if count.isdecimal() and int(count) > 0:
                return Form(FormKind.TOPK, int(count))
        elif text in (FormKind.ARGMAX.value, FormKind.SOFTMAX.value):
            return Form(FormKind(text))
        raise UsageError(f"Nothing can be revealed as {text!r}.", f"Take {FORMS}.")

    @property
    def decides(self) -> bool:
        """Whether positions are revealed, and no real numbers."""
        return self.kind is not FormKind.SOFTMAX

    def __str__(self) -> str:
        ending = f":{self.count}" if self.kind is FormKind.TOPK else ""
        return f"{self.kind.value}{ending}"

    def of(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        """The same in NumPy, of real numbers."""
        if not self.decides:
            powers = np.exp(x - x.max(axis=-1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
        order = np.argsort(-x, axis=-1, kind="stable").astype(x.dtype)
        return np.asarray(
            order[..., 0] if self.kind is FormKind.ARGMAX else order[..., : self.count]
        )


def before(name: str, form: Form) -> str:
    """What the output is called that a decision is made of: never revealed, but measured."""
    return f"{name} before {form}"


def scope(name: str, form: Form) -> str:
    """What the names of the operations begin with that make the output's form."""
    return f"{name}:{form.kind.value}/"


def counting_scope(name: str) -> str:
    """The same of an output that counts answers."""
    return f"{name}:count/"


@dataclass(frozen=True)
class RevealAs:
    """Lets outputs be what is asked for; decisions keep their operand as an output to measure.

    Here with the form softmax for y.

    Before::

        func.func @main(%x: tensor<1x3xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<1x3xf32> {graph.name = "y"}) {
          return %x : tensor<1x3xf32>
        }

    After::

        func.func @main(%x: tensor<1x3xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<1x3xf32> {graph.name = "y"}) {
          %0 = "graph.softmax"(%x) {axis = 1 : i64} : (tensor<1x3xf32>) -> tensor<1x3xf32>
          return %0 : tensor<1x3xf32>
        }

    Attributes:
        forms: by the output's name.
    """

    forms: Mapping[str, Form]

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place.

        Raises:
            UsageError: an output that can't be revealed so.
        """
        outputs: dict[str, ir.Value] = {}
        for name, value in graph.outputs.items():
            form = self.forms.get(name)
            if form is None:
                outputs[name] = value
                continue
            _require_axis(name, form, shape_of(value))
            with graph.ahead_of_return(scope(name, form)):
                outputs[name] = _revealed(form, value)
            if form.decides:
                outputs[before(name, form)] = value
        graph.replace_outputs(outputs)
        return graph


def _require_axis(name: str, form: Form, shape: tuple[int, ...]) -> None:
    extent = shape[-1] if shape else 1
    if extent < 2 or form.count > extent:
        raise UsageError(
            f"Output {name} has {extent} numbers along its last axis, which can't be revealed as "
            f"{form}.",
            "Reveal it as it is.",
        )


def _revealed(form: Form, x: ir.Value) -> ir.Value:
    shape = shape_of(x)
    if not form.decides:
        return ops.Softmax.build(x, axis=len(shape) - 1)
    rows = ops.Reshape.build(x, shape=(int(np.prod(shape[:-1])), shape[-1]))
    positions = Ranked.of(rows, form.count).positions()
    kept = shape[:-1] if form.kind is FormKind.ARGMAX else (*shape[:-1], form.count)
    return ops.Reshape.build(positions, shape=kept)
