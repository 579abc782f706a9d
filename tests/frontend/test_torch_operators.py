"""One row a PyTorch module or function: the imported program computes what torch computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch, the extra `torch`, is not installed")

import torch
import torch.nn.functional as F
from torch import nn

from veilgraph.frontend.torch import import_torch
from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.graph import kind_of
from veilgraph.ir.meaning.graph import evaluate

IMAGE = (2, 4, 9, 8)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return self.function(*operands)


class Causal(nn.Module):
    """Attention with the mask that torch makes for transformers, as a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, attn_mask=self.mask, need_weights=False)[0]


@dataclass(frozen=True)
class Row:
    """A module or a function of inputs of these shapes; `kinds` are all graph operations."""

    name: str
    made: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = (IMAGE,)
    kinds: str = ""


def module(row: Row) -> nn.Module:
    torch.manual_seed(1)
    made = row.made if isinstance(row.made, nn.Module) else Function(row.made)
    return made.eval()


ROWS = [
    Row("conv", nn.Conv2d(4, 6, 3, padding=1), kinds="conv"),
    Row("depthwise", nn.Conv2d(4, 4, 3, groups=4, padding="same")),
    Row("conv1d", nn.Conv1d(4, 6, 3, padding=1), ((2, 4, 9),), "reshape reshape conv reshape"),
    Row("conv3d", nn.Conv3d(2, 3, 2, padding=1), ((1, 2, 3, 4, 5),)),
    Row("transposed_3d", nn.ConvTranspose3d(2, 3, 2, stride=2), ((1, 2, 2, 3, 2),)),
    Row("rounded", lambda x: x.floor() + x.ceil() * 2 + x.round() * 3 + x.trunc() * 5),
    Row("atan", torch.atan, kinds="atan"),
    Row("topk", lambda x: torch.topk(x, 3, dim=1).values),
    Row("transposed", nn.ConvTranspose2d(2, 3, 3, stride=2), ((1, 2, 4, 4),)),
    Row("linear", nn.Linear(8, 3), kinds="transpose matmul add"),
    Row("bilinear", nn.Bilinear(3, 4, 5), ((2, 3), (2, 4))),
    Row("batch_norm", nn.BatchNorm2d(4), kinds="batch_norm"),
    Row("batch_norm_1d", nn.BatchNorm1d(4), ((3, 4),), "batch_norm"),
    Row("layer_norm", nn.LayerNorm(8)),
    Row("group_norm", nn.GroupNorm(2, 4)),
    Row("instance_norm", nn.InstanceNorm2d(4, affine=True)),
    Row("instance_norm_plain", nn.InstanceNorm2d(4)),
    Row("lstm", nn.LSTM(4, 5, num_layers=2, bidirectional=True), ((3, 1, 4),)),
    Row("gru", nn.GRU(4, 5, batch_first=True), ((2, 3, 4),)),
    Row("rnn", nn.RNN(4, 5, nonlinearity="relu"), ((3, 1, 4),)),
    Row("rms_norm", nn.RMSNorm(8)),
    Row("local_response_norm", nn.LocalResponseNorm(3)),
    Row("attention", nn.MultiheadAttention(8, 2, batch_first=True), ((1, 5, 8),) * 3),
    Row("encoder", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), ((1, 5, 8),)),
    Row("scaled_dot_product", lambda q: F.scaled_dot_product_attention(q, q, q), ((1, 2, 5, 4),)),
    Row("causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), ((2, 5, 4),)),
    Row("causal_buffer", Causal(), ((1, 4, 8),)),
    Row(
        "triangle",
        lambda x: x.masked_fill(torch.ones(4, 4).tril() == 0, -math.inf).softmax(-1),
        ((2, 4, 4),),
    ),
    Row(
        "embedding",
        lambda x: nn.functional.embedding((x > 0).long() + 1, 3 * torch.eye(4)),
        ((2, 5),),
    ),
    Row("truths", lambda x: x + (x > 0).long().float()),
    Row("max_pool", nn.MaxPool2d(3, 2, 1), kinds="max_pool"),
    Row("avg_pool", nn.AvgPool2d(3, 2, 1), kinds="avg_pool"),
    Row("adaptive_pool", nn.AdaptiveAvgPool2d(1), kinds="avg_pool"),
    Row("upsample", nn.Upsample(scale_factor=2)),
    Row("pixel_shuffle", nn.PixelShuffle(2)),
    Row("prelu", nn.PReLU(4)),
    Row("prelu_single", nn.PReLU()),
    Row("relu_in_place", nn.ReLU(inplace=True), kinds="relu"),
    Row("relu6", nn.ReLU6()),
    Row("gelu", nn.GELU(), kinds="gelu"),
    Row("gelu_tanh", nn.GELU("tanh"), kinds="gelu"),
    Row("silu", nn.SiLU()),
    Row("mish", nn.Mish()),
    Row("elu", nn.ELU()),
    Row("selu", nn.SELU()),
    Row("hardswish", nn.Hardswish(), kinds="hardswish"),
    Row("softplus", nn.Softplus(), kinds="softplus"),
    Row("softmax", nn.Softmax(1), kinds="softmax"),
    Row("log_softmax", nn.LogSoftmax(-1), kinds="log_softmax"),
    Row("dropout", nn.Sequential(nn.ReLU(), nn.Dropout()), kinds="relu"),
    Row("glu", nn.GLU(1)),
    Row("clamp", lambda x: x.clamp(-1, 1), kinds="clip"),
    Row("clamp_min", lambda x: x.clamp_min(0.1) + x.clamp(min=0) + x.clamp_max(2.0)),
    Row("arithmetic", lambda x, y: (1 - x) * y + y / 3 - x**2, (IMAGE, (4, 1, 1))),
    Row("functions", lambda x: torch.log1p(x.abs()) + torch.erf(x).square() + torch.expm1(x)),
    Row("where", lambda x, y: torch.where(x > y, x, -y), (IMAGE, IMAGE)),
    Row("masked_fill", lambda x: x.masked_fill(x > 0, 2.0)),
    Row("totals", lambda x: x.sum() + x.mean() + x.sum((1, 2)).amax(0)),
    Row("variances", lambda x: x.var(1) + x.std(1) + x.var((1,), correction=0)),
    Row("norms", lambda x: F.normalize(x) + x.norm(p=1, dim=1, keepdim=True)),
    Row("maxima", lambda x: x.max(1)[0] + x.amin(1)),
    Row("argmax", lambda x: x.argmax(1), ((2, 7),)),
    Row("indices", lambda x: x[:, 1:3, ::2] + x[:, -1:, ::2]),
    Row("chunks", lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), kinds="slice slice concat"),
    Row("splits", lambda x: x.split(3, 2)[1] * 2),
    Row("roll", lambda x: torch.roll(x, (1, -2), (2, 3)) + torch.roll(x, 3)),
    Row("flip", lambda x: x.flip(3), kinds="slice"),
    Row("repeat", lambda x: x.repeat(2, 3), ((2, 4),)),
    Row("pad", lambda x: F.pad(x, (1, 2, 0, 1)), kinds="pad"),
    Row("cumsum", lambda x: x.cumsum(1)),
    Row("einsum", lambda x, y: torch.einsum("bij,bjk->bik", x, y), ((2, 3, 4), (2, 4, 5))),
    Row("stack", lambda x, y: torch.stack([x, y], 1), (IMAGE, IMAGE)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_module_matches_torch(row: Row) -> None:
    made = module(row)
    inputs = tuple(torch.randn(shape) for shape in row.shapes)
    graph = import_torch(made, inputs)
    graph.verify()
    with torch.no_grad():
        wanted = made(*(x.clone() for x in inputs))
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    feeds = {name: x.numpy() for name, x in zip(graph.inputs, inputs, strict=True)}
    found = next(iter(evaluate(graph, feeds).values()))
    np.testing.assert_allclose(found, wanted.float().numpy(), rtol=2e-5, atol=1e-5)
    assert found.shape == tuple(wanted.shape)
    if row.kinds:
        assert " ".join(kind_of(op) for op in graph.operations) == row.kinds


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda x: torch.linalg.vector_norm(x, 3, dim=1), "aten.linalg_vector_norm.default"),
        (lambda x: F.interpolate(x[None], (7, 5)), "aten.upsample_nearest2d.vec"),
    ],
    ids=["norm", "resize"],
)
def test_what_is_not_covered_is_refused_by_its_name(made: Any, named: str) -> None:
    row = Row("refused", made, ((5, 1, 4),))
    with pytest.raises(UnsupportedError) as caught:
        import_torch(module(row), tuple(torch.randn(shape) for shape in row.shapes))
    assert [entry.operator for entry in caught.value.offenders] == [named]
