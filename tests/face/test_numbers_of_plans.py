"""Every number of a plan, and why it is there: a new one fails here until somebody says why."""

from __future__ import annotations

import json
import math
import re
import stat
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch_mlir import ir

import veilgraph
from veilgraph.checks.kept_ranges import ranges_file, save_ranges, with_ranges
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context
from veilgraph.ir.party import ops
from veilgraph.ir.party.text import parse_program
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.passes.ranges.calibrate import outward
from veilgraph.plans import Plan
from veilgraph.verification.verify import verify

RNG = np.random.default_rng(7)
W, B = RNG.normal(size=(4, 4)).astype(np.float32), np.float32([0.2137, -0.7713, 1.317, 0.091])
X = RNG.normal(size=(8, 1, 4)).astype(np.float32)
MANIFEST = {  # of the manifest, by path
    "format": "the version of this format",
    "lowering": "the version of what made the tables",
    "network.*": "the network that costs are predicted for, as asked for",
    "ring_bits": "the widest ring",
    "options.*": "as asked for",
    "cost.*": "rounds and bytes of messages, which whoever carries them sees",
    "programs.*.arena_bytes": "memory, which follows from shapes and rings",
    "programs.*.shape": "shapes are public",
    "programs.*.ring_bits": "parties compute in it",
    "programs.*.frac_bits": "owners encode by it, receivers decode",
    "programs.*.offset": "where a tensor lies in memory",
    "programs.*.entry": "which of the plan's programs reads or makes it",
    "programs.*.low": "what an owner may give: see below",
    "programs.*.high": "what an owner may give: see below",
    "programs.*.given.flagged": "columns whose numbers may be missing, as the model says",
    "programs.*.given.others": "columns whose values may be unknown, as the model says",
    "programs.*.given.is_hashed": "whether text is written as its hash: yes or no",
    "programs.*.given.lacks": "whether its owner may leave numbers out: yes or no",
}
LAYER = {
    **dict.fromkeys(("ring_bits", "frac_bits"), "parties compute in it"),
    **dict.fromkeys(("range_low", "range_high"), "a power of two: see below"),
    **dict.fromkeys(("online_bits", "offline_bits", "rounds"), "seen on the wire"),
    "multiply_adds": "follows from shapes",
    "next_best_seconds": "follows from shapes, rings and windows, which parties compute with",
}
LAYOUT = ("axes", "axis", "permutation", "starts", "steps", "low", "high", "kernel", "strides")
GRAPH = {
    **dict.fromkeys((*LAYOUT, "shape", "keepdims", "approximate"), "the architecture's"),
    "value": "a constant, which is disclosed by name",
}
SECRET = {
    **dict.fromkeys((*LAYOUT, "keepdims", "multiple", "groups"), "the architecture's"),
    **dict.fromkeys(("range", "range_source"), "a power of two: see below"),
    **dict.fromkeys(("bits", "window_bits", "dropped_bits", "factor"), "scales: parties compute"),
    **dict.fromkeys(("first", "step", "constant", "slope", "coefficient_bits"), "a function's"),
    **dict.fromkeys(("cosine_bits", "factor_bits", "sum_bits", "piece_bits"), "a function's"),
    **dict.fromkeys(("opened_bits", "cosines", "sines"), "a function's"),
    **dict.fromkeys(("function", "least", "most", "origin"), "which function, and where"),
    **dict.fromkeys(("edge", "beyond"), "a function's end, and its value there"),
    **dict.fromkeys(("error", "form"), "how exactly a function is wanted, and what was fitted"),
    "value": "a constant: of the graph, or a function's",
}
PARTY = {
    **dict.fromkeys(("name", "declared"), "what it is called"),
    **dict.fromkeys(
        ("number", "part", "of", "side"), "which draw, message, constant or part it is"
    ),
    **dict.fromkeys((*LAYOUT, "start", "step", "pads_low", "dilations", "groups"), "shapes"),
    **dict.fromkeys(
        ("bits", "frac_bits", "index_bits", "rings"), "scales and windows: parties compute in them"
    ),
    "value": "an integer of a protocol, or a function's",
}
FUNCTIONS = "the interval on which each real function holds, to 1/16 bit"


def model(activation: str) -> ModelProto:
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="fc"),
        helper.make_node(activation, ["h"], ["y"], name="act"),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy")
    held = [numpy_helper.from_array(a, n) for n, a in (("w", W), ("b", B))]
    graph = helper.make_graph(nodes, "numbers", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)


@pytest.fixture(scope="module", params=["Relu", "Sigmoid"])
def compiled(request: pytest.FixtureRequest) -> Plan:
    return veilgraph.compile(model(request.param), calibrate={"x": X})[0]


def numbers(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all numbers in plain values."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from numbers(entry, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for entry in value:
            yield from numbers(entry, path)
    elif isinstance(value, int | float):
        yield path


def is_power(x: float) -> bool:
    return math.isfinite(x) and math.frexp(abs(x))[0] == 0.5


def entries(plan: Plan, folder: Path) -> dict[str, bytes]:
    plan.save(folder / "a.plan")
    with zipfile.ZipFile(folder / "a.plan") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_each_number_of_the_manifest_and_of_layers_has_a_reason(
    compiled: Plan, tmp_path: Path
) -> None:
    read = entries(compiled, tmp_path)
    manifest = yaml.safe_load(read["manifest.yaml"])
    unknown = [p for p in numbers(manifest) if not any(fnmatch(p, known) for known in MANIFEST)]
    assert not unknown
    rows = json.loads(read["layers.json"])
    assert {path for row in rows for path in numbers(row)} <= LAYER.keys()
    for row in rows:
        if row["range_high"] is not None:
            assert row["range_low"] == -row["range_high"]
            assert is_power(row["range_high"])
    (given,) = manifest["programs"]["alice"]["inputs"]
    ends = outward(float(X.min()), float(X.max()))  # to 1/16 bit, and their margin
    assert (given["low"], given["high"]) == RealRange(*ends, RangeSource.CALIBRATED).widened(2.0)
    assert all(t["low"] is None for t in manifest["programs"]["bob"]["weights"])


def test_each_number_of_the_programs_has_a_reason(compiled: Plan) -> None:
    graph = Graph.parse(context(), compiled.ir["graph"], {"w": W, "b": B})
    assert attributes(graph.operations) <= GRAPH.keys()
    program = SecretProgram.parse(context(), compiled.ir["secret"], {"w": W, "b": B})
    assert attributes(program.operations) <= SECRET.keys()
    for known, _ in program.stated_ranges():
        assert known.low == -known.high
        assert is_power(known.high)


def test_each_number_that_parties_compute_with_has_a_reason(compiled: Plan) -> None:
    """Of the party level; tables and their parameters are what it is lowered to, and no more."""
    verify(compiled)
    nodes = parse_program(compiled.ir["party"]).nodes
    assert {name for node in nodes for name, _ in node.attrs} <= PARTY.keys()
    values = {node["value"] for node in nodes if node.op is ops.CONST}
    if FUNCTIONS not in [d.what for d in compiled.manifest.disclosures]:
        # None, one, and 2^f - 1: what rounds a part up whose lower f bits are dropped.
        assert all(value & (value + 1) == 0 for value in values)


def attributes(operations: list[Any]) -> set[str]:
    return {name for op in operations for name in op.operation.attributes}


def test_public_tensors_are_constants_of_a_program_that_discloses_why(compiled: Plan) -> None:
    told = [d.what for d in compiled.manifest.disclosures]
    functions = FUNCTIONS in told
    assert functions == (not compiled.ir["graph"].count("graph.relu"))
    constants = [what for what in told if what.startswith("constant")]
    assert bool(compiled.constants) <= functions or constants
    # No weight is among them, as real numbers or encoded with any fraction bits.
    words = np.frombuffer(compiled.constants[: len(compiled.constants) // 4 * 4], "<i4")
    for frac_bits in range(6, 28):
        encoded = np.rint(np.abs(W[0]).astype(np.float64) * 2**frac_bits)
        assert not np.isin(encoded, np.abs(words.astype(np.int64))).all()


def test_exact_ranges_stay_beside_the_plan_and_lie_within_its_own(
    compiled: Plan, tmp_path: Path
) -> None:
    kept = ranges_file(tmp_path / "a.plan")
    assert kept.name == "a.ranges"
    compiled.save(tmp_path / "a.plan")
    save_ranges(compiled, kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    loaded = Plan.load(tmp_path / "a.plan")
    assert loaded.ranges == ()
    assert loaded.known_layers == loaded.layers
    whole = with_ranges(loaded, kept)
    assert whole.ranges == compiled.ranges
    assert whole.digest == loaded.digest == compiled.digest
    exact = {layer.name: layer.range_high for layer in whole.known_layers}
    assert not is_power(exact["fc"])
    for layer, (low, high) in zip(loaded.layers, whole.ranges, strict=True):
        assert layer.range_low <= low
        assert high <= layer.range_high


def test_a_bias_changed_within_a_binade_leaves_no_trace(tmp_path: Path) -> None:
    """In the plan file, entry by entry, but for the error measured on samples, which is disclosed
    as such. Rings are the compiler's choice."""
    factor = np.float32(1.001)
    assert (np.frexp(B)[1] == np.frexp(B * factor)[1]).all()
    changed = model("Relu")
    bias = next(t for t in changed.graph.initializer if t.name == "b")
    bias.CopyFrom(numpy_helper.from_array(B * factor, "b"))
    read = []
    for name, each in (("first", model("Relu")), ("second", changed)):
        (folder := tmp_path / name).mkdir()
        plan = veilgraph.compile(each, calibrate={"x": X})[0]
        assert any("predicted and measured" in d.what for d in plan.manifest.disclosures)
        found = entries(plan, folder)
        manifest = yaml.safe_load(found["manifest.yaml"])
        manifest["encoding"] = re.sub(r"measured \S+", "", manifest["encoding"])
        del manifest["digest"]  # of the others, and of the manifest
        read.append({**found, "manifest.yaml": manifest})
    assert read[0] == read[1]


def test_a_learnt_bias_of_two_numbers_is_no_longer_the_range_of_a_layer() -> None:
    """What was published once: with two numbers, a range is both of them."""
    changed = model("Relu")
    bias = next(t for t in changed.graph.initializer if t.name == "b")
    bias.CopyFrom(numpy_helper.from_array(B * np.float32(1.02), "b"))
    texts = [veilgraph.compile(m, ring=32, frac_bits=10)[0].ir for m in (model("Relu"), changed)]
    assert texts[0] == texts[1]


def test_the_text_of_a_plan_is_parsed_by_the_dialect(compiled: Plan) -> None:
    assert isinstance(ir.Module.parse(compiled.ir["secret"], context()), ir.Module)
