"""The operands of one aten operation, read as graph values or as Python numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir import shapes
from veilgraph.ir.attributes import Shape, dense_value, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.facts import Integers
from veilgraph.ir.graph.program import attributes, defining
from veilgraph.ir.meaning.graph import apply

ELEMENT_NAMES = {"f64": "float64", "f16": "float16", "bf16": "bfloat16"}
ELEMENTS = frozenset(("f32", "i1", *(f"{s}i{bits}" for s in "su" for bits in (8, 16, 32, 64))))
NUMBERS = ("torch.constant.bool", "torch.constant.float", "torch.constant.int")


class Unsupported(Exception):
    """What the graph level can't say, with the reason and the nearest way out."""

    def __init__(self, reason: str, way_out: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.way_out = way_out


class Aten:
    """One aten operation, whose tensors are looked up among the graph values built so far.

    What its other operands are made by is a literal: operations that compute integers or lists
    have no row, and what reads them is never translated.
    """

    def __init__(
        self,
        op: ir.OpView,
        values: Mapping[ir.Value, ir.Value],
        integers: Mapping[ir.Value, NDArray[np.float32]],
        whole: Collection[ir.Value] = (),
    ) -> None:
        self._operands = list(op.operation.operands)
        self._values, self._integers, self._whole = values, integers, whole
        self.shapes = tuple(vtensor_shape(result) for result in op.operation.results)
        self.shape = self.shapes[0]
        self.result_element = vtensor_element(op.operation.results[0])

    def tensor(self, index: int) -> ir.Value:
        """Operand `index` as a graph value."""
        return self._graph_value(self._operands[index])

    def element(self, index: int) -> str:
        """The type of operand `index`'s elements: "f32", "si64", "i1" for truth values."""
        return vtensor_element(self._operands[index])

    def is_whole(self, index: int) -> bool:
        """Whether operand `index` is known to hold integers alone, whatever its type says."""
        return is_whole(self.tensor(index), self._whole)

    def optional(self, index: int) -> ir.Value | None:
        """Operand `index` as a graph value; None where it is left out."""
        if _kind(self._operands[index]) == "torch.constant.none":
            return None
        return self.tensor(index)

    def tensors(self, index: int) -> list[ir.Value]:
        """Operand `index`, a list of tensors."""
        return [self._graph_value(value) for value in _list(self._operands[index])]

    def number(self, index: int) -> float:
        """Operand `index`, an integer or a real number that is known."""
        return float(_literal(self._operands[index]))

    def integer(self, index: int) -> int:
        """Operand `index`, a known integer."""
        return int(_literal(self._operands[index]))

    def flag(self, index: int) -> bool:
        """Operand `index`, a known truth value."""
        return bool(_literal(self._operands[index]))

    def text(self, index: int) -> str:
        """Operand `index`, a string."""
        return str(self._operands[index].owner.attributes["value"].value)

    def integers(self, index: int) -> tuple[int, ...]:
        """Operand `index`, a list of known integers."""
        return tuple(int(_literal(value)) for value in _list(self._operands[index]))

    def axis(self, index: int, rank: int) -> int:
        """Operand `index`, an axis, counted from the front."""
        return _axis(self.integer(index), rank)

    def axes(self, index: int, rank: int) -> tuple[int, ...]:
        """Operand `index`, axes, counted from the front and in order; all of them for none."""
        return tuple(sorted(_axis(v, rank) for v in self.integers(index))) or tuple(range(rank))

    def known(self, index: int) -> NDArray[np.float32] | None:
        """Operand `index`, where it is made of known integers; None where it isn't."""
        return known_integers(self.tensor(index), self._integers)

    def indices(self, index: int, extent: int) -> tuple[int, ...]:
        """Operand `index`, known places along an axis of this extent, counted from the front.

        Those that the lowering computed have been counted from the front already.
        """
        array = known_integers(self.tensor(index), self._integers)
        if array is None:
            raise Unsupported("Its indices are computed from data.", "Make them constants.")
        literal = _kind(self._operands[index]) == "torch.vtensor.literal"
        places = [int(v) for v in array.reshape(-1)]
        if any(not (-extent if literal else 0) <= place < extent for place in places):
            raise Unsupported(f"An index is outside the extent {extent}.")
        return tuple(place % extent for place in places)

    def _graph_value(self, value: ir.Value) -> ir.Value:
        if value not in self._values:
            raise Unsupported("It reads what is no tensor of numbers.")
        return self._values[value]


def vtensor_shape(value: ir.Value) -> Shape:
    """The shape of a `!torch.vtensor<[1,3],f32>`; Unsupported for any other type."""
    text = str(value.type)
    head, _, tail = text.partition("<[")
    extents = tail.partition("],")[0]
    if head != "!torch.vtensor" or vtensor_element(value) not in ELEMENTS or "?" in extents:
        raise Unsupported(_no_fixed_numbers(text, extents))
    return tuple(int(extent) for extent in extents.split(",") if extent)


def _no_fixed_numbers(text: str, extents: str) -> str:
    """What is wrong with a type, in the words of those who write models."""
    if not text.startswith("!torch.vtensor<["):
        return "It makes no tensor: a list, or a number that is computed from data."
    if "?" in extents.split(","):
        shape = extents.replace(",", "x")
        return f"The shape of its output depends on data: {shape}, with each ? unknown."
    element = text.rpartition(",")[2].removesuffix(">")
    return f"It makes numbers of type {ELEMENT_NAMES.get(element, element)}, which no op takes."


def vtensor_element(value: ir.Value) -> str:
    """The element type of a `!torch.vtensor`."""
    return str(value.type).rpartition(",")[2].removesuffix(">")


def literal_array(op: ir.OpView) -> NDArray[np.float32]:
    """The value of a `torch.vtensor.literal`."""
    value = op.operation.attributes["value"]
    if isinstance(value.type.element_type, ir.F32Type):
        return dense_value(value)
    return np.asarray(value).astype(np.float32).reshape(tuple(value.type.shape))


def _kind(value: ir.Value) -> str:
    return "" if isinstance(value, ir.BlockArgument) else str(value.owner.operation.name)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise Unsupported(f"Axis {axis} is outside rank {rank}.")
    return axis % rank


def _list(value: ir.Value) -> list[ir.Value]:
    if _kind(value) == "torch.constant.none":
        return []
    assert _kind(value) == "torch.prim.ListConstruct", "what computes lists was refused"
    return list(value.owner.operation.operands)


def _literal(value: ir.Value) -> float | int | bool:
    assert _kind(value) in NUMBERS, "what computes numbers was refused"
    number: float | int | bool = value.owner.attributes["value"].value
    return number


def known_integers(
    value: ir.Value, integers: Mapping[ir.Value, NDArray[np.float32]]
) -> NDArray[np.float32] | None:
    """The value of what is computed from constants and the integers of the model; else None."""
    return _known_integers(value, integers, {})


def _known_integers(
    value: ir.Value,
    integers: Mapping[ir.Value, NDArray[np.float32]],
    seen: dict[ir.Value, NDArray[np.float32] | None],
) -> NDArray[np.float32] | None:
    """The same; what was `seen` on the way is not asked again, as paths to it may be many."""
    if value in integers:
        return integers[value]
    if value in seen:
        return seen[value]
    seen[value] = None
    op = defining(value)
    if op is None:
        return None
    operands = []
    for operand in op.operation.operands:
        array = _known_integers(operand, integers, seen)
        if array is None:
            return None
        operands.append(array)
    seen[value] = found = np.asarray(apply(op, operands), np.float32)
    return found


def is_whole(value: ir.Value, whole: Collection[ir.Value]) -> bool:
    """Whether a graph value holds integers alone, given some that do."""
    asked, seen = [value], {value}
    while asked:
        x = asked.pop()
        op = defining(x)
        if x in whole:
            continue
        if op is None:
            return False
        integers = ops.facts_of(op).integers
        if isinstance(op, ops.Constant):
            array = np.asarray(attributes(op)["value"])
            if (array != np.rint(array)).any():
                return False
        elif integers is Integers.KEPT:
            operands = [each for each in op.operation.operands if each not in seen]
            seen.update(operands)
            asked += operands
        elif integers is not Integers.ALWAYS:
            return False
    return True


def number_of(value: ir.Value) -> float | None:
    """The number that a graph value holds in every element, where that is known."""
    op = defining(value)
    if not isinstance(op, ops.Constant):
        return None
    array = np.asarray(attributes(op)["value"])
    return float(array.flat[0]) if array.size and (array == array.flat[0]).all() else None


def binary(kind: type[ops.Binary], a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    """`kind` of two values, without the expansions that broadcasting makes needless."""
    pairs = ((narrow(a), narrow(b)), (narrow(a), b), (a, narrow(b)))
    fitting = (p for p in pairs if shapes.broadcast(*map(shape_of, p)) == shape)
    return kind.build(*next(fitting, (a, b)))


def narrow(value: ir.Value) -> ir.Value:
    """What `value` was expanded from."""
    op = defining(value)
    if isinstance(op, ops.Expand):
        return op.operation.operands[0]
    number = number_of(value)
    return value if number is None or not shape_of(value) else ops.constant(number)
