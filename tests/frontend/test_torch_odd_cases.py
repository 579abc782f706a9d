"""Operators of PyTorch in their less common forms, against torch: defaults say little of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_cases import Function, assert_as_torch

from veilgraph.frontend.torch.importer import import_torch
from veilgraph.ir.errors import UnsupportedError, UsageError

IMAGE = (2, 3, 4, 3)


def spreads(x: torch.Tensor) -> torch.Tensor:
    kept = [*torch.var_mean(x, 1, keepdim=True), *torch.std_mean(x, (0, 1), keepdim=True)]
    return sum(kept) + sum(torch.var_mean(x, 1, unbiased=False, keepdim=True))  # type: ignore


CASES = {
    "weight_norm_of_all": (nn.utils.parametrizations.weight_norm(nn.Linear(3, 5), dim=None), IMAGE),
    "weight_norm_of_columns": (nn.utils.weight_norm(nn.Linear(3, 5), dim=1), IMAGE),
    "nearest_to_a_multiple": (
        lambda x: F.interpolate(x[..., :3], scale_factor=(1.0, 3.3), mode="nearest"),
        IMAGE,
    ),
    "nearest_to_the_same": (
        lambda x: F.interpolate(x, scale_factor=(1.2, 1.0), mode="nearest-exact"),
        IMAGE,
    ),
    "nearest_by_halves": (lambda x: F.interpolate(x, scale_factor=2.5), IMAGE),
    "nearest_by_whole": (lambda x: F.interpolate(x, scale_factor=3.0), IMAGE),
    "softplus_of_a_threshold": (lambda x: F.softplus(8 * x, 1, 30) + F.softplus(x, 3, 12), IMAGE),
    "spreads_kept": (spreads, IMAGE),
    "counts_added": (
        lambda x: (
            (x[:, 0, 0] > 0)
            .long()
            .scatter_add(1, torch.tensor([[0, 2]]), torch.tensor([[1, 2]]))
            .index_add(0, torch.tensor([1]), torch.tensor([[1, 2, 3]]))
        ),
        IMAGE,
    ),
    "truths_multiplied": (lambda x: (x > 0).prod(1) + (x > -1).cumprod(2)[:, 0] + x.sum(1), IMAGE),
    "integers_clamped": (lambda x: (4 * x).round().long().clamp(-2.5, 3.5), IMAGE),
    "taken_from_the_end": (lambda x: torch.take(x, torch.tensor([[0, -1], [5, -7]])), IMAGE),
    "shuffled_without_a_batch": (lambda x: F.pixel_shuffle(x, 2), (8, 3, 2)),
    "sorted_number": (lambda x: torch.sort(x.sum()).values, IMAGE),
    "norm": (lambda x: torch.norm(x, dim=1), IMAGE),
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch_computes_it(name: str) -> None:
    made, shape = CASES[name]
    module = (made if isinstance(made, nn.Module) else Function(made)).eval()
    torch.manual_seed(2)
    assert_as_torch(module, [torch.randn(shape)], 2e-5)


def masked(*args: Any, **kinds: Any) -> torch.Tensor:
    q, k, mask = args
    return F.scaled_dot_product_attention(q, k, 2 * k, attn_mask=mask, **kinds)


QUERIES, KEYS, FEW_KEYS = torch.randn(1, 4, 3, 8), torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8)
SEEN = torch.ones(3, 5).tril(1) > 0
ATTENTIONS = {
    "mask_of_truths": (masked, (QUERIES, KEYS, SEEN)),
    "mask_of_data": (lambda q, k, x: masked(q, k, x > 0.5), (QUERIES, KEYS, SEEN.float())),
    "mask_that_is_added": (
        lambda *args: masked(*args, scale=0.3),
        (QUERIES, KEYS, torch.randn(3, 5)),
    ),
    "mask_of_groups": (lambda *args: masked(*args, enable_gqa=True), (QUERIES, FEW_KEYS, SEEN)),
    "causal_of_more_keys": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True),
        (QUERIES, FEW_KEYS),
    ),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_torchs(name: str) -> None:
    made, operands = ATTENTIONS[name]
    assert_as_torch(Function(made).eval(), operands, 2e-5)


@pytest.mark.parametrize("made", [lambda x: F.softplus(x, 1, 0.5), lambda x: F.softplus(x, 2, 1)])
def test_a_softplus_that_is_soon_a_line_is_refused(made: Any) -> None:
    with pytest.raises(UnsupportedError, match="thresholds of 10 and more"):
        import_torch(Function(made).eval(), torch.ones(3))


def test_a_variance_of_one_number_is_refused() -> None:
    with pytest.raises(UsageError, match="variance over 1 numbers"):
        import_torch(Function(lambda x: x.var(1)).eval(), torch.ones(3, 1))


def test_a_constant_that_torch_cannot_compute_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.tensor([0, 1]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + (self.places * 2)  # type: ignore[operator]

    monkeypatch.setattr(
        "veilgraph.frontend.torch.constants.fx.map_arg", lambda *_: (("two", "texts", 3), {})
    )
    with pytest.raises(UsageError, match="can't compute 'mul'"):
        import_torch(Broken().eval(), torch.ones(2))
