"""Five small networks whose compilation is pinned: weights and samples are the same on any machine.

Numbers come from `Generator.random`, integers times 2^-53, scaled in IEEE arithmetic: no logarithm
or vector unit has a say in them. PyTorch's and NumPy's normal deviates differ in their last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from models import Array, model
from onnx import ModelProto, NodeProto, helper

import veilgraph
from veilgraph import Plan

SAMPLES = 2
THREE: Mapping[str, Any] = {"suite": "rep3"}
TWO: Mapping[str, Any] = {"suite": "additive", "parties": ["alice", "bob"], "dealer": "dave"}


def uniform(generator: np.random.Generator, shape: tuple[int, ...], bound: float) -> Array:
    """Float32 numbers between -bound and bound."""
    return ((2 * generator.random(shape) - 1) * bound).astype(np.float32)


class Layers:
    """Nodes in order, each named after its operator, and seeded weights."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.generator = np.random.default_rng(2024)

    def __call__(self, operator: str, *operands: str, **attributes: Any) -> str:
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, operands, [name], name=name, **attributes))
        return name

    def weight(self, *shape: int, bound: float) -> str:
        return self.holds(f"w{len(self.weights)}", uniform(self.generator, shape, bound))

    def near_one(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        return self.holds(name, 1 + uniform(self.generator, shape, 0.25))

    def holds(self, name: str, array: np.ndarray[Any, Any]) -> str:
        self.weights[name] = array
        return name

    def conv(self, x: str, channels: tuple[int, int], size: int, **attributes: Any) -> str:
        """Uniform weights under which activations stay of order one, and a bias."""
        fan_in = channels[0] * size * size
        kernel = self.weight(channels[1], channels[0], size, size, bound=math.sqrt(6 / fan_in))
        return self("Conv", x, kernel, self.weight(channels[1], bound=0.25), **attributes)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        kernel = self.weight(inputs, outputs, bound=math.sqrt(6 / inputs))
        return self("Add", self("MatMul", x, kernel), self.weight(outputs, bound=0.25))

    def done(self, *outputs: str) -> ModelProto:
        return model(self.nodes, {"x": self.shape}, outputs, self.weights)


def lenet() -> Layers:
    """Two convolutions with average pools, two dense layers, on 1x28x28."""
    net = Layers((1, 1, 28, 28))
    x = "x"
    for channels in ((1, 20), (20, 50)):
        x = net("Relu", net.conv(x, channels, 5))
        x = net("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net("Relu", net.dense(net("Flatten", x), 800, 500))
    net.dense(x, 500, 10)
    return net


def alexnet() -> Layers:
    """AlexNet-CIFAR of Falcon (Wagh et al., PETS 2021), an eighth of its channels, on 3x32x32."""
    net = Layers((1, 3, 32, 32))
    x = net("Relu", net.conv("x", (3, 12), 11, strides=[4, 4], pads=[9] * 4))
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = net("Relu", net.conv(x, (12, 32), 5, pads=[1] * 4))
    x = net("MaxPool", x, kernel_shape=[2, 2])
    for channels in ((32, 48), (48, 48), (48, 32)):
        x = net("Relu", net.conv(x, channels, 3, pads=[1] * 4))
    x = net("Flatten", x)
    x = net("Relu", net.dense(x, 32, 32))
    x = net("Relu", net.dense(x, 32, 32))
    net.dense(x, 32, 10)
    return net


WIDTH, HEADS, LENGTH = 32, 2, 8


def _heads(net: Layers, x: str, order: list[int]) -> str:
    """One projection of tokens, split into heads."""
    split = net("Reshape", net.dense(x, WIDTH, WIDTH), "split")
    return net("Transpose", split, perm=order)


def _encoder_block(net: Layers, x: str) -> str:
    """Attention, then two dense layers with a GELU between; normalised in front, added behind."""
    y = net("LayerNormalization", x, net.near_one(WIDTH), net.weight(WIDTH, bound=0.25))
    query, value = (_heads(net, y, [0, 2, 1, 3]) for _ in range(2))
    scores = net("MatMul", query, _heads(net, y, [0, 2, 3, 1]))
    shares = net("Softmax", net("Mul", scores, "quarter"), axis=-1)
    mixed = net("Transpose", net("MatMul", shares, value), perm=[0, 2, 1, 3])
    x = net("Add", x, net.dense(net("Reshape", mixed, "join"), WIDTH, WIDTH))
    y = net("LayerNormalization", x, net.near_one(WIDTH), net.weight(WIDTH, bound=0.25))
    y = net.dense(net("Gelu", net.dense(y, WIDTH, 2 * WIDTH)), 2 * WIDTH, WIDTH)
    return net("Add", x, y)


def encoder() -> Layers:
    """A block of a transformer on eight tokens of width 32, its mean, and five numbers by tanh."""
    net = Layers((1, LENGTH, WIDTH))
    net.holds("split", np.array([1, LENGTH, HEADS, WIDTH // HEADS]))
    net.holds("join", np.array([1, LENGTH, WIDTH]))
    net.holds("quarter", np.array(0.25, np.float32))
    net.holds("tokens", np.array([1]))
    x = net("ReduceMean", _encoder_block(net, "x"), "tokens", keepdims=0)
    net("Tanh", net.dense(x, WIDTH, 5))
    return net


def residual() -> Layers:
    """Batch norm, depthwise and pointwise convolutions around a sum, and seven other functions."""
    net = Layers((1, 3, 16, 16))
    x = net.conv("x", (3, 8), 3, pads=[1] * 4)
    mean, variance = net.weight(8, bound=0.25), net.near_one(8)
    x = net("BatchNormalization", x, net.near_one(8), net.weight(8, bound=0.25), mean, variance)
    x = net("MaxPool", net("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    kernel = net.weight(8, 1, 3, 3, bound=0.75)
    y = net("Conv", x, kernel, pads=[1] * 4, group=8)
    y = net("Mul", y, net("Sigmoid", y))
    x = net("Add", x, net("HardSwish", net.conv(y, (8, 8), 1)))
    x = net("AveragePool", net("LeakyRelu", x, alpha=0.125), kernel_shape=[2, 2], strides=[2, 2])
    pooled = net("Flatten", net("GlobalAveragePool", x))
    net("LogSoftmax", net.dense(pooled, 8, 4), axis=-1)
    net("Sqrt", net("GlobalMaxPool", net("Abs", x)))
    return net


@dataclass(frozen=True)
class Pinned:
    """A network, and the options that it is compiled with."""

    name: str
    make: Callable[[], Layers]
    options: Mapping[str, Any]

    def compiled(self, blur: float = 0.0) -> Plan:
        """Its plan; of weights that are changed by up to `blur` of their size."""
        net, generator = self.make(), np.random.default_rng(2)
        for name, array in net.weights.items():
            if array.dtype == np.float32 and array.size > 1:
                net.weights[name] = array * (1 + uniform(generator, array.shape, blur))
        proto = net.done(*(node.output[0] for node in self._last(net)))
        seen = uniform(np.random.default_rng(1), (SAMPLES, *net.shape), 2.0)
        plan, _ = veilgraph.compile(proto, calibrate={"x": seen}, **self.options)
        return plan

    def _last(self, net: Layers) -> list[NodeProto]:
        """The nodes whose results nothing reads."""
        read = {name for node in net.nodes for name in node.input}
        return [node for node in net.nodes if node.output[0] not in read]

    def __str__(self) -> str:
        return self.name


PINNED = (
    Pinned("lenet-rep3", lenet, THREE),
    Pinned("lenet-additive", lenet, TWO),
    Pinned("alexnet-rep3-wan", alexnet, {**THREE, "network": "wan"}),
    Pinned("encoder-rep3", encoder, THREE),
    Pinned("residual-additive-error", residual, {**TWO, "max_error": 0.01}),
)
