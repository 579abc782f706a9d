"""What torch computes at each node of a model: what `check` compares with for PyTorch models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from veilgraph.checks.reference_runs import Array, Feeds
from veilgraph.frontend.torch.export import Exported, TorchModel, export

AVERAGES: Mapping[Any, Any] = {
    torch.ops.aten.max_pool1d.default: torch.ops.aten.avg_pool1d.default,
    torch.ops.aten.max_pool2d.default: torch.ops.aten.avg_pool2d.default,
}


@dataclass(frozen=True)
class TorchReference:
    """A model in torch: the exported program, run node by node.

    Attributes:
        nodes: the tensor that each layer computes, by the layer's name, in the model's order.
    """

    exported: Exported
    nodes: Mapping[str, str]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model's own outputs."""
        return self.exported.outputs

    @staticmethod
    def of(
        model: TorchModel,
        inputs: Mapping[str, tuple[int, ...]],
        average_pools: bool,
        public: Sequence[str],
    ) -> TorchReference:
        """See `references.reference_of`."""
        examples = None
        if isinstance(model, torch.nn.Module):
            examples = {name: torch.zeros(shape) for name, shape in inputs.items()}
        exported = export(model, examples, None if examples else inputs, public)
        if average_pools:
            _average(exported.program.graph)
        return TorchReference(exported, {layer: _key(layer) for layer in exported.layers.values()})

    def run(self, sample: Feeds) -> dict[str, Array]:
        """Every tensor by name, for one array an input."""
        values: dict[Any, Any] = {}
        with torch.no_grad():
            for node in self.exported.program.graph.nodes:
                if node.op == "placeholder":
                    values[node] = self._given(node, sample)
                elif node.op == "call_function":
                    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                    values[node] = node.target(*args, **kwargs)
        layers = self.exported.layers
        found = {
            _key(layers[node.name]): _array(value)
            for node, value in values.items()
            if node.name in layers and isinstance(value, torch.Tensor)
        }
        returned = self.exported.program.graph.output_node().args[0]
        outputs = zip(self.outputs, returned, strict=True)
        return found | {name: _array(values[node]) for name, node in outputs}

    def _given(self, node: Any, sample: Feeds) -> Any:
        """What a placeholder stands for; None where nothing reads it."""
        if node.name in sample:
            array = np.ascontiguousarray(sample[node.name])
            return torch.from_numpy(array).to(node.meta["val"].dtype)
        return self.exported.tensors.get(node.name)


def _key(layer: str) -> str:
    """A tensor's name that no output has."""
    return f"layer {layer}"


def _array(value: torch.Tensor) -> Array:
    array: Array = value.detach().float().numpy().astype(np.float32)
    return array


def _average(graph: fx.Graph) -> None:
    """Turns the max pools into average pools that `passes.pool_average` would turn."""
    for node in graph.nodes:
        if node.target not in AVERAGES:
            continue
        defaults: tuple[Any, ...] = ([], 0, 1, False)
        given: list[Any] = [*node.args, *defaults[len(node.args) - 2 :]]
        x, kernel, strides, padding, dilation, ceil = given
        if all(step == 1 for step in np.atleast_1d(dilation)):
            node.target = AVERAGES[node.target]
            node.args = (x, kernel, strides, padding, ceil, not np.any(padding))
