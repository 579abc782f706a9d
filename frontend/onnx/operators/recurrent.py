"""Recurrent layers, unrolled: RNN, GRU, LSTM, linear attention, and causal convolutions.

Lengths are known, so a layer is one cell after another, each a few products and functions. What
the cells read of the input is one product, made before the first of them:

    x [T, N, I] W^T  ->  T parts [N, gates * H]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onnx import NodeProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Steps

FUNCTIONS = {  # by ONNX's names of activations: operator and what its attributes are called
    "relu": ("Relu", ()),
    "tanh": ("Tanh", ()),
    "sigmoid": ("Sigmoid", ()),
    "leakyrelu": ("LeakyRelu", ("alpha",)),
    "thresholdedrelu": ("ThresholdedRelu", ("alpha",)),
    "hardsigmoid": ("HardSigmoid", ("alpha", "beta")),
    "elu": ("Elu", ("alpha",)),
    "softplus": ("Softplus", ()),
    "softsign": ("Softsign", ()),
}
USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Direction:
    """One direction of a layer, its tensors without the axis of directions.

    Attributes:
        parts: what each time step's input contributes to the gates, in the order of time.
        recurrent: [H, gates * H].
        bias: of the recurrent product where it is not in `parts`, [gates * H], or "".
        hidden, cell: the state before the first step, "" for zeros; `cell` of an LSTM only.
        peepholes: of an LSTM, [3 * H], or "".
        functions: activations by place, then what else the cell needs.
    """

    s: Steps
    size: int
    parts: list[str]
    recurrent: str
    bias: str
    hidden: str
    cell: str
    peepholes: str
    functions: list[Callable[[str], str]]

    def gates(self, x: str, first: int, end: int) -> str:
        """Some of the gates of x [..., gates * H]; "" of nothing."""
        return self.s.slice(x, -1, first * self.size, end * self.size) if x else ""

    def split(self, x: str, count: int) -> list[str]:
        """The gates of x [..., count * H]."""
        return [self.gates(x, i, i + 1) for i in range(count)]

    def again(self, hidden: str, recurrent: str) -> str:
        """What the hidden state contributes to the gates of these weights; "" for nothing."""
        product = self.s("MatMul", hidden, recurrent) if hidden else ""
        return summed(self.s, product, self.bias)


def summed(s: Steps, *terms: str) -> str:
    """The sum of the terms that aren't "", which stands for zero."""
    total = ""
    for term in filter(None, terms):
        total = s("Add", total, term) if total else term
    return total


def layer(s: Steps) -> list[NodeProto]:
    """RNN, GRU and LSTM(X, W, R, B, sequence_lens, initial_h, initial_c, P)."""
    batch_first = s.attribute("layout", 0) == 1
    x, shape = s.operand(0), s.shape(0)
    if batch_first:
        x, shape = s("Transpose", x, perm=[1, 0, 2]), (shape[1], shape[0], shape[2])
    _require_full(s, shape[0])
    directions = s.shape(1)[0]
    outputs, hidden, cells = [], [], []
    for number in range(directions):
        backwards = s.attribute("direction", "forward") == "reverse" or number == 1
        direction = _direction(s, x, shape, number, batch_first)
        every, cell = _run(s, direction, backwards)
        outputs.append(s("Concat", *(_raised(s, h, 0) for h in every), axis=0))
        hidden.append(every[0] if backwards else every[-1])
        cells.append(cell)
    y = s("Concat", *(_raised(s, each, 1) for each in outputs), axis=1)
    last = [
        s("Concat", *(_raised(s, h, 0) for h in each), axis=0)
        for each in (hidden, cells)
        if each[0]
    ]
    if batch_first:
        y = s("Transpose", y, perm=[2, 0, 1, 3])
        last = [s("Transpose", each, perm=[1, 0, 2]) for each in last]
    return s.finish(y, *last)


def _raised(s: Steps, x: str, axis: int) -> str:
    return s("Unsqueeze", x, s.integers(axis))


def _require_full(s: Steps, length: int) -> None:
    if s.operand(4) and not (s.public(4, "sequence lengths") == length).all():
        raise Unsupported("Its sequences have different lengths.", "Pad them, all of one length.")


def _run(s: Steps, direction: Direction, backwards: bool) -> tuple[list[str], str]:
    """The hidden state after each step, in the order of time, and the last cell."""
    step = {"RNN": _rnn_cell, "GRU": _gru_cell, "LSTM": _lstm_cell}[s.node.op_type]
    hidden, cell, every = direction.hidden, direction.cell, []
    for part in reversed(direction.parts) if backwards else direction.parts:
        hidden, cell = step(direction, part, hidden, cell)
        every.append(hidden)
    return every[::-1] if backwards else every, cell


def _direction(
    s: Steps, x: str, shape: tuple[int, ...], number: int, batch_first: bool
) -> Direction:
    kind, size = s.node.op_type, s.shape(2)[-1]
    gates = GATES[kind] * size

    def own(index: int) -> str:
        return _row(s, s.operand(index), 0, number) if s.operand(index) else ""

    def state(index: int) -> str:
        if not s.operand(index):
            return ""
        return _row(s, s.operand(index), int(batch_first), number)

    weights, recurrent = (s("Transpose", own(index), perm=[1, 0]) for index in (1, 2))
    product, biases, bias = s("MatMul", x, weights), own(3), ""
    if biases:
        of_input, of_state = (s.slice(biases, 0, i * gates, (i + 1) * gates) for i in range(2))
        if s.attribute("linear_before_reset", 0):  # a gate multiplies what the state contributes
            bias = of_state
        else:
            of_input = s("Add", of_input, of_state)
        product = s("Add", product, of_input)
    return Direction(
        s,
        size,
        [_row(s, product, 0, time) for time in range(shape[0])],
        recurrent,
        bias,
        state(5),
        state(6) if kind == "LSTM" else "",
        own(7) if kind == "LSTM" else "",
        _activations(s, number),
    )


def _row(s: Steps, x: str, axis: int, index: int) -> str:
    """x at one place of an axis, which goes."""
    return s("Squeeze", s.slice(x, axis, index, index + 1), s.integers(axis))


def _activations(s: Steps, number: int) -> list[Callable[[str], str]]:
    """The functions of one direction, each clipped before it where the layer asks for it."""
    usual = USUAL[s.node.op_type]
    given = s.attribute("activations", usual * s.shape(1)[0])
    numbers = {name: iter(s.attribute(f"activation_{name}", [])) for name in ("alpha", "beta")}
    found = [_activation(s, name, numbers) for name in given]
    return found[number * len(usual) : (number + 1) * len(usual)]


def _activation(s: Steps, name: str, numbers: dict[str, Iterator[float]]) -> Callable[[str], str]:
    if name.lower() not in FUNCTIONS:
        raise Unsupported(f"Its activation {name} isn't supported.")
    operator, named = FUNCTIONS[name.lower()]
    given = {key: next(numbers[key], None) for key in named}
    attributes = {key: value for key, value in given.items() if value is not None}
    bound = s.attribute("clip", 0.0)

    def activate(x: str) -> str:
        if bound:
            x = s("Clip", x, s.numbers(-bound), s.numbers(bound))
        return s(operator, x, **attributes)

    return activate


def _rnn_cell(d: Direction, part: str, hidden: str, cell: str) -> tuple[str, str]:
    """h = f(x W + h R + b)."""
    return d.functions[0](summed(d.s, part, d.again(hidden, d.recurrent))), ""


def _gru_cell(d: Direction, part: str, hidden: str, cell: str) -> tuple[str, str]:
    """h = (1 - z) n + z h, of gates z, r and n = g(x W + r (h R + b)), or g(x W + (r h) R + b)."""
    s, (f, g) = d.s, d.functions
    is_linear = s.attribute("linear_before_reset", 0)
    again = d.again(hidden, d.recurrent if is_linear else d.gates(d.recurrent, 0, 2))
    z, r = d.split(f(summed(s, d.gates(part, 0, 2), d.gates(again, 0, 2))), 2)
    if is_linear:
        fresh = s("Mul", r, d.gates(again, 2, 3)) if again else ""
    else:
        last = d.gates(d.recurrent, 2, 3)
        fresh = s("MatMul", s("Mul", r, hidden), last) if hidden else ""
    n = g(summed(s, d.gates(part, 2, 3), fresh))
    if not hidden:
        return s("Sub", n, s("Mul", z, n)), ""
    return s("Add", n, s("Mul", z, s("Sub", hidden, n))), ""


def _lstm_cell(d: Direction, part: str, hidden: str, cell: str) -> tuple[str, str]:
    """c = f c + i g, h = o t(c); gates i, o, f look at the cell through peepholes.

    Those that look at nothing are one function of all their columns.
    """
    s, (f, g, t) = d.s, d.functions
    gates = summed(s, part, d.again(hidden, d.recurrent))
    holes = d.split(d.peepholes, 3) if d.peepholes else []
    is_coupled = s.attribute("input_forget", 0)
    count = 3 if cell and not is_coupled else 2
    blind = [] if holes else d.split(f(d.gates(gates, 0, count)), count)

    def gate(index: int, seen: str) -> str:
        if blind:
            return blind[index]
        hole = s("Mul", holes[index], seen) if seen else ""
        return f(summed(s, d.gates(gates, index, index + 1), hole))

    i = gate(0, cell)
    kept = ""
    if cell:
        kept = s.plus(s.times(i, -1.0), 1.0) if is_coupled else gate(2, cell)
        kept = s("Mul", kept, cell)
    cell = summed(s, kept, s("Mul", i, g(d.gates(gates, 3, 4))))
    return s("Mul", gate(1, cell), t(cell)), cell


def linear_attention(s: Steps) -> list[NodeProto]:
    """A state [d, m] a head, S = e^g S + k v^T for each token; what it gives is scale q S.

    With a delta rule v is corrected by what the state holds for k: v = beta (v - k S).
    """
    queries, keys = s.attribute("q_num_heads", 0), s.attribute("kv_num_heads", 0)
    batch, length, width = s.shape(0)
    size, values = width // queries, s.shape(2)[2] // keys
    scale = s.attribute("scale", 0.0) or 1 / math.sqrt(size)
    q = _tokens(s, s.times(s.operand(0), scale), (batch, length, keys, queries // keys, size))
    k = _tokens(s, s.operand(1), (batch, length, keys, 1, size))
    v = _tokens(s, s.operand(2), (batch, length, keys, 1, values))
    kept = _decays(s, batch, length, keys)
    rates = _tokens(s, s.operand(5), (batch, length, s.shape(5)[2], 1, 1)) if s.operand(5) else ""
    state, rows = s.operand(3), []
    for time in range(length):
        if kept and state:
            state = s("Mul", state, _row(s, kept, 0, time))
        key, value = _row(s, k, 0, time), _row(s, v, 0, time)
        if rates:
            value = s("Sub", value, s("MatMul", key, state)) if state else value
            value = s("Mul", _row(s, rates, 0, time), value)
        written = s("MatMul", s("Transpose", key, perm=[0, 1, 3, 2]), value)
        state = s("Add", state, written) if state else written
        rows.append(_raised(s, s("MatMul", _row(s, q, 0, time), state), 0))
    together = s("Transpose", s("Concat", *rows, axis=0), perm=[1, 0, 2, 3, 4])
    return s.finish(s.reshape(together, (batch, length, queries * values)), state)


def _tokens(s: Steps, x: str, shape: tuple[int, ...]) -> str:
    """x [batch, length, ...] in this shape, with the tokens first."""
    return s("Transpose", s.reshape(x, shape), perm=[1, 0, 2, 3, 4])


def _decays(s: Steps, batch: int, length: int, keys: int) -> str:
    """e^g, [length, batch, key heads, size or 1, 1]; "" where nothing decays."""
    if not s.operand(4):
        return ""
    width = s.shape(4)[2] // keys
    return _tokens(s, s("Exp", s.operand(4)), (batch, length, keys, width, 1))


def causal_convolution(s: Steps) -> list[NodeProto]:
    """Each channel with a kernel of its own over what came before, the state ahead of it."""
    batch, channels, _ = s.shape(0)
    reach = s.shape(1)[2] - 1
    past = s.operand(3) or (s.numbers([[[0.0] * reach] * channels] * batch) if reach else "")
    whole = s("Concat", past, s.operand(0), axis=2) if past else s.operand(0)
    biases = [s.operand(2)] if s.operand(2) else []
    y = s("Conv", whole, s.operand(1), *biases, group=channels)
    if s.attribute("activation", "none") in ("silu", "swish"):
        y = s("Mul", y, s("Sigmoid", y))
    length = s.shape(0)[2] + reach
    return s.finish(y, s.slice(whole, 2, length - reach, length) if reach else whole)
