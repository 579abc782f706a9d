"""cleartext: one party computes the same fixed-point program on values that it sees.

No protection at all: the oracle of tests, and a way to try a model's encoding. It must be asked for
by name, and every input, weight and output must belong to its one party.
"""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Value, select
from veilgraph.ir.secret.exponential import Segments
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.types import Type
from veilgraph.targets.blocks import points
from veilgraph.targets.blocks.linear import LINEAR, product
from veilgraph.targets.blocks.maxima import max_pool_with, reduce_max_with
from veilgraph.targets.functions import exponential as exponentials
from veilgraph.targets.functions.clips import Clip
from veilgraph.targets.functions.masked_openings import MASKED_OPENINGS
from veilgraph.targets.functions.masked_series import of_mask, of_opened, summed
from veilgraph.targets.parties import Form, Member, Operation, Parties, Sharing
from veilgraph.targets.suite import Security, States, Suite


def share(p: Parties, source: Member, x: Value) -> Sharing:
    known = x if p.role(source) is not None else p.send(x, source, 0)
    return Sharing((p.at(known, 0),), Form.CLEAR)


def from_shares(p: Parties, name: str, shape: Shape, type: Type) -> Sharing:
    return Sharing((p.share(name, 0, 1, (0,), shape, type),), Form.CLEAR)


def from_state(p: Parties, name: str, shape: Shape, type: Type) -> Sharing:
    return Sharing((p.state(name, 0, 1, (0,), shape, type),), Form.CLEAR)


def keep(p: Parties, name: str, x: Sharing) -> None:
    p.keep(x[0], name, 0, 1, (0,))


def reveal(p: Parties, receiver: Member, x: Sharing) -> Value:
    return told(p, receiver, x[0])


def told(p: Parties, receiver: Member, value: Value) -> Value:
    """What the one party knows, at a receiver: itself, or a client."""
    if p.role(receiver) is not None:
        return value
    return p.at(p.send(value, 0, receiver, declared="reveal"), receiver)


def reveal_truncated(p: Parties, op: Operation, receiver: Member, x: Sharing) -> Value:
    return told(p, receiver, _truncated(x[0], int(op["bits"]), op.ring_bits))


CLEARTEXT = Suite(
    name="cleartext",
    security=Security(
        parties=(1, 1), adversary="none", threshold="the one party sees everything", coalition=0
    ),
    summary="one party, no protection: for tests",
    functions=MASKED_OPENINGS,
    share=share,
    from_shares=from_shares,
    reveal=reveal,
    reveal_truncated=reveal_truncated,
    states=States(from_state, keep),
    needs_consent=True,
)


@CLEARTEXT.protocol("mul", "matmul", "conv")
def bilinear(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    return Sharing((product(op, [(x[0], y[0])]),), Form.CLEAR)


def _truncated(x: Value, f: int, K: int) -> Value:
    """round(x / 2^f) of a signed x, shifted up by half the ring while no sign may be in the way."""
    k = x.type.bits
    half = (1 << f) >> 1
    shifted = (x + ((1 << (k - 1)) + half)) >> f
    return shifted.mod(K) - (1 << (k - 1 - f))


def _relu(x: Value) -> Value:
    zero = x.program.const(0, x.shape, x.type)
    return select(x.bits(x.type.bits - 1), zero, x)


@CLEARTEXT.protocol("truncate", "round_off", "lift")
def truncate(p: Parties, op: Operation, x: Sharing) -> Sharing:
    return x.map(lambda v: _truncated(v, int(op.attrs.get("bits", 0)), op.ring_bits))


@CLEARTEXT.protocol("truncate_relu")
def truncate_relu(p: Parties, op: Operation, x: Sharing) -> Sharing:
    return x.map(lambda v: _relu(_truncated(v, int(op["bits"]), op.ring_bits)))


@CLEARTEXT.protocol("step")
def step(p: Parties, op: Operation, x: Sharing) -> Sharing:
    return x.map(lambda v: (~v.bits(v.type.bits - 1)).to_words(op.ring_bits))


@CLEARTEXT.protocol("one_hot")
def one_hot(p: Parties, op: Operation, x: Sharing) -> Sharing:
    def stepped(p: Parties, op: Operation, y: Sharing) -> Sharing:
        bits: Sharing = step(p, op, y)
        return bits.map(lambda v: v.mod(op.ring_bits))

    return points.by_comparisons(p, op, x, stepped)


@CLEARTEXT.protocol("relu")
def relu(p: Parties, op: Operation, x: Sharing) -> Sharing:
    return x.map(_relu)


@CLEARTEXT.protocol("maximum")
def maximum(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    return Sharing((_relu(x[0] - y[0]) + y[0],), Form.CLEAR)


@CLEARTEXT.protocol("truncate_relu_pool")
def truncate_relu_pool(p: Parties, op: Operation, x: Sharing) -> Sharing:
    pooled: Sharing = max_pool_with(maximum)(p, op, truncate_relu(p, op, x))
    return pooled


@CLEARTEXT.protocol("masked_function")
def masked_function(p: Parties, op: Operation, x: Sharing, high: Sharing, low: Sharing) -> Sharing:
    """Under a mask that is zero."""
    series = FourierSeries.of(op.attrs)
    index = x[0].mod(series.window_bits)
    zero = p.program.const(0, index.shape, index.type)
    factors = of_mask(series, zero, (high, low))
    total = summed(of_opened(series, index, (high, low)), factors) + series.constant
    if series.slope:
        total = total + x[0].mod(series.sum_bits) * series.slope
    y = _truncated(total, int(op["bits"]), op.ring_bits)
    if (clip := Clip.of(op.attrs)) is not None:
        less = (x[0] - clip.edge).bits(x.type.bits - 1)
        y = select(less, p.program.const(clip.beyond, y.shape, y.type), y)
    return Sharing((y,), Form.CLEAR)


@CLEARTEXT.protocol("exp_sums")
def exp_sums(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """Under a mask that is zero."""
    segments, length = Segments.of(op.attrs), x.shape[-1]
    c = _index(segments, x[0].reshape((x.elements // length, length)))
    total = exponentials.sums(segments, c, _dealt(segments, c, tables), tables)
    return Sharing((total.reshape(op.shape),), Form.CLEAR)


@CLEARTEXT.protocol("masked_exp")
def masked_exp(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """Under a mask that is zero."""
    segments = Segments.of(op.attrs)
    c = _index(segments, x[0])
    y = exponentials.power(segments, c, _dealt(segments, c, tables), tables)
    return Sharing((_truncated(y, int(op["bits"]), op.ring_bits),), Form.CLEAR)


def _index(segments: Segments, x: Value) -> Value:
    return (x * segments.multiple).mod(segments.window_bits)


def _dealt(segments: Segments, c: Value, tables: Sequence[Sharing]) -> list[Value]:
    zero = c.program.const(0, c.shape, c.type)
    return exponentials.of_mask(segments, zero, tables)


CLEARTEXT.protocol("max_pool")(max_pool_with(maximum))
CLEARTEXT.protocol("reduce_max")(reduce_max_with(maximum))
CLEARTEXT.include(LINEAR)
