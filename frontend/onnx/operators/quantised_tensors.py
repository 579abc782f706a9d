"""Tensors of quantised models: what their integers stand for, said by nodes of real numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from veilgraph.frontend.onnx.load import NOT_A_MODEL
from veilgraph.frontend.onnx.nodes import attributes_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import QuantisersClip

Array: TypeAlias = NDArray[Any]
Rule: TypeAlias = "Callable[[Decoder, NodeProto], bool]"
DOMAINS = ("", "com.microsoft")
STORED = frozenset((TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16))
LAYOUT = frozenset(  # and what picks elements: one scale and zero point go through
    (
        *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool"),
        *("Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose"),
        "Unsqueeze",
    )
)
KEEPING_BOUNDS = LAYOUT - {"Concat"} | {"GlobalAveragePool", "GlobalMaxPool", "Dropout"}
BOUNDED = {"Relu": (0.0, np.inf), "Sigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0)}


@dataclass(frozen=True)
class Code:
    """What the integers of a tensor stand for.

    Attributes:
        scale, zero: (q - zero) scale; one number each, or one for each place of `axis`.
        kind: element type of the integers.
        block: how many places of `axis` share a number; 0 for one a place.
    """

    scale: Array
    zero: Array
    kind: int
    axis: int = 1
    block: int = 0

    def same(self, other: Code) -> bool:
        """Whether the same integer stands for the same number."""
        equal = np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero)
        return equal and (self.axis == other.axis or self.is_single)

    @property
    def is_single(self) -> bool:
        return self.scale.size == 1 and self.zero.size == 1

    def along(self, values: Array, shape: Sequence[int]) -> Array:
        """Scales or zero points so that they broadcast with a tensor of this shape."""
        if values.size == 1:
            return values.reshape(())
        axis = self.axis % max(len(shape), 1)
        count = 0 if self.block else values.size
        if self.block and values.ndim == len(shape):
            count = values.shape[axis] * self.block
        if not shape or not shape[axis] <= count < shape[axis] + max(self.block, 1):
            raise UsageError(
                f"A scale or zero point of shape {values.shape} doesn't fit a tensor of shape "
                f"{tuple(shape)} along axis {self.axis}.",
                NOT_A_MODEL,
            )
        if self.block:
            wide = np.repeat(values, self.block, axis)
            return wide.take(range(shape[axis]), axis)
        column = [-1 if i == axis else 1 for i in range(len(shape))]
        return values.reshape(column)

    def decoded(self, integers: Array) -> NDArray[np.float32]:
        """The numbers that these integers stand for."""
        scale, zero = (self.along(v, integers.shape) for v in (self.scale, self.zero))
        wide = integers.astype(np.float64) - zero
        return np.asarray(wide * scale, np.float32)


@dataclass
class Decoder:
    """Rewrites one model, node by node.

    Attributes:
        constants: known tensors by name.
        shapes: of all tensors where they are fixed.
        uses: of each tensor, what reads it; None for an output.
        makers: of each tensor, what makes it.
        nodes: the new nodes.
        added: new constants.
        real: of a quantised tensor, the name of its real numbers and what it was coded by.
        bounds: where real numbers are known to lie, by name.
        exact: results of roundings that are left out.
        clips: what `encode` made, by the name of its last node.
        behind: the clips that real numbers have gone through last, by name.
        made_by: the clip whose result real numbers are, by name.
    """

    model: ModelProto
    constants: dict[str, Array]
    shapes: Mapping[str, tuple[int, ...]]
    uses: Mapping[str, list[NodeProto | None]]
    makers: Mapping[str, NodeProto]
    nodes: list[NodeProto] = field(default_factory=list)
    added: dict[str, Array] = field(default_factory=dict)
    real: dict[str, tuple[str, Code]] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    clips: dict[str, QuantisersClip] = field(default_factory=dict)
    behind: dict[str, tuple[str, ...]] = field(default_factory=dict)
    made_by: dict[str, str] = field(default_factory=dict)

    def run(self, rules: Mapping[str, Rule]) -> None:
        """Rewrites what `rules` know, and changes of layout of what they made; a rule says whether
        it could.
        """
        for node in self.model.graph.node:
            made = len(self.nodes)
            if node.output[0] in self.exact:
                self.add("Identity", node.input, node.output, node.name)
                continue
            rule = rules.get(node.op_type) if node.domain in DOMAINS else None
            if not (rule and rule(self, node)) and not self._moved(node):
                del self.nodes[made:]
                for name in node.input:
                    self._require_integers(name)
                self.nodes.append(node)
                self.bound(node)
        for info in self.model.graph.output:
            self._require_integers(info.name)

    def make(self, operator: str, *inputs: str, name: str, **attributes: Any) -> str:
        """A new node of one output, called like it."""
        self.add(operator, inputs, [name], name, **attributes)
        return name

    def add(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        label: str,
        **attributes: Any,
    ) -> None:
        """A new node."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=label, **attributes))

    def constant(self, values: Array, name: str) -> str:
        """A new constant of real numbers."""
        self.added[name] = np.asarray(values, np.float32)
        return name

    def code(self, node: NodeProto, first: int, kind: int = 0) -> Code | None:
        """What operands `first` and the next say, scale and zero point; None where it isn't known.

        Args:
            kind: the element type that it is said of, where no zero point says it.
        """
        names = [node.input[i] if i < len(node.input) else "" for i in (first, first + 1)]
        scale, zero = (self.constants.get(name) for name in names)
        if scale is None or (names[1] and zero is None) or not np.all(scale):
            return None
        given = attributes_of(node)
        if zero is None:
            zero = np.zeros((), np.int64)
            kind = kind or given.get("output_dtype", 0) or TensorProto.UINT8
        else:
            kind = helper.np_dtype_to_tensor_dtype(zero.dtype)
        numbers = np.asarray(zero).astype(np.float64)
        return Code(
            np.asarray(scale, np.float64),
            numbers,
            kind,
            given.get("axis", 1),
            given.get("block_size", 0),
        )

    def decoded(self, name: str, code: Code | None, goal: str) -> str:
        """The real numbers that tensor `name` stands for by `code`, as a tensor; "" if it can't be.

        Args:
            goal: what a new tensor is to be called.
        """
        if code is None:
            return ""
        if name in self.constants:
            return self.constant(code.decoded(self.constants[name]), goal)
        if name in self.real and self.real[name][1].same(code):
            return self.real[name][0]
        if name not in self.shapes:
            return ""
        shape = self.shapes[name]
        self._require_integers(name)
        wide = self.make("Cast", name, name=f"{goal}/cast", to=TensorProto.FLOAT)
        if code.zero.any():
            zero = self.constant(code.along(code.zero, shape), f"{goal}/zero")
            wide = self.make("Sub", wide, zero, name=f"{goal}/sub")
        scale = self.constant(code.along(code.scale, shape), f"{goal}/scale")
        return self.make("Mul", wide, scale, name=goal)

    def encode(self, output: str, real: str, code: Code | None, label: str) -> bool:
        """Lets `output` be what `real` is quantised to: a clip to what the type can say."""
        if code is None or code.kind not in STORED:
            return False
        if not code.is_single and output not in self.shapes:
            return False
        limits = np.iinfo(helper.tensor_dtype_to_np_dtype(code.kind))
        ends = [(limit - code.zero) * code.scale for limit in (limits.min, limits.max)]
        known = self.bounds.get(real, (-np.inf, np.inf))
        less = float(code.scale.min()) / 2  # than rounding would change, a clip needn't either
        parts = [
            ("Max", ends[0], code.is_single and known[0] >= float(ends[0].min()) - less),
            ("Min", ends[1], code.is_single and known[1] <= float(ends[1].max()) + less),
        ]
        needed = [(operator, end) for operator, end, idle in parts if not idle]
        for number, (operator, end) in enumerate(needed):
            name = f"{output}/real" if number == len(needed) - 1 else f"{output}/clip"
            wide = end if code.is_single else code.along(end, self.shapes[output])
            limit = self.constant(wide.reshape(()) if wide.size == 1 else wide, f"{name}.bound")
            real = self.make(operator, real, limit, name=name)
        if needed:
            self.nodes[-1].name = label
            self.clips[label] = QuantisersClip(2 * less, needed[0][0] == "Max")
            self.behind[real] = (label,)
            self.made_by[real] = label
        if code.is_single:
            low, high = float(ends[0].min()), float(ends[1].max())
            self.bounds[real] = (max(low, known[0]), min(high, known[1]))
        self.real[output] = (real, code)
        return True

    def name_clip(self, real: str, label: str) -> None:
        """Notes that the clip that makes `real` is called so where the model's output is that."""
        for clip in self.behind.get(real, ()):
            if clip in self.clips and self.made_by.get(real) == clip:
                self.clips[label] = self.clips[clip]
                self.behind[real] = (*self.behind[real], label)
                return

    def _require_integers(self, name: str) -> None:
        """Makes the integers of a tensor whose real numbers were enough so far.

        No integer may be beyond its type: the clip before it stays, whatever samples reach.
        """
        if name not in self.real:
            return
        real, code = self.real.pop(name)
        for clip in self.behind.get(real, ()):
            self.clips.pop(clip, None)
        shape = self.shapes.get(name, ())
        scale = self.constant(1 / code.along(code.scale, shape), f"{name}/per")
        q = self.make("Mul", real, scale, name=f"{name}/scaled")
        q = self.make("Round", q, name=f"{name}/round")
        if code.zero.any():
            zero = self.constant(code.along(code.zero, shape), f"{name}/zero")
            q = self.make("Add", q, zero, name=f"{name}/shifted")
        self.make("Cast", q, name=name, to=code.kind)

    def _moved(self, node: NodeProto) -> bool:
        """A change of layout of quantised tensors of one code, done on real numbers."""
        if node.domain or node.op_type not in LAYOUT:
            return False
        count = len(node.input) if node.op_type == "Concat" else 1
        codes = [self.real[name][1] for name in node.input[:count] if name in self.real]
        single = node.op_type != "MaxPool" or len(node.output) == 1
        if len(codes) < count or not codes or not codes[0].is_single or not single:
            return False
        if not all(code.same(codes[0]) for code in codes):
            return False
        moved = NodeProto()
        moved.CopyFrom(node)
        moved.input[:] = [
            self.real[name][0] if i < count else name for i, name in enumerate(node.input)
        ]
        moved.output[:] = [f"{name}/real" for name in node.output]
        self.nodes.append(moved)
        behind = tuple(c for n in moved.input[:count] for c in self.behind.get(n, ()))
        for name in node.output:
            self.real[name] = (f"{name}/real", codes[0])
            self.behind[f"{name}/real"] = behind
            known = [self.bounds.get(source, (-np.inf, np.inf)) for source in moved.input[:count]]
            lows, highs = zip(*known, strict=True)
            self.bounds[f"{name}/real"] = (min(lows), max(highs))
        return True

    def bound(self, node: NodeProto) -> None:
        """Notes where the results of some operators lie."""
        if node.domain:
            return
        if node.op_type in BOUNDED:
            self.bounds[node.output[0]] = BOUNDED[node.op_type]
        elif node.op_type == "LeakyRelu" and node.input[0] in self.bounds:
            low, high = self.bounds[node.input[0]]
            slope = attributes_of(node).get("alpha", 0.01)
            if 0 <= slope <= 1:
                ends = (low * slope if low < 0 else low, high * slope if high < 0 else high)
                self.bounds[node.output[0]] = ends
        elif node.op_type in KEEPING_BOUNDS and node.input[0] in self.bounds:
            for name in node.output:
                self.bounds[name] = self.bounds[node.input[0]]
