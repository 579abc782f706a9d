"""`compile --compare-protections`, and what other comparisons make of --protect-weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model
from onnx import helper
from verbs import json_of, run_verb

WAN = ("--network", "wan")


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """What compiles a perceptron with its samples."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], "fc1"),
        helper.make_node("Relu", ["h"], ["a"], "relu"),
        helper.make_node("Gemm", ["a", "v"], ["y"], "fc2"),
    ]
    weights = {"w": rng.normal(size=(4, 24)), "v": rng.normal(size=(24, 3))}
    named = {name: value.astype(np.float32) for name, value in weights.items()}
    onnx.save(model(nodes, {"x": (256, 4)}, ["y"], named), "mlp.onnx")
    np.savez("x.npz", x=rng.normal(size=(3, 256, 4)).astype(np.float32))
    # In turns: a receiver in a fixed role knows no threshold, whatever else protects weights.
    return ("compile", "mlp.onnx", "--calibrate", "x.npz", "--roles", "rotated", *WAN)


def test_each_has_its_name_and_what_is_learnt(compared: tuple[str, ...]) -> None:
    found = json_of(*compared, "--compare-protections")["protections"]
    assert [each["protection"] for each in found] == ["none", "roles", "exact"]
    questions = [each["questions"] for each in found]
    assert questions[0][0].startswith("alice learns one derivative of layer relu")
    assert questions[1] == questions[2]
    assert questions[1][0].startswith("alice knows no threshold")
    shown = run_verb(*compared, "--compare-protections").stdout
    assert "none: alice learns" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--owner", "weights=public"), "the weights are public"),
        (("--reveal-as", "argmax"), "nobody receives numbers who does not have the weights"),
    ],
)
def test_where_nothing_is_to_be_learnt(
    compared: tuple[str, ...], option: tuple[str, str], said: str
) -> None:
    found = json_of(*compared, *option, "--compare-protections")["protections"]
    assert [each["questions"] for each in found] == [[said]] * len(found)


def test_suites_without_a_safe_role_are_left_out(compared: tuple[str, ...]) -> None:
    compare = (*compared, "--compare-suites", "--protect-weights")
    roles, exact = (json_of(*compare, protection)["suites"] for protection in ("roles", "exact"))
    assert [each["suite"] for each in roles] == ["rep3"]
    assert [each["suite"] for each in exact] == ["rep3", "additive", "additive"]


def test_suites_are_compared_with_what_is_public(compared: tuple[str, ...]) -> None:
    plain = json_of(*compared, "--compare-suites")["suites"]
    public = json_of(*compared, "--compare-suites", "--public", "w")["suites"]
    for secret, known in zip(plain, public, strict=True):
        assert known["sent_bytes"]["setup"] < secret["sent_bytes"]["setup"]
