"""One row a PyTorch module or function: the imported program computes what torch computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch, the extra `torch`, is not installed")

import torch
import torch.nn.functional as F
from torch import nn
from torch_cases import Function, assert_as_torch

from veilgraph.frontend.torch.importer import import_torch
from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.graph.program import kind_of

IMAGE = (2, 4, 9, 8)


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
    """A module or a function of inputs of these shapes; `kinds` are all graph operations, and
    `within` is the error of an approximation.
    """

    name: str
    made: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = (IMAGE,)
    kinds: str = ""
    within: float = 1e-5


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

POOL = "constant constant transpose matmul transpose matmul"
GRID = 1.2 * torch.sin(torch.arange(48.0)).reshape(2, 3, 4, 2)
BOX_GRID = 1.2 * torch.sin(torch.arange(72.0)).reshape(2, 3, 2, 2, 3)


def resized(size: Any = None, **given: Any) -> Callable[..., torch.Tensor]:
    return lambda x: F.interpolate(x, size, **given)


def overwritten(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:3] = 0.5
    y[:, [0, 2]] = y[:, [1, 1]] * 2
    y[y < -1] = -1
    y[0, 3] += 2
    return y


ROWS += [
    Row("half", lambda x: x.half().float() - x, kinds="sub", within=1e-2),
    Row("double", lambda x: (x.double() * 2 + torch.ones(8, dtype=torch.float64)).float()),
    Row("pool_3", nn.AdaptiveAvgPool2d(3), ((1, 4, 8, 8),), POOL),
    Row("pool_uneven", nn.AdaptiveAvgPool1d(3), ((1, 4, 8),)),
    Row("pool_box", nn.AdaptiveAvgPool3d((2, 3, 1)), ((1, 2, 5, 4, 3),)),
    Row("pool_largest", nn.AdaptiveMaxPool2d((3, 4)), ((1, 4, 8, 8),)),
    Row("max_pool_up", nn.MaxPool2d(3, 2, 1, ceil_mode=True), kinds="max_pool"),
    Row("avg_pool_up", nn.AvgPool2d(3, 2, 1, ceil_mode=True)),
    Row("avg_pool_up_inside", nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)),
    Row("avg_pool_up_1d", nn.AvgPool1d(4, 3, 1, ceil_mode=True), ((2, 3, 9),)),
    Row("bilinear_resize", nn.UpsamplingBilinear2d(scale_factor=2)),
    Row("bilinear_half", resized(scale_factor=1.7, mode="bilinear")),
    Row("bilinear_size", resized((5, 13), mode="bilinear")),
    Row("bilinear_smooth", resized((5, 13), mode="bilinear", antialias=True)),
    Row("linear_resize", resized(scale_factor=3.0, mode="linear"), ((2, 3, 7),)),
    Row("trilinear_resize", resized(scale_factor=2.0, mode="trilinear"), ((1, 2, 3, 4, 5),)),
    Row("bicubic", resized(scale_factor=2, mode="bicubic")),
    Row("bicubic_corners", resized((5, 13), mode="bicubic", align_corners=True)),
    Row("bicubic_smooth", resized((5, 13), mode="bicubic", antialias=True)),
    Row("nearest_exact", resized(scale_factor=1.5, mode="nearest-exact")),
    Row("nearest_part", resized(scale_factor=1.5, mode="nearest")),
    Row("nearest_size", resized((7, 5), mode="nearest")),
    Row("nearest_1d", resized(scale_factor=2, mode="nearest"), ((2, 3, 7),)),
    Row("nearest_3d", resized(scale_factor=2, mode="nearest"), ((1, 2, 3, 4, 5),)),
    Row("grid", lambda x: F.grid_sample(x, GRID, align_corners=False)),
    Row(
        "grid_of_text",
        lambda x: F.grid_sample(
            x,
            F.affine_grid(0.7 * torch.eye(2, 3)[None], (1, 4, 3, 5), align_corners=True),
            align_corners=True,
            mode="nearest",
        ),
        ((1, 4, 9, 8),),
    ),
    *(
        Row(
            f"grid_of_a_volume_{mode}_{padding}",
            lambda x, mode=mode, padding=padding, aligned=aligned: F.grid_sample(
                x, BOX_GRID, mode, padding, aligned
            ),
            ((2, 3, 4, 5, 3),),
        )
        for mode, aligned in (("bilinear", True), ("nearest", False))
        for padding in ("zeros", "border", "reflection")
    ),
    Row("reflected", lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect")),
    Row("replicated", lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate")),
    Row("circular", nn.Conv2d(4, 3, 3, padding=1, padding_mode="circular")),
    Row("one_hot", lambda x: F.one_hot((x > 0).long() + 1, 4).float(), ((2, 5),)),
    Row(
        "scatter",
        lambda x: torch.zeros(2, 6).scatter(1, torch.tensor([[0, 3, 5], [1, 2, 0]]), x),
        ((2, 3),),
    ),
    Row("scatter_number", lambda x: x.scatter(1, torch.tensor([[0, 2], [1, 2]]), 1.5), ((2, 3),)),
    Row(
        "scatter_add",
        lambda x: torch.ones(2, 6).scatter_add(1, torch.tensor([[0, 3, 3], [1, 2, 0]]), x),
        ((2, 4),),
    ),
    Row(
        "index_add",
        lambda x: torch.ones(2, 6).index_add(1, torch.tensor([0, 3, 3]), x, alpha=2),
        ((2, 3),),
    ),
    Row(
        "index_copy",
        lambda x: torch.ones(2, 6).index_copy(1, torch.tensor([0, 3, 5]), x),
        ((2, 3),),
    ),
    Row("index_fill", lambda x: x.index_fill(1, torch.tensor([0, 2]), 7.0), ((2, 3),)),
    Row(
        "index_put",
        lambda x: x.index_put(
            (torch.tensor([0, 1, 1]), torch.tensor([0, 2, 2])),
            torch.tensor([1.0, 2.0, 3.0]),
            accumulate=True,
        ),
        ((2, 3),),
    ),
    Row("overwritten", overwritten, ((2, 6),)),
    Row(
        "one_index",
        lambda x: x[:, [2, -1, 1]] + x[:, torch.tensor([[0, 1, 2]])][:, 0],
        ((2, 6, 3),),
    ),
    Row(
        "two_indices",
        lambda x: x[[0, 1], [2, -1]] + x[:, :, 0][[1, 0], [0, 0]][:, None],
        ((2, 6, 3),),
    ),
    Row("taken", lambda x: x.take(torch.tensor([0, 5, 3])), ((2, 6),)),
    Row("taken_along", lambda x: x.take_along_dim(torch.tensor([[0, 5, 3]]), 1), ((2, 6),)),
    Row("triangles", lambda x: x.tril() + 2 * x.triu(1), ((2, 5, 4),)),
    Row(
        "diagonals",
        lambda x: torch.einsum("bii->bi", x) + x.diagonal(1, 1, 2).sum() + torch.trace(x[0]),
        ((2, 4, 4),),
    ),
    Row("of_diagonals", lambda x: torch.diag_embed(x, 1) + torch.diag(x[0], -1), ((2, 4),)),
    Row("columns", nn.Unfold(3, dilation=(1, 2), padding=1, stride=2)),
    Row("image", nn.Fold((4, 5), 2, padding=1, stride=(2, 1)), ((2, 12, 18),)),
    Row("windows", lambda x: x.unfold(1, 3, 2), ((2, 9, 3),)),
    Row(
        "bag",
        lambda x: F.embedding_bag(torch.tensor([[0, 2], [3, 4]]), 3 * torch.eye(5)) + x,
        ((2, 5),),
    ),
    Row(
        "bag_of_data",
        lambda x: F.embedding_bag((x > 0).long(), torch.ones(5, 3).cumsum(0), mode="sum"),
        ((2, 4),),
    ),
    Row("shuffled", lambda x: F.pixel_unshuffle(F.channel_shuffle(x, 2), 2), ((1, 4, 4, 6),)),
    Row("products", lambda x: x.prod() + x.prod(1) + x.prod(0, keepdim=True).sum(), ((3, 5),)),
    Row("running_products", lambda x: x.cumprod(1), ((2, 5),)),
    Row(
        "quotients",
        lambda x, y: x // 0.7 + x // (y.abs() + 0.5) + x.div(0.7, rounding_mode="trunc"),
        ((2, 5), (2, 5)),
    ),
    Row(
        "remainders",
        lambda x, y: (
            x % -1.3 + x % (y.abs() + 0.5) + torch.fmod(x, 1.3) + torch.fmod(x, y.abs() + 0.5)
        ),
        ((2, 5), (2, 5)),
    ),
    Row(
        "whole_quotients",
        lambda x: (
            (9 * x).long() // 3
            + (9 * x).long() % 4
            + torch.fmod((9 * x).long(), 3)
            + (9 * x).long() // ((x > 0).long() * 4 - 2)
        ),
        ((4, 5),),
    ),
    Row(
        "truths_together",
        lambda x, y: ((x > 0) & (y > 0) | ~(x > 1) ^ (y < 0)).float(),
        ((2, 5), (2, 5)),
    ),
    Row(
        "any_all",
        lambda x: (x > 0).any(1).float() + (x > -1).all(1) + (x > 0).any() + x.all(),
        ((2, 5),),
    ),
    Row("log_sums", lambda x: x.logsumexp(1) + x.logsumexp((0, 1)), ((2, 5),)),
    Row("log_sum_of_two", torch.logaddexp, ((2, 5), (2, 5))),
    Row("cosine", lambda x, y: F.cosine_similarity(x, y), ((2, 5), (2, 5))),
    Row(
        "distances",
        lambda x, y: torch.cdist(x, y) + F.pairwise_distance(x, x + y[0]).sum(),
        ((3, 5), (4, 5)),
    ),
    Row(
        "powers_of_two",
        lambda x: torch.exp2(x) + 3.0**x + torch.log2(x.abs() + 1) + torch.log10(x.abs() + 1),
        ((2, 5),),
    ),
    Row("powers", lambda x, y: x**5 + x**7 + x.abs() ** y, ((2, 5), (2, 5)), within=1e-4),
    Row("spreads", lambda x: sum(torch.var_mean(x, 1)) + sum(torch.std_mean(x, 1)), ((2, 5),)),
    Row("outer", torch.outer, ((3,), (4,))),
    Row("kron", torch.kron, ((2, 3), (2, 2))),
    Row("tensordot", lambda x, y: torch.tensordot(x, y, 2), ((2, 3, 4), (3, 4, 5))),
    Row("meshgrid", lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="xy")), ((3,), (4,))),
    Row(
        "sort",
        lambda x: torch.sort(x, 1).values + 2 * torch.sort(x, descending=True).values,
        ((2, 5),),
    ),
    Row("argsort", lambda x: x.argsort(1), ((2, 5),)),
    Row(
        "median",
        lambda x: x.median(1).values + x.median() + x.kthvalue(2, 1).values + x.quantile(0.3, 1),
        ((2, 6),),
    ),
    Row("extremes", lambda x, y: x.clamp(y.min(), y.max()) + x.clamp(y - 1, y), ((3,), (3,))),
    Row(
        "norms_of_order",
        lambda x: x.norm(p=3, dim=1) + torch.linalg.norm(x) + x.norm(p=math.inf, dim=1),
        ((2, 5),),
    ),
    Row("arcs", lambda x: torch.asin(x.tanh()) + torch.acos(x.tanh()), ((2, 5),), within=2e-4),
    Row("quadrants", torch.atan2, ((3, 5), (3, 5))),
    Row("tangent", lambda x: torch.tan(0.3 * x), ((2, 5),)),
    Row(
        "hyperbolic",
        lambda x: (
            torch.sinh(x)
            + torch.cosh(x)
            + torch.asinh(x)
            + torch.acosh(x.abs() + 1.5)
            + torch.atanh(0.8 * x.tanh())
        ),
        ((2, 5),),
    ),
    Row(
        "odd_functions",
        lambda x, y: (
            torch.erfc(x)
            + torch.logit(x.sigmoid())
            + torch.hypot(x, y)
            + torch.copysign(x, y)
            + torch.signbit(x)
            + torch.nan_to_num(x)
            + torch.isfinite(x)
        ),
        ((2, 5), (2, 5)),
    ),
    Row("softplus_beta", nn.Softplus(2)),
    Row("cells", nn.LSTMCell(4, 5), ((2, 4),)),
    Row("weight_norm", nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), ((2, 4),)),
    Row(
        "grouped_queries",
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        ((1, 4, 5, 4), (1, 2, 5, 4)),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_module_matches_torch(row: Row) -> None:
    made = module(row)
    inputs = tuple(torch.randn(shape) for shape in row.shapes)
    graph = assert_as_torch(made, inputs, row.within)
    if row.kinds:
        assert " ".join(kind_of(op) for op in graph.operations) == row.kinds


def nothing_secret_of(row: Row) -> bool:
    made = module(row)
    return not import_torch(made, tuple(torch.randn(shape) for shape in row.shapes)).weights


@pytest.mark.parametrize(
    "name", ["pool_3", "bicubic", "grid_of_text", "triangles", "of_diagonals", "avg_pool_up"]
)
def test_what_extents_alone_decide_is_public(name: str) -> None:
    assert nothing_secret_of(next(row for row in ROWS if row.name == name))


def test_what_follows_from_a_weight_is_the_owners() -> None:
    """The grid is a real tensor of the model, so the matrix that it makes is its owner's."""
    row = next(row for row in ROWS if row.name == "grid")
    graph = import_torch(module(row), torch.randn(IMAGE))
    assert [array.shape for array in graph.weights.values()] == [(2, 72, 12)]


class Complex(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).real


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda x: x.cummax(1).values, ["aten.cummax.default"]),
        (lambda x: torch.complex(x, x).abs() + torch.linalg.det(x[0, :1, :1]),
            ["aten.linalg_det.default"]),
        (lambda x: x.nonzero(), ["aten.nonzero.default"]),
        (lambda x: x[x > 0], ["aten.index.Tensor"]),
        (lambda x: x * x.sum().item(), ["aten.item.default"]),
        (lambda x: torch.unique(x), ["aten._unique2.default"]),
        (lambda x: torch.bincount((x[0, 0] > 0).long()), ["aten.bincount.default"]),
        (lambda x: x + torch.rand(4), ["aten.rand.default"]),
        (lambda x: F.dropout(x, training=True), ["aten.native_dropout.default"]),
        (lambda x: x.as_strided((2, 2), (1, 2)), ["aten.as_strided.default"]),
        (lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True)[1],
            ["aten.adaptive_max_pool1d.default"]),
        (lambda x: torch.zeros(5, 1, 4).scatter(2, (x > 0).long(), x),
            ["aten.scatter.src", "aten.index_select.default"]),
        (lambda x: torch.linalg.svdvals(x), ["aten.linalg_svdvals.default"]),
        (lambda x: x[:0], ["aten.slice.Tensor"]),
        (lambda x: x.long() << 2, ["aten.__lshift__.Scalar"]),
        (lambda x: F.grid_sample(x[None], x[None, :, :, :2]), ["aten.grid_sampler_2d.default"]),
        (lambda x: F.grid_sample(x[None, None], x[None, None, :, :, :3]),
            ["aten.grid_sampler_3d.default"]),
    ],
)  # fmt: skip
def test_what_is_not_covered_is_refused_by_its_name(made: Any, named: list[str]) -> None:
    row = Row("refused", made, ((5, 1, 4),))
    with pytest.raises(UnsupportedError) as caught:
        import_torch(module(row), tuple(torch.randn(shape) for shape in row.shapes))
    assert [entry.operator for entry in caught.value.offenders] == named
    assert all(entry.reason.endswith(".") for entry in caught.value.offenders)


@pytest.mark.parametrize("rank", [2, 3])
def test_a_grid_of_data_is_told_as_one(rank: int) -> None:
    shapes = ((1, 2, *(3,) * rank), (1, *(2,) * rank, rank))
    row = Row("refused", lambda x, grid: F.grid_sample(x, grid, align_corners=False), shapes)
    with pytest.raises(UnsupportedError) as caught:
        import_torch(module(row), tuple(torch.randn(shape) for shape in row.shapes))
    (told,) = caught.value.offenders
    assert (told.reason, told.way_out) == ("Its grid is computed from data.", "Make it a buffer.")


def test_a_complex_input_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_torch(Complex().eval(), torch.ones(3, dtype=torch.complex64))
    assert [entry.node for entry in caught.value.offenders] == ["x"]
