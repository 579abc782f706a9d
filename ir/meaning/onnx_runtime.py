"""Programs of the graph level in ONNX Runtime: what calibration runs samples with.

Each operation becomes the node of the same meaning, or two or three of them, and every value is an
output. It is the final program that runs, and not the model that it came from: what is measured is
what will be encoded, whichever door it came through. Its numbers are real: no product of 8 bits is
asked for, which ONNX Runtime saturates on some processors. `ir/meaning/graph.py` says what is
right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes
from veilgraph.ir.meaning.graph import apply

Array = NDArray[Any]
OPSET = 21
VERSION = 10  # of ONNX's format, which ONNX Runtime knows since 1.18
FEW = 16  # elements that ONNX Runtime repeats one by one
FIRST = -(1 << 62)  # a backward slice that ends here reaches element 0

VIEWS = (ops.Reshape, ops.Transpose, ops.Expand)  # of an operand's elements, in NumPy

Row = Callable[["Draft", Sequence[str], Mapping[str, Any], tuple[int, ...]], str]
Change = Callable[["Draft", ir.Value], str]


class OnnxProgram:
    """A program that was given to ONNX Runtime; its weights are read where they lie.

    Attributes:
        sources: of each value that `VIEWS` make, the one whose elements it has: none of theirs.
    """

    def __init__(self, graph: Graph) -> None:
        """Of operations that may be encoded (`is_encoded` of their facts)."""
        draft = Draft(graph)
        self.graph, self._names = graph, draft.names
        self._views = [op for op in graph.operations if isinstance(op, VIEWS)]
        self.sources: dict[ir.Value, ir.Value] = {}
        for op in self._views:
            (operand,), (result,) = op.operation.operands, op.operation.results
            self.sources[result] = self.sources.get(operand, operand)
        self._made = [value for value in draft.made if value not in self.sources]
        self._session = session(draft.model(self._made)) if self._made else None

    def arguments(self, inputs: Mapping[str, Array]) -> dict[ir.Value, Array]:
        """Weights and inputs, for one array an input."""
        graph = self.graph
        weights = {value: graph.weights[name] for name, value in graph.parameters.items()}
        given = {value: np.asarray(inputs[n], np.float32) for n, value in graph.inputs.items()}
        return weights | given

    def run(self, inputs: Mapping[str, Array]) -> dict[ir.Value, Array]:
        """Every value of the program, for one array an input; what `VIEWS` make is no copy."""
        values = self.arguments(inputs)
        if self._session is not None:  # ONNX Runtime takes no model of no nodes
            feeds = {self._names[value]: array for value, array in values.items()}
            found = self._session.run([self._names[value] for value in self._made], feeds)
            values |= zip(self._made, found, strict=True)
        for op in self._views:
            (operand,), (result,) = op.operation.operands, op.operation.results
            values[result] = apply(op, [values[operand]])
        return values


def session(model: ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime's, on processors alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a failure is an exception; a log would show names as they are
    options.enable_mem_pattern = False  # which keeps the memory of one run beside that of the next
    options.enable_cpu_mem_arena = False  # which grows by doubling, and gives nothing back
    # Threads that wait for a next node sleep: turning, they took two fifths of a compile's seconds.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


class Draft:
    """The nodes of a program as they are written.

    Attributes:
        given: the tensor that each argument is given as.
        names: the tensor of each value.
        shapes: of these tensors.
        made: the values that operations make, in order.
    """

    def __init__(
        self, graph: Graph, given: Sequence[ir.Value] = (), changed: Change | None = None
    ) -> None:
        """Of a program some of whose values, computed elsewhere, are `given` as arguments are.

        What `changed` makes of each value takes its place, before others are computed from it.
        """
        self._proto = GraphProto(name="program")
        arguments = [*graph.inputs.values(), *graph.parameters.values(), *given]
        self.given: dict[ir.Value, str] = {v: f"argument{i}" for i, v in enumerate(arguments)}
        self._proto.input.extend(_info(name, shape_of(v)) for v, name in self.given.items())
        self.names: dict[ir.Value, str] = dict(self.given)
        if changed is not None:
            self.names |= {value: changed(self, value) for value in arguments}
        self.shapes = {name: shape_of(value) for value, name in self.names.items()}
        self.made: list[ir.Value] = []
        for op in graph.operations:
            (result,) = op.operation.results
            if result in self.names:
                continue
            operands = [self.names[value] for value in op.operation.operands]
            row = ROWS[type(op)]
            self.names[result] = row(self, operands, attributes(op), shape_of(result))
            if changed is not None:
                self.names[result] = changed(self, result)
            self.shapes[self.names[result]] = shape_of(result)
            self.made.append(result)

    def model(self, results: Sequence[ir.Value] = (), numbers: Sequence[str] = ()) -> ModelProto:
        """A model that returns these values, then these tensors of one number each."""
        self._proto.output.extend(_info(self.names[v], shape_of(v)) for v in results)
        self._proto.output.extend(_info(name, ()) for name in numbers)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(self._proto, opset_imports=[opset], ir_version=VERSION)

    def __call__(self, kind: str, *operands: str, **named: Any) -> str:
        """The result of a new node."""
        node: NodeProto = self._proto.node.add()
        name = f"value{len(self._proto.node)}"
        node.CopyFrom(helper.make_node(kind, operands, [name], **named))
        return name

    def constant(self, array: Array) -> str:
        """A tensor of known numbers."""
        name = f"constant{len(self._proto.initializer)}"
        self._proto.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def numbers(self, *values: float) -> str:
        return self.constant(np.array(values if len(values) > 1 else values[0], np.float32))

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(np.array(values, np.int64))

    def input(self, name: str, shape: tuple[int, ...]) -> None:
        """A tensor that is given beside the program's arguments."""
        self._proto.input.append(_info(name, shape))


def _info(name: str, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _same(kind: str) -> Row:
    """A node of the same operands and attributes."""
    return lambda draft, x, named, shape: draft(kind, *x, **named)


def _constant(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    return draft("Identity", draft.constant(np.asarray(named["value"], np.float32)))


def _step(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    truth = draft("GreaterOrEqual", *x, draft.numbers(0.0))
    return draft("Cast", truth, to=TensorProto.FLOAT)


def _one_hot(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    wide = draft("Unsqueeze", *x, draft.integers([len(shape) - 1]))
    places = [float(place) for place in range(named["depth"])]
    hit = draft("Equal", wide, draft.numbers(*places))
    if named["wraps"]:
        from_end = draft.numbers(*(place - named["depth"] for place in places))
        hit = draft("Or", hit, draft("Equal", wide, from_end))
    return draft("Cast", hit, to=TensorProto.FLOAT)


def _rsqrt(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    return draft("Reciprocal", draft("Sqrt", *x))


def _silu(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    return draft("Mul", *x, draft("Sigmoid", *x))


def _windows(named: Mapping[str, Any]) -> dict[str, Any]:
    """What slides, in ONNX's words."""
    pads = (*named["pads_low"], *named["pads_high"])
    given = {"strides": named["strides"], "pads": pads}
    if "kernel" in named:
        given["kernel_shape"] = named["kernel"]
    if "dilations" in named:
        given["dilations"] = named["dilations"]
    return given


def _conv(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    return draft("Conv", *x, group=named["groups"], **_windows(named))


def _max_pool(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    return draft("MaxPool", *x, **_windows(named))


def _sum_pool(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    mean = draft("AveragePool", *x, count_include_pad=1, **_windows(named))
    return draft("Mul", mean, draft.numbers(float(np.prod(named["kernel"]))))


def _reduced(kind: str) -> Row:
    return lambda draft, x, named, shape: draft(
        kind, *x, draft.integers(named["axes"]), keepdims=int(named["keepdims"])
    )


def _reshape(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    return draft("Reshape", *x, draft.integers(shape))


def _expand(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    """Where few elements repeat a few times, they are joined: an Expand takes eight times as long.

    So the slopes of a pool's windows are spread.
    """
    given = draft.shapes[x[0]]
    alike = len(given) == len(shape)
    grown = [axis for axis, size in enumerate(shape) if alike and size != given[axis]]
    if len(grown) == 1 and shape[grown[0]] <= FEW and prod(shape[grown[0] + 1 :]) <= FEW:
        return draft("Concat", *[x[0]] * shape[grown[0]], axis=grown[0])
    return draft("Expand", *x, draft.integers(shape))


def _transpose(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    return draft("Transpose", *x, perm=named["permutation"])


def _slice(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    each = list(zip(named["starts"], named["steps"], shape, strict=True))
    ends = [start + count * step for start, step, count in each]
    parts = (named["starts"], [e if e >= 0 else FIRST for e in ends], range(len(each)))
    lists = [draft.integers(list(part)) for part in (*parts, named["steps"])]
    return draft("Slice", *x, *lists)


def _pad(draft: Draft, x: Sequence[str], named: Mapping[str, Any], shape: Any) -> str:
    pads = draft.integers((*named["low"], *named["high"]))
    return draft("Pad", *x, pads, draft.numbers(named["value"]))


ROWS: Mapping[type[ir.OpView], Row] = {
    **{kind: _same(kind.onnx) for kind in ops.OPERATIONS if hasattr(kind, "onnx")},
    ops.Constant: _constant,
    ops.Step: _step,
    ops.OneHot: _one_hot,
    ops.Rsqrt: _rsqrt,
    ops.Silu: _silu,
    ops.Conv: _conv,
    ops.MaxPool: _max_pool,
    ops.SumPool: _sum_pool,
    ops.ReduceSum: _reduced("ReduceSum"),
    ops.ReduceMax: _reduced("ReduceMax"),
    ops.Reshape: _reshape,
    ops.Transpose: _transpose,
    ops.Slice: _slice,
    ops.Pad: _pad,
    ops.Expand: _expand,
    ops.Concat: _same("Concat"),
}
