"""Writes nodes of a converter into skl2onnx's container."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

DOMAINS = {
    **dict.fromkeys(("ArrayFeatureExtractor", "Imputer", "Scaler"), "ai.onnx.ml"),
    **dict.fromkeys(("TreeEnsembleClassifier", "TreeEnsembleRegressor"), "ai.onnx.ml"),
    "CDist": "com.microsoft",
}
TEXT = "OUS"  # kinds of arrays of text


class Nodes:
    """Nodes of one operator of skl2onnx, each with a name of its own.

    Attributes:
        x: the operator's columns, as float32.
    """

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        self._scope, self._container = scope, container
        given = [value.full_name for value in operator.inputs]
        self.x = self("Concat", *given, axis=1) if len(given) > 1 else given[0]
        if any(type(value.type).__name__ != "FloatTensorType" for value in operator.inputs):
            self.x = self("Cast", self.x, to=TensorProto.FLOAT)

    def __call__(
        self, kind: str, *inputs: str, into: str | list[str] = "", **attributes: Any
    ) -> str:
        """Appends a node, and returns its first output.

        Args:
            into: names of its outputs; a new one if "".
        """
        outputs = into or self.new(kind.lower())
        self._container.add_node(
            kind,
            list(inputs),
            outputs,
            op_domain=DOMAINS.get(kind, ""),
            name=self._scope.get_unique_operator_name(kind),
            **attributes,
        )
        return outputs if isinstance(outputs, str) else outputs[0]

    def new(self, name: str) -> str:
        """A name that nothing has yet."""
        return str(self._scope.get_unique_variable_name(name))

    def constant(self, values: Any) -> str:
        """A tensor of float32, int64 or text; of numbers [] or of any shape."""
        array = np.asarray(values)
        name, flat = self.new("constant"), array.reshape(-1)
        kept: list[Any]
        if array.dtype.kind in TEXT:
            of, kept = TensorProto.STRING, [str(entry).encode() for entry in flat]
        elif array.dtype.kind in "iub":
            of, kept = TensorProto.INT64, flat.astype(np.int64).tolist()
        else:
            of, kept = TensorProto.FLOAT, flat.astype(np.float32).tolist()
        self._container.add_initializer(name, of, list(array.shape), kept)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def truth(self, kind: str, *inputs: str) -> str:
        """1.0 where a node says yes, 0.0 elsewhere."""
        return self("Cast", self(kind, *inputs), to=TensorProto.FLOAT)

    def summed(self, x: str) -> str:
        """Along the columns, which become one."""
        return self("ReduceSum", x, self.integers(1), keepdims=1)

    def sliced(self, x: str, start: int, end: int) -> str:
        """The columns from one on up to another."""
        return self("Slice", x, self.integers(start), self.integers(end), self.integers(1))

    def best(self, table: str, classes: NDArray[Any]) -> str:
        """The label of each row's largest number, [rows, 1]."""
        place = self("ArgMax", table, axis=1, keepdims=0)
        label = self("ArrayFeatureExtractor", self.constant(classes), place)
        if classes.dtype.kind not in TEXT:
            label = self("Cast", label, to=TensorProto.INT64)
        return self("Reshape", label, self.integers(-1, 1))
