"""Power transforms as skl2onnx writes them, with ones x / x, zeros x - x and Imputers of infinity.

    Yeo-Johnson   ((1 + x)^a - 1) / a for x >= 0,  (1 - (1 - x)^(2 - a)) / (2 - a) below
    Box-Cox       (x^a - 1) / a

Both powers of Yeo-Johnson are one here, with b = [x > 0] and e = a or 2 - a, as b says:

    y = (1 / a or -1 / (2 - a)) (exp(e log(1 + |x|)) - 1)

What the Imputers are for cannot occur: numbers that are given are finite, and 0 becomes 0. Where a
column's exponent is 0, what is written makes zeros of it, so that is left as it is, and refused.
Exponents are the owner's, and stay weights. Yeo and Johnson, Biometrika 87 (2000), page 954.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from veilgraph.frontend.onnx.classical.meanings.written_out import Chains
from veilgraph.frontend.onnx.constant_folding import replace_nodes
from veilgraph.frontend.onnx.nodes import attributes_of, names_read

Floats = NDArray[np.float64]
# A pattern is the name of a tensor, the same wherever the name stands, or an operator and patterns.
Pattern = str | tuple["str | Pattern", ...]
X = "x"
ONES = ("Div", X, X)
BELOW = ("Less", X, ("Sub", X, X))
FINITE, GIVEN = "Imputer inf", "Imputer nan"


def _masked(power: Pattern, log: Pattern, own: str) -> Pattern:
    """The power, but for columns whose exponent is zero: they get the logarithm."""
    return ("Add", ("Mul", (FINITE, power), f"kept {own}"), ("Mul", log, f"left {own}"))


def _side(power: Pattern, log: Pattern, own: str, condition: Pattern) -> Pattern:
    return ("Mul", (GIVEN, _masked(power, log, own)), ("Cast", condition))


ABOVE_ONE, BELOW_ONE = ("Add", X, ONES), ("Sub", ONES, X)
YEO_JOHNSON: Pattern = (
    "Add",
    _side(
        ("Div", ("Sub", ("Pow", ABOVE_ONE, "a"), ONES), "a"),
        ("Log", ABOVE_ONE),
        "a",
        ("Not", BELOW),
    ),
    _side(
        ("Div", ("Sub", ONES, ("Pow", BELOW_ONE, "2 - a")), "2 - a"),
        ("Neg", ("Log", BELOW_ONE)),
        "2 - a",
        BELOW,
    ),
)
BOX_COX = _masked(("Div", ("Sub", ("Pow", X, "a"), ONES), "a"), (GIVEN, ("Log", X)), "a")


def read_power_transforms(graph: GraphProto) -> None:
    """Replaces power transforms, and takes out what they alone read; names of nodes are unique."""
    if not any(node.op_type == "Imputer" for node in graph.node):
        return
    chains = Chains(graph)
    for node in list(graph.node):
        parts = _yeo_johnson(node, chains) or _box_cox(node, chains)
        if parts is not None:
            graph.initializer.extend(parts.weights)
            nodes = [n for other in graph.node for n in (parts.nodes if other is node else [other])]
            replace_nodes(graph, nodes)
            _drop_unread(graph)


def _drop_unread(graph: GraphProto) -> None:
    kept = list[NodeProto]()
    read = {info.name for info in graph.output}
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            kept.insert(0, node)
            read |= names_read(helper.make_graph([node], "", [], []))
    replace_nodes(graph, kept)


@dataclass
class _Parts:
    """Nodes and weights in place of one node, whose output the last has."""

    node: NodeProto
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def __call__(self, operator: str, *inputs: str, last: bool = False, **attributes: int) -> str:
        name = self.node.name if last else f"{self.node.name}/{len(self.nodes)}"
        output = self.node.output[0] if last else name
        self.nodes.append(helper.make_node(operator, inputs, [output], name, **attributes))
        return str(output)

    def number(self, value: float) -> str:
        name = f"{self.node.name}/{len(self.nodes)}"
        tensor = numpy_helper.from_array(np.float32(value), name)
        self.nodes.append(helper.make_node("Constant", [], [name], name, value=tensor))
        return name

    def weight(self, value: Floats, name: str) -> str:
        tensor = numpy_helper.from_array(value.astype(np.float32), f"{self.node.name}/{name}")
        self.weights.append(tensor)
        return str(tensor.name)


def _yeo_johnson(node: NodeProto, chains: Chains) -> _Parts | None:
    found = _bound(node, YEO_JOHNSON, chains)
    above, below = _exponents(found, "a", chains), _exponents(found, "2 - a", chains)
    if above is None or below is None:
        return None
    s, x = _Parts(node), found[X]
    positive = s("Cast", s("Greater", x, s.number(0.0)), to=TensorProto.FLOAT)
    kept = s("Mul", x, positive)
    size = s("Sub", s("Add", kept, kept), x)
    log = s("Log", s("Add", size, s.number(1.0)))

    def chosen(one: Floats, other: Floats, name: str) -> str:
        apart = s("Mul", positive, s.weight(one - other, f"{name}.apart"))
        return s("Add", apart, s.weight(other, f"{name}.below"))

    power = s("Exp", s("Mul", log, chosen(above, below, "exponents")))
    over = chosen(1 / above, -1 / below, "inverse")
    s("Mul", s("Sub", power, s.number(1.0)), over, last=True)
    return s


def _box_cox(node: NodeProto, chains: Chains) -> _Parts | None:
    found = _bound(node, BOX_COX, chains)
    exponents = _exponents(found, "a", chains)
    if exponents is None:
        return None
    s = _Parts(node)
    raised = s("Mul", s("Log", found[X]), s.weight(exponents, "exponents"))
    power = s("Sub", s("Exp", raised), s.number(1.0))
    s("Mul", power, s.weight(1 / exponents, "inverse"), last=True)
    return s


def _exponents(found: Mapping[str, str], name: str, chains: Chains) -> Floats | None:
    """By column, as one row; None where one is zero or they aren't known."""
    if name not in found:
        return None
    values = [chains.value(found[of]) for of in (name, f"kept {name}", f"left {name}")]
    known = [np.asarray(value, np.float64).reshape(1, -1) for value in values if value is not None]
    if len(known) < len(values) or not (known[1] == 1).all() or known[2].any():
        return None
    return known[0]


def _bound(node: NodeProto, pattern: Pattern, chains: Chains) -> dict[str, str]:
    """The names of tensors that a pattern has names for; none where the node isn't of it."""
    found: dict[str, str] = {}
    return found if _fits(node.output[0], pattern, chains, found) else {}


def _fits(tensor: str, pattern: Pattern, chains: Chains, found: dict[str, str]) -> bool:
    if isinstance(pattern, str):
        return found.setdefault(pattern, tensor) == tensor
    operator, *operands = pattern
    node = chains.maker(tensor, str(operator).partition(" ")[0])
    if node is None or len(node.input) != len(operands):
        return False
    if node.op_type == "Imputer" and not _is_imputer_of(node, str(operator).partition(" ")[2]):
        return False
    return all(
        _fits(name, operand, chains, found)
        for name, operand in zip(node.input, operands, strict=True)
    )


def _is_imputer_of(node: NodeProto, missing: str) -> bool:
    """Whether it writes zeros in place of a number."""
    given = attributes_of(node)
    number, wanted = given.get("replaced_value_float", 0.0), float(missing)
    same = number == wanted or (np.isnan(number) and np.isnan(wanted))
    return bool(same) and list(given.get("imputed_value_floats", [])) == [0.0]
