"""Attention that goes on: keys and values of the past go in as secrets, and come out longer."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from torch import nn
from torch.nn import functional as F

import veilgraph

Array = np.ndarray[Any, np.dtype[Any]]
SUITES: tuple[dict[str, Any], ...] = ({"suite": "rep3"}, {"suite": "additive", "dealer": "dave"})
CASES = (
    "attention_3d_with_past_and_present",
    "attention_3d_with_past_and_present_expanded",
    "attention_4d_gqa_with_past_and_present_expanded",
)


@cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other operators' numbers
        named = {case.name.removeprefix("test_"): case for case in collect_testcases(None)}
    return {name: case for name, case in named.items() if "past_and_present" in name}


Arrays = dict[str, Array]


def ran(model: Any, feeds: Arrays, suite: dict[str, Any], **more: Any) -> Arrays:
    """What all parties compute, calibrated on these numbers."""
    samples = {name: x[None] for name, x in feeds.items()}
    plan, weights = veilgraph.compile(model, calibrate=samples, **suite, **more)
    return dict(veilgraph.simulate(plan, weights, feeds).outputs)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite["suite"])
@pytest.mark.parametrize("name", CASES)
def test_a_node_case_with_a_past(name: str, suite: dict[str, Any]) -> None:
    case = cases()[name]
    model, (given, wanted) = case.model, case.data_sets[0]
    names = [info.name for info in model.graph.input]
    feeds = {n: np.asarray(x, np.float32) for n, x in zip(names, given, strict=True)}
    found = ran(model, feeds, suite)
    for info, array in zip(model.graph.output, wanted, strict=True):
        assert found[info.name].shape == array.shape
        np.testing.assert_allclose(found[info.name], array, atol=1e-2)


STEP = """
    q = MatMul(x, wq)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    y, keys, values = Attention <q_num_heads=2, kv_num_heads=2> (q, k, v, , past_keys, past_values)
"""
WIDTH, BEGUN = 8, 3
WEIGHTS = {
    name: np.random.default_rng(i).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 3
    for i, name in enumerate(("wq", "wk", "wv"))
}
TOKENS = np.random.default_rng(9).normal(size=(1, BEGUN + 2, WIDTH)).astype(np.float32)


def decoder(past: int) -> onnx.ModelProto:
    """A step of one token: what is known of `past` tokens goes in, and comes out with one more."""
    cache = f"float[1,2,{past},4]"
    inputs = f"float[1,1,{WIDTH}] x, {cache} past_keys, {cache} past_values"
    longer = f"float[1,2,{past + 1},4]"
    outputs = f"float[1,1,{WIDTH}] y, {longer} keys, {longer} values"
    text = f'<ir_version: 11, opset_import: ["" : 24]> g ({inputs}) => ({outputs}) {{{STEP}}}'
    made = onnx.parser.parse_model(text)
    weights = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    made.graph.initializer.extend(weights)
    return made


def by_head(x: Array) -> Array:
    """[1, heads, tokens, size]"""
    return x.reshape(1, -1, 2, 4).transpose(0, 2, 1, 3)


def attended() -> Array:
    """What each token makes of itself and those before it, all at once, as torch has it."""
    q, k, v = (torch.from_numpy(by_head(TOKENS @ w)) for w in WEIGHTS.values())
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(1, -1, WIDTH).numpy()


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite["suite"])
def test_two_steps_of_decoding_fed_back(suite: dict[str, Any]) -> None:
    """A plan for each length; the second step goes on from the answers of the first."""
    known = TOKENS[:, :BEGUN]
    keys, values = by_head(known @ WEIGHTS["wk"]), by_head(known @ WEIGHTS["wv"])
    for past in (BEGUN, BEGUN + 1):
        token = TOKENS[:, past : past + 1]
        found = ran(decoder(past), {"x": token, "past_keys": keys, "past_values": values}, suite)
        np.testing.assert_allclose(found["y"], attended()[:, past : past + 1], atol=2e-2)
        keys, values = found["keys"], found["values"]
    np.testing.assert_allclose(keys, by_head(TOKENS @ WEIGHTS["wk"]), atol=1e-2)


class Growing(nn.Module):
    """The same step in PyTorch: the cache is made longer by torch.cat."""

    def __init__(self) -> None:
        super().__init__()
        for name, array in WEIGHTS.items():
            self.register_buffer(name, torch.from_numpy(array))

    def forward(
        self, x: torch.Tensor, past_keys: torch.Tensor, past_values: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        q, k, v = (
            (x @ w).unflatten(-1, (2, 4)).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)  # type: ignore[operator]
        )
        keys, values = torch.cat([past_keys, k], 2), torch.cat([past_values, v], 2)
        y = F.scaled_dot_product_attention(q, keys, values)
        return {"y": y.transpose(1, 2).flatten(2), "keys": keys, "values": values}


class InPlace(Growing):
    """A cache of a fixed length: a one-hot row says which place is written, the same plan serves
    every step, and what is not written yet is masked.
    """

    def forward(  # type: ignore[override]
        self, x: torch.Tensor, cache: torch.Tensor, place: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        q, k, v = (
            (x @ w).unflatten(-1, (2, 4)).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)  # type: ignore[operator]
        )
        column = place[:, None]
        cache = cache + (torch.stack([k, v]) - cache) * column
        written = (place.flip(0).cumsum(0).flip(0) > 0.5)[None, None, None]
        y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=written)
        return {"y": y.transpose(1, 2).flatten(2), "cache": cache}


def test_two_steps_of_a_module_that_grows_its_cache() -> None:
    known = TOKENS[:, :BEGUN]
    keys, values = by_head(known @ WEIGHTS["wk"]), by_head(known @ WEIGHTS["wv"])
    for past in (BEGUN, BEGUN + 1):
        feeds = {"x": TOKENS[:, past : past + 1], "past_keys": keys, "past_values": values}
        found = ran(Growing().eval(), feeds, SUITES[0], example_inputs=feeds)
        np.testing.assert_allclose(found["y"], attended()[:, past : past + 1], atol=2e-2)
        keys, values = found["keys"], found["values"]


def test_one_plan_serves_all_steps_of_a_cache_of_fixed_length() -> None:
    known = TOKENS[:, :BEGUN]
    cache = np.zeros((2, 1, 2, BEGUN + 2, 4), np.float32)
    cache[:, :, :, :BEGUN] = [by_head(known @ WEIGHTS[name]) for name in ("wk", "wv")]
    rows = np.eye(BEGUN + 2, dtype=np.float32)
    samples = {
        "x": TOKENS[0, BEGUN:, None, None],
        "cache": np.stack([cache, cache]),
        "place": rows[BEGUN:],
    }
    examples = {name: x[0] for name, x in samples.items()}
    plan, weights = veilgraph.compile(
        InPlace().eval(), example_inputs=examples, calibrate=samples, suite="rep3"
    )
    for past in (BEGUN, BEGUN + 1):
        feeds = {"x": TOKENS[:, past : past + 1], "cache": cache, "place": rows[past]}
        found = veilgraph.simulate(plan, weights, feeds).outputs
        np.testing.assert_allclose(found["y"], attended()[:, past : past + 1], atol=2e-2)
        cache = np.asarray(found["cache"])
