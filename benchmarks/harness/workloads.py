"""The networks that are measured: as ONNX models for us, as a short description for the peers.

    network = vgg16_cifar(batch=1)
    network.onnx()                    # what veilgraph.compile takes
    network.describe(folder)          # network.json and arrays.npz, for a peer's environment

Weights are random, seeded, and scaled so that activations stay of order one (He et al., ICCV 2015):
no protocol's time depends on values. Shapes are those of torchvision and of the papers; average
pools stand in the place of max pools, as CryptGPU and Piranha had them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = npt.NDArray[np.float32]
Shape = tuple[int, ...]
OPSET = 21
BRANCH_GAIN = 0.3  # of what is added to a residual, so that sums don't grow with depth
SEED = 0
ONNX_NAMES = {
    "relu": "Relu",
    "flatten": "Flatten",
    "add": "Add",
    "matmul": "MatMul",
    "softmax": "Softmax",
    "gelu": "Gelu",
    "layer_norm": "LayerNormalization",
}


@dataclass(frozen=True)
class Node:
    """One layer.

    Attributes:
        op: "conv", "relu", "average_pool", "max_pool", "sum_pool", "flatten", "dense", "add",
            "matmul", "softmax", "gelu" or "layer_norm"; the last three along the last axis.
        inputs: names of values; of conv and dense: the value, the weight [O, C, k, k] or [O, C],
            the bias [O].
        output: the value's name.
        size: `kernel`, `stride` and `pad` of a convolution or a pool; empty for others.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    size: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """A network with its weights, and the owner of each input among the two first parties."""

    name: str
    inputs: Mapping[str, Shape]
    nodes: tuple[Node, ...]
    weights: Mapping[str, Array]
    owners: Mapping[str, int]

    @property
    def output(self) -> str:
        return self.nodes[-1].output

    def samples(self, count: int, seed: int) -> dict[str, Array]:
        """Standard normal inputs, samples on a new first axis."""
        rng = np.random.default_rng(seed)
        return {
            name: rng.standard_normal((count, *shape), dtype=np.float32)
            for name, shape in self.inputs.items()
        }

    def onnx(self) -> ModelProto:
        """The model, its shapes fixed, batch included."""
        graph = helper.make_graph(
            [_onnx_node(node) for node in self.nodes],
            "network",
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in self.inputs.items()
            ],
            [helper.make_tensor_value_info(self.output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10
        )

    def describe(self, folder: Path, inputs: Mapping[str, Array]) -> None:
        """Writes network.json and arrays.npz (weights, and one value for each input)."""
        nodes = [[n.op, list(n.inputs), n.output, dict(n.size)] for n in self.nodes]
        content = {
            "nodes": nodes,
            "output": self.output,
            "inputs": list(self.inputs),
            "owners": dict(self.owners),
        }
        (folder / "network.json").write_text(json.dumps(content))
        arrays: dict[str, Any] = {**self.weights, **inputs}
        np.savez(folder / "arrays.npz", **arrays)

    def with_sum_pools(self) -> Network:
        """The same function with sums for averages, divisors in the weights that follow.

        SPU's faster way to pool: nothing is left to truncate.
        """
        scale = dict.fromkeys(self.inputs, 1.0)
        weights, nodes = dict(self.weights), []
        for node in self.nodes:
            before = scale[node.inputs[0]]
            if node.op == "average_pool":
                scale[node.output] = before * node.size["kernel"] ** 2
                nodes.append(replace(node, op="sum_pool"))
                continue
            nodes.append(node)
            scale[node.output] = before if node.op == "flatten" else 1.0
            if node.op in ("conv", "dense"):
                weights[node.inputs[1]] = self.weights[node.inputs[1]] / np.float32(before)
            else:
                assert node.op == "flatten" or before == 1.0, "a divisor with no weights after it"
        return replace(self, nodes=tuple(nodes), weights=weights)


def _onnx_node(node: Node) -> NodeProto:
    inputs, outputs, size = list(node.inputs), [node.output], node.size
    match node.op:
        case "conv":
            window = {"strides": [size["stride"]] * 2, "pads": [size["pad"]] * 4}
            return helper.make_node("Conv", inputs, outputs, node.output, **window)
        case "average_pool" | "max_pool":
            window = {"strides": [size["stride"]] * 2, "pads": [size["pad"]] * 4}
            window["kernel_shape"] = [size["kernel"]] * 2
            if node.op == "max_pool":
                return helper.make_node("MaxPool", inputs, outputs, node.output, **window)
            return helper.make_node(
                "AveragePool", inputs, outputs, node.output, count_include_pad=1, **window
            )
        case "dense":
            return helper.make_node("Gemm", inputs, outputs, node.output, transB=1)
        case _:
            return helper.make_node(ONNX_NAMES[node.op], inputs, outputs, node.output)


class _Layers:
    """Layers one after another, each on the value before it unless told otherwise."""

    def __init__(self, name: str, shape: Shape) -> None:
        self.name, self.shape = name, shape
        self.rng = np.random.default_rng(SEED)
        self.nodes: list[Node] = []
        self.weights: dict[str, Array] = {}
        self.last = "x"

    def add(self, op: str, *others: str, source: str = "", **size: int) -> str:
        output = f"{op}{len(self.nodes)}"
        self.nodes.append(Node(op, (source or self.last, *others), output, size))
        self.last = output
        return output

    def conv(
        self,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        gain: float = 1.0,
        source: str = "",
    ) -> str:
        names = self._parameters((channels[1], channels[0], kernel, kernel), gain)
        return self.add("conv", *names, source=source, kernel=kernel, stride=stride, pad=pad)

    def dense(self, inputs: int, outputs: int) -> str:
        return self.add("dense", *self._parameters((outputs, inputs), 1.0))

    def pool(self, kernel: int, stride: int = 0, pad: int = 0) -> str:
        return self.add("average_pool", kernel=kernel, stride=stride or kernel, pad=pad)

    def done(self) -> Network:
        return Network(
            self.name, {"x": self.shape}, tuple(self.nodes), self.weights, owners={"x": 0}
        )

    def _parameters(self, shape: Shape, gain: float) -> tuple[str, str]:
        weight, bias = f"w{len(self.nodes)}", f"b{len(self.nodes)}"
        deviation = np.float32(gain * math.sqrt(2 / math.prod(shape[1:])))
        self.weights[weight] = deviation * self.rng.standard_normal(shape, dtype=np.float32)
        self.weights[bias] = np.float32(0.1) * self.rng.standard_normal(shape[0], dtype=np.float32)
        return weight, bias


def relu(elements: int) -> Network:
    """max(x, 0) on a vector of the first party."""
    node = Node("relu", ("x",), "y")
    return Network(f"ReLU {elements:,}", {"x": (elements,)}, (node,), {}, {"x": 0})


def softmax(rows: int, classes: int) -> Network:
    """Of rows of the first party."""
    node = Node("softmax", ("x",), "y")
    return Network(f"softmax {rows}x{classes}", {"x": (rows, classes)}, (node,), {}, {"x": 0})


def gelu(rows: int, columns: int) -> Network:
    """x Phi(x) on a matrix of the first party."""
    node = Node("gelu", ("x",), "y")
    return Network(f"GELU {rows}x{columns}", {"x": (rows, columns)}, (node,), {}, {"x": 0})


def layer_norm(rows: int, columns: int) -> Network:
    """Each row normalised, times a weight and plus a bias of the second party."""
    rng = np.random.default_rng(SEED)
    weights = {"w": 1 + np.float32(0.3) * rng.standard_normal(columns, dtype=np.float32)}
    weights["b"] = np.float32(0.3) * rng.standard_normal(columns, dtype=np.float32)
    node = Node("layer_norm", ("x", "w", "b"), "y")
    inputs = {"x": (rows, columns)}
    return Network(f"LayerNorm {rows}x{columns}", inputs, (node,), weights, {"x": 0})


def matmul(size: int) -> Network:
    """(x y) v for square x and y of two owners and a vector v of the second.

    The vector is there so that x y has to be truncated: a compiler may leave out the truncation
    of a product that is only revealed.
    """
    square, vector = (size, size), (size, 1)
    nodes = (Node("matmul", ("x", "y"), "xy"), Node("matmul", ("xy", "v"), "z"))
    inputs = {"x": square, "y": square, "v": vector}
    return Network(f"matmul {size} cubed", inputs, nodes, {}, {"x": 0, "y": 1, "v": 1})


def dense(inputs: int, outputs: int) -> Network:
    """One layer, the least that has all that a session has."""
    net = _Layers(f"dense {inputs} to {outputs}", (1, inputs))
    net.dense(inputs, outputs)
    return net.done()


def lenet(batch: int) -> Network:
    """conv 1-20 5x5, pool, conv 20-50 5x5, pool, fc 800-500-10 on 1x28x28."""
    net = _Layers(f"LeNet, batch {batch}", (batch, 1, 28, 28))
    for channels in ((1, 20), (20, 50)):
        net.conv(channels, 5)
        net.add("relu")
        net.pool(2)
    net.add("flatten")
    net.dense(800, 500)
    net.add("relu")
    net.dense(500, 10)
    return net.done()


def _alexnet(name: str, shape: Shape) -> _Layers:
    """Five convolutions with two pools, as Falcon has them: Wagh et al., PETS 2021."""
    net = _Layers(name, shape)
    net.conv((3, 96), 11, stride=4, pad=9)
    net.add("relu")
    net.pool(3, stride=2)
    net.conv((96, 256), 5, pad=1)
    net.add("relu")
    net.pool(2, stride=1)
    for channels in ((256, 384), (384, 384), (384, 256)):
        net.conv(channels, 3, pad=1)
        net.add("relu")
    return net


def _classifier(net: _Layers, sizes: Sequence[int]) -> Network:
    """Dense layers with a ReLU between two."""
    net.add("flatten")
    for inputs, outputs in pairwise(sizes[:-1]):
        net.dense(inputs, outputs)
        net.add("relu")
    net.dense(*sizes[-2:])
    return net.done()


def alexnet_cifar(batch: int) -> Network:
    """On 3x32x32, fc 256-256-256-10."""
    net = _alexnet(f"AlexNet-CIFAR, batch {batch}", (batch, 3, 32, 32))
    return _classifier(net, (256, 256, 256, 10))


def alexnet_imagenet(batch: int) -> Network:
    """On 3x224x224, one more pool to 6x6, fc 9216-4096-4096-1000."""
    net = _alexnet(f"AlexNet-ImageNet, batch {batch}", (batch, 3, 224, 224))
    net.pool(4)
    return _classifier(net, (9216, 4096, 4096, 1000))


VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)


def vgg16_cifar(batch: int, plan: Sequence[int] = VGG16) -> Network:
    """Thirteen convolutions of 3x3, a pool at each 0 of `plan`, fc 512-256-256-10, on 3x32x32."""
    net = _Layers(f"VGG16-CIFAR, batch {batch}", (batch, 3, 32, 32))
    channels = 3
    for width in plan:
        if not width:
            net.pool(2)
            continue
        net.conv((channels, width), 3, pad=1)
        net.add("relu")
        channels = width
    return _classifier(net, (512, 256, 256, 10))


def resnet50(batch: int) -> Network:
    """torchvision's shapes on 3x224x224, batch norms folded, the first pool an average."""
    net = _Layers(f"ResNet-50, batch {batch}", (batch, 3, 224, 224))
    net.conv((3, 64), 7, stride=2, pad=3)
    net.add("relu")
    net.pool(3, stride=2, pad=1)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            channels = _bottleneck(net, channels, 64 << stage, stride)
    net.pool(7)
    net.add("flatten")
    net.dense(2048, 1000)
    return net.done()


def _bottleneck(net: _Layers, channels: int, width: int, stride: int) -> int:
    """1x1, 3x3 and 1x1 convolutions, added to their input; returns the channels that leave."""
    source, leaving = net.last, 4 * width
    net.conv((channels, width), 1)
    net.add("relu")
    net.conv((width, width), 3, stride=stride, pad=1)
    net.add("relu")
    branch = net.conv((width, leaving), 1, gain=BRANCH_GAIN)
    shortcut = source
    if channels != leaving:
        shortcut = net.conv((channels, leaving), 1, stride=stride, gain=0.7, source=source)
    net.add("add", shortcut, source=branch)
    net.add("relu")
    return leaving
