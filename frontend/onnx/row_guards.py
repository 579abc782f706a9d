"""Guards of rows that are masked whole: zeros in place of a softmax of nothing.

    p = Softmax(scores + bias)
    Where(ReduceMax(bias) == -inf, 0, p)     ->  p times what is allowed

The body that ONNX gives Attention guards so. Minus infinity is no number of a ring, and a bias that
is bounded can't be told from one that is large. But it is a sum of masks, each made of truth values
or known: their product is 1 where a row sees a key, and zeros wherever it sees none. Beside a key
that is seen, what is masked has a probability of zero already. So no comparison is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from veilgraph.frontend.onnx.constant_folding import infer, replace_nodes
from veilgraph.frontend.onnx.nodes import Array, Facts, Steps, attributes_of, names_read

SAME = ("Cast", "CastLike", "Identity")  # of what real numbers are masked with
LAYOUTS = ("Expand", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


class NoMask(Exception):
    """A bias whose masks can't be told."""


def write_guards(model: ModelProto, weights: dict[str, NDArray[np.float32]]) -> None:
    """Changes the model in place.

    Args:
        weights: the owner's values by input name; takes masks that it knows, 1 for what is seen.
    """
    if not {"Equal", "ReduceMax", "Softmax", "Where"} <= {n.op_type for n in model.graph.node}:
        return
    made_by = {output: node for node in model.graph.node for output in node.output}
    guards = _Guards(Facts.of(infer(model), weights), made_by)
    parts = {node.output[0]: guards.written(node) for node in model.graph.node if node.output}
    parts |= guards.pads
    if guards.found:
        nodes = [new for node in model.graph.node for new in parts[node.output[0]]]
        replace_nodes(model.graph, nodes)
        _drop_unread(model)


def _drop_unread(model: ModelProto) -> None:
    """Takes out what guards alone read."""
    while True:
        read = names_read(model.graph)
        kept = [node for node in model.graph.node if not read.isdisjoint(node.output)]
        if len(kept) == len(model.graph.node):
            return
        replace_nodes(model.graph, kept)


@dataclass
class _Guards:
    """The guards of a model.

    Attributes:
        found: how many.
        pads: what takes the place of a Pad that masks, by the name of its output.
    """

    facts: Facts
    makers: Mapping[str, NodeProto]
    found: int = 0
    pads: dict[str, list[NodeProto]] = field(default_factory=dict)

    def written(self, node: NodeProto) -> list[NodeProto]:
        """The node; products in place of a guard."""
        bias = self._bias(node) if node.op_type == "Where" else ""
        if not bias:
            return [node]
        s = Steps(node, self.facts)
        try:
            allowed = list(self._allowed(s, bias))
        except NoMask:
            return [node]
        self.found += 1
        if len(allowed) == 1 and self._always(allowed[0]):
            allowed = []
        y = s.operand(2)
        for mask in allowed:
            y = s("Mul", y, mask)
        return s.finish(y)

    def _always(self, name: str) -> bool:
        """Whether a known mask lets every row see something."""
        array = self.facts.weights.get(name)
        return array is not None and bool(array.any(axis=-1).all())

    def _bias(self, node: NodeProto) -> str:
        """The bias whose rows a Where guards; "" for every other Where."""
        compared = self._maker(node.input[0])
        masked = self._softmax_of(node.input[2])
        if compared is None or compared.op_type != "Equal" or self._number(node.input[1]) != 0:
            return ""
        for extreme, far in (tuple(compared.input), tuple(reversed(compared.input))):
            largest = self._maker(extreme)
            if self._number(far) != -np.inf or largest is None or not self._by_row(largest):
                continue
            bias = self._source(largest.input[0])
            if bias in masked:
                return bias
        return ""

    def _by_row(self, node: NodeProto) -> bool:
        s = Steps(node, self.facts)
        axes, rank = s.known(1), len(s.shape(0))
        last = axes is not None and [int(a) % rank for a in axes.reshape(-1)] == [rank - 1]
        return node.op_type == "ReduceMax" and last and bool(s.attribute("keepdims", 1))

    def _softmax_of(self, name: str) -> set[str]:
        """The terms of what a softmax along the last axis takes, where one makes a tensor."""
        node = self._maker(name)
        if node is None or node.op_type != "Softmax":
            return set()
        axis, rank = Steps(node, self.facts).attribute("axis", -1), len(self.facts.shapes[name])
        added = self._maker(node.input[0])
        if axis % rank != rank - 1 or added is None or added.op_type != "Add":
            return set()
        return {self._source(operand) for operand in added.input}

    def _source(self, name: str) -> str:
        """The tensor that a tensor is, but for its type."""
        node = self.makers.get(name)
        while node is not None and node.op_type in SAME:
            name = node.input[0]
            node = self.makers.get(name)
        return name

    def _maker(self, name: str) -> NodeProto | None:
        return self.makers.get(self._source(name))

    def _number(self, name: str) -> float | None:
        """A single number that is public or its owner's: zero and infinity are no learnt ones."""
        name = self._source(name)
        tensor = self.facts.weights.get(name, self._known(name))
        return float(tensor.flat[0]) if tensor is not None and tensor.size == 1 else None

    def _known(self, name: str) -> Array | None:
        literal = self.facts.literals.get(name)
        return None if literal is None else np.asarray(numpy_helper.to_array(literal))

    def _allowed(self, s: Steps, name: str) -> Iterator[str]:
        """Tensors of 1 and 0, of the bias's shape or broadcast to it: 0 for what each mask hides.

        Raises:
            NoMask: what hides isn't known.
        """
        name = self._source(name)
        owned, literal = self.facts.weights.get(name), self._known(name)
        array = literal if owned is None else owned
        if array is not None:
            if (array == -np.inf).any():
                seen = array != -np.inf
                yield s.numbers(seen) if owned is None else s.weight(seen, whole=True)
            return
        node = self.makers.get(name)
        if node is None or node.op_type == "ConstantOfShape":
            return
        if node.op_type == "Add":
            for operand in node.input:
                yield from self._allowed(s, operand)
        elif node.op_type == "Where":
            yield self._chosen(s, node)
        elif node.op_type == "Pad":
            if mask := self._padded(s, node):
                yield mask
        elif node.op_type in LAYOUTS:
            if mask := self._alone(s, node.input[0]):
                yield s(node.op_type, mask, *node.input[1:], **attributes_of(node))
        else:
            raise NoMask

    def _alone(self, s: Steps, name: str) -> str:
        """The mask of a tensor's own shape that a tensor is; "" where it hides nothing."""
        maker, masks = self._maker(name), list(self._allowed(s, name))
        if masks and maker is not None and maker.op_type == "Add":
            raise NoMask
        return masks[0] if masks else ""

    def _chosen(self, s: Steps, node: NodeProto) -> str:
        """Where(truth, 0, -inf), or the other way round."""
        chosen = (self._number(node.input[1]), self._number(node.input[2]))
        truth = s("Cast", node.input[0], to=TensorProto.FLOAT)
        if chosen == (0, -np.inf):
            return truth
        if chosen == (-np.inf, 0):
            return s("Sub", s.numbers(1.0), truth)
        raise NoMask

    def _padded(self, s: Steps, node: NodeProto) -> str:
        """Pad(x, pads, -inf): what is added hides, and so does what x hides; "" if nothing does.

        The Pad itself becomes one of zeros, and a sum, for no ring pads with an infinity.
        """
        own = Steps(node, self.facts)
        around = _around(own)
        if around is None or self._number(own.operand(2)) != -np.inf:
            raise NoMask
        mask = self._alone(s, own.operand(0))
        if not around.any():
            self.pads[node.output[0]] = own.finish(own.operand(0))
            return mask
        extents = [n if both.any() else 1 for n, both in zip(own.shape(0), around, strict=True)]
        seen = np.pad(np.ones(extents, np.float32), around)
        pads = around.T.reshape(-1)
        zeros = own("Pad", own.operand(0), own.integers(*pads), own.numbers(0.0))
        hidden = np.where(seen > 0, np.float32(0), np.float32(-np.inf))
        self.pads[node.output[0]] = own.finish(own("Add", zeros, own.numbers(hidden)))
        return s("Pad", mask, s.integers(*pads), s.numbers(0.0)) if mask else s.numbers(seen)


def _around(s: Steps) -> NDArray[np.int64] | None:
    """[rank, 2]: what a Pad adds before and after each axis; None where that isn't known."""
    rank, pads = len(s.shape(0)), s.known(1)
    axes = s.known(3) if s.operand(3) else np.arange(rank)
    if pads is None or axes is None:
        return None
    around = np.zeros((rank, 2), np.int64)
    around[axes] = pads.reshape(2, -1).T
    return around
