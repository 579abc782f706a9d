"""Attention, rotary embeddings and root mean square normalisation, as simpler ONNX nodes.

    scores = scale Q K^T        tanh-capped where asked, then masked
    Y = softmax(scores) V

What is masked gets MASKED less before the softmax, which makes its exponential nothing: minus
infinity is no number of a ring, and a pass bounds this one. Causal and window masks follow from the
graph, and are public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Steps
from veilgraph.ir.graph.masks import FAR, MASKED

MASKED_SCORES = 2  # what qk_matmul_output_mode asks for


@dataclass(frozen=True)
class Heads:
    """Extents: batch, heads of queries and of keys, lengths of both, sizes of a head."""

    batch: int
    queries: int
    keys: int
    length: int
    total: int
    size: int
    value_size: int


def attention(s: Steps) -> list[NodeProto]:
    """Attention(Q, K, V, mask, past_key, past_value, nonpad_kv_seqlen), opset 23 on."""
    flat = len(s.shape(0)) == 3
    q, k, v = (_by_head(s, index, flat) for index in range(3))
    if s.operand(4):
        k, v = (s("Concat", s.operand(i), x, axis=2) for i, x in ((4, k), (5, v)))
    heads = _heads(s, flat)
    scores = _scores(s, q, k, heads)
    capped = _capped(s, scores)
    masked, allowed = _masked(s, capped, heads)
    probabilities = s("Softmax", masked, axis=-1)
    for mask in allowed:  # a row of which nothing is allowed is zero
        probabilities = s("Mul", probabilities, mask)
    y = _mixed(s, probabilities, v, heads)
    if flat:
        y = s("Transpose", y, perm=[0, 2, 1, 3])
        y = s.reshape(y, (heads.batch, heads.length, heads.queries * heads.value_size))
    return s.finish(y, k, v, _told(s, scores, capped, masked, probabilities))


def _by_head(s: Steps, index: int, flat: bool) -> str:
    """Operand `index` as [batch, heads, length, size]."""
    x = s.operand(index)
    if not flat:
        return x
    batch, length, width = s.shape(index)
    heads = s.attribute("kv_num_heads" if index else "q_num_heads", 0)
    if heads < 1 or width % heads:
        raise Unsupported(f"Its width, {width}, isn't that of {heads} heads.")
    apart = s.reshape(x, (batch, length, heads, width // heads))
    return s("Transpose", apart, perm=[0, 2, 1, 3])


def _heads(s: Steps, flat: bool) -> Heads:
    q, k, v = (s.shape(index) for index in range(3))
    past = s.shape(4)[2] if s.operand(4) else 0
    if flat:
        queries, keys = s.attribute("q_num_heads", 0), s.attribute("kv_num_heads", 0)
        sizes = (q[2] // queries, v[2] // keys)
        return Heads(q[0], queries, keys, q[1], past + k[1], *sizes)
    return Heads(q[0], q[1], k[1], q[2], past + k[2], q[3], v[3])


def _scores(s: Steps, q: str, k: str, heads: Heads) -> str:
    """scale Q K^T, [batch, heads of queries, length, total]; several queries share a key's head."""
    scale = s.attribute("scale", 0.0) or 1 / math.sqrt(heads.size)
    turned = s("Transpose", k, perm=[0, 1, 3, 2])
    if heads.queries == heads.keys:
        return s.times(s("MatMul", q, turned), scale)
    q, turned = _grouped(s, q, heads, heads.size), _alone(s, turned, heads, heads.size, heads.total)
    scores = s.times(s("MatMul", q, turned), scale)
    return s.reshape(scores, (heads.batch, heads.queries, heads.length, heads.total))


def _mixed(s: Steps, probabilities: str, v: str, heads: Heads) -> str:
    if heads.queries == heads.keys:
        return s("MatMul", probabilities, v)
    grouped = _grouped(s, probabilities, heads, heads.total)
    y = s("MatMul", grouped, _alone(s, v, heads, heads.total, heads.value_size))
    return s.reshape(y, (heads.batch, heads.queries, heads.length, heads.value_size))


def _grouped(s: Steps, x: str, heads: Heads, width: int) -> str:
    """[batch, key heads, queries a key, length x width]: rows of one key's queries together."""
    rows = heads.queries // heads.keys * heads.length
    return s.reshape(x, (heads.batch, heads.keys, rows, width))


def _alone(s: Steps, x: str, heads: Heads, rows: int, columns: int) -> str:
    return s.reshape(x, (heads.batch, heads.keys, rows, columns))


def _capped(s: Steps, scores: str) -> str:
    cap = s.attribute("softcap", 0.0)
    return s.times(s("Tanh", s.times(scores, 1 / cap)), cap) if cap else scores


def _told(s: Steps, *stages: str) -> str:
    """The fourth output: one of scores, capped scores, masked ones, probabilities."""
    mode = int(s.attribute("qk_matmul_output_mode", 0))
    hides = s.operand(6) or s.attribute("is_causal", 0)
    hides = hides or (s.operand(3) and s.element(3) == TensorProto.BOOL)
    if mode == MASKED_SCORES and hides and len(s.node.output) > 3 and s.node.output[3]:
        raise Unsupported(
            "It gives masked scores, which are minus infinity.", "Give probabilities."
        )
    return stages[mode]


def _masked(s: Steps, scores: str, heads: Heads) -> tuple[str, list[str]]:
    """Scores less MASKED where they are masked; and truth values, as numbers, of what isn't."""
    allowed = []
    if s.operand(3):
        mask, whole = s.operand(3), s.shape(3)
        missing = heads.total - whole[-1]
        if s.element(3) == TensorProto.BOOL:
            truth = s("Cast", mask, to=TensorProto.FLOAT)
            allowed.append(_widened(s, truth, len(whole), missing, 0.0))
        else:
            scores = s("Add", scores, _widened(s, mask, len(whole), missing, -FAR))
    frontier = _frontier(s, heads)
    if not frontier.all():
        allowed.append(s.numbers(frontier))
    if s.operand(6):
        allowed.extend(_unpadded(s, heads))
    for mask in allowed:
        scores = s("Add", scores, s.times(s.plus(mask, -1.0), MASKED))
    rows_vanish = not frontier.any(axis=-1).all()
    return scores, allowed if rows_vanish or len(allowed) > 1 or s.operand(3) else []


def _widened(s: Steps, mask: str, rank: int, missing: int, value: float) -> str:
    """A mask that says nothing of the last keys forbids them."""
    if not missing:
        return mask
    pads = s.integers(*(0,) * (2 * rank - 1), missing)
    return s("Pad", mask, pads, s.numbers(value))


def _frontier(s: Steps, heads: Heads) -> NDArray[np.float32]:
    """[length, total]: 1 where position and window let a query see a key."""
    before = s.shape(4)[2] if s.operand(4) else 0
    queries = np.arange(heads.length)[:, None] + before
    behind = queries - np.arange(heads.total)[None, :]
    seen = np.ones(behind.shape, bool)
    left, right = (s.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    if s.operand(6):  # all of them depend on how many keys are no padding
        return seen.astype(np.float32)
    if s.attribute("is_causal", 0):
        seen &= behind >= 0
    if left >= 0:
        seen &= behind <= left
    if right >= 0:
        seen &= -behind <= right
    return seen.astype(np.float32)


def _unpadded(s: Steps, heads: Heads) -> Iterator[str]:
    """[batch, 1, length or 1, total], numbers: 1 for keys that are no padding, and are in sight.

    The last query is the last of a batch's n keys that are no padding: query i sees key j where
    i + n - length >= j, and within the window.
    """
    count = s.reshape(s("Cast", s.operand(6), to=TensorProto.INT64), (heads.batch, 1, 1, 1))
    keys = np.arange(heads.total).reshape(1, 1, 1, -1)
    ahead = keys - np.arange(heads.length).reshape(1, 1, -1, 1) + heads.length
    left, right = (s.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    least, most = [keys + 1], []
    if s.attribute("is_causal", 0):
        least.append(ahead)
    if right >= 0:
        least.append(ahead - right)
    if left >= 0:
        most.append(ahead + left)
    for operator, bounds in (("GreaterOrEqual", least), ("LessOrEqual", most)):
        for bound in bounds:
            truth = s(operator, count, s.numbers(bound, np.int64))
            yield s("Cast", truth, to=TensorProto.FLOAT)


def rms_normalization(s: Steps) -> list[NodeProto]:
    """gamma x / sqrt(mean x^2 + epsilon), the mean over all axes from `axis` on."""
    x, rank = s.operand(0), len(s.shape(0))
    axes = s.integers(*range(s.attribute("axis", -1) % rank, rank))
    square = s("ReduceMean", s("Mul", x, x), axes, keepdims=1)
    root = s("Sqrt", s.plus(square, s.attribute("epsilon", 1e-5)))
    return s.finish(s("Mul", s("Div", x, root), s.operand(1)))


def rotary_embedding(s: Steps) -> list[NodeProto]:
    """Pairs (a, b) of each head turned by an angle: (a cos - b sin, a sin + b cos)."""
    shape = s.shape(0)
    x, heads = s.operand(0), s.attribute("num_heads", 0)
    if len(shape) == 4:  # [batch, heads, length, size]
        x, (batch, heads, length, size) = s("Transpose", x, perm=[0, 2, 1, 3]), shape
    else:
        batch, length, size = shape[0], shape[1], shape[2] // max(heads, 1)
        x = s.reshape(x, (batch, length, heads, size))
    turned = s.attribute("rotary_embedding_dim", 0) or size
    cos, sin = (_angles(s, index, turned // 2) for index in (1, 2))
    a, b = _pairs(s, x, turned)
    first = s("Sub", s("Mul", a, cos), s("Mul", b, sin))
    second = s("Add", s("Mul", a, sin), s("Mul", b, cos))
    if s.attribute("interleaved", 0):
        columns = (s("Unsqueeze", part, s.integers(4)) for part in (first, second))
        y = s.reshape(s("Concat", *columns, axis=4), (batch, length, heads, turned))
    else:
        y = s("Concat", first, second, axis=3)
    if turned < size:
        y = s("Concat", y, s.slice(x, 3, turned, size), axis=3)
    last = s("Transpose", y, perm=[0, 2, 1, 3]) if len(shape) == 4 else s.reshape(y, shape)
    return s.finish(last)


def _angles(s: Steps, index: int, half: int) -> str:
    """Cosines or sines, [batch or 1, length, 1, half]."""
    cache = s.operand(index)
    if s.operand(3):
        cache = s("Gather", cache, s.operand(3), axis=0)
    if s.shape(index)[-1] != half:
        raise Unsupported(f"Its caches hold {s.shape(index)[-1]} angles, not {half}.")
    return s("Unsqueeze", cache, s.integers(2))


def _pairs(s: Steps, x: str, turned: int) -> tuple[str, str]:
    """The two numbers of each pair: neighbours, or those half of what is turned apart."""
    if s.attribute("interleaved", 0):
        return s.slice(x, 3, 0, turned, 2), s.slice(x, 3, 1, turned, 2)
    return s.slice(x, 3, 0, turned // 2), s.slice(x, 3, turned // 2, turned)
