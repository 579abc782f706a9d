"""`compile --protocols`, `--roles`, `--most-store`, `--compare-protocols`; what `inspect` says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model
from onnx import helper
from verbs import json_of, reason, run_verb

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.pricing import predict

Command = tuple[str, ...]
DIGITS = Path(__file__).parent.parent.parent / "examples" / "digits"


@pytest.fixture
def compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """What compiles a perceptron of two hidden layers with its samples."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Gemm", ["x", "u"], ["g"], "fc1"),
        helper.make_node("Relu", ["g"], ["b"], "relu1"),
        helper.make_node("Gemm", ["b", "w"], ["h"], "fc2"),
        helper.make_node("Relu", ["h"], ["a"], "relu2"),
        helper.make_node("Gemm", ["a", "v"], ["y"], "fc3"),
    ]
    sizes = {"u": (4, 24), "w": (24, 24), "v": (24, 3)}
    weights = {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    onnx.save(model(nodes, {"x": (256, 4)}, ["y"], weights), "mlp.onnx")
    np.savez("x.npz", x=rng.normal(size=(3, 256, 4)).astype(np.float32))
    return ("compile", "mlp.onnx", "--calibrate", "x.npz", "--ring", "32")


def compiled(command: Command, *options: str) -> veilgraph.Plan:
    done = run_verb(*command, "-o", "mlp.plan", *options)
    assert done.exit_code == 0, done.stderr
    plan = veilgraph.Plan.load("mlp.plan")
    assert veilgraph.verify(plan)
    return plan


def sent(plan: veilgraph.Plan) -> int:
    phases = (Phase.OFFLINE, Phase.ONLINE)
    return sum(sum(plan.sent_bytes(phase).values()) for phase in phases)


def stored(plan: veilgraph.Plan) -> int:
    """Bytes of an inference in the largest store."""
    received: Counter[str] = Counter()
    for link, size in plan.sent_bytes(Phase.OFFLINE).items():
        received[link.split("->")[1]] += size
    return max(received.values())


def chosen(plan: veilgraph.Plan) -> set[str]:
    return {layer.protocol for layer in plan.layers if layer.protocol}


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_each_goal_is_best_at_what_it_is_for(compiling: Command, suite: str) -> None:
    two = ("--suite", suite, "--parties", "alice,bob", "--dealer", "dora")
    line = compiling if suite == "rep3" else (*compiling, *two)
    goals = ("auto", "least-bytes", "fewest-rounds")
    plans = {goal: compiled(line, "--protocols", goal) for goal in goals}
    rounds = {goal: plan.rounds(Phase.ONLINE) for goal, plan in plans.items()}
    assert rounds["fewest-rounds"] < rounds["auto"] < rounds["least-bytes"]
    assert sent(plans["least-bytes"]) < sent(plans["auto"]) < sent(plans["fewest-rounds"])
    assert chosen(plans["least-bytes"]) == {"compare=least-bits"}
    assert "compare=tree" in chosen(plans["fewest-rounds"])
    assert rounds["fewest-rounds"] == 1 + 2 * 2 + 2  # the input, two ReLUs, the output
    assert plans["least-bytes"].manifest.options["goal"] == "least-bytes"


def test_fixed_roles_save_a_round_a_layer(compiling: Command) -> None:
    """Party 2 knows its part of each product before the inputs are there."""
    merges = ("--protocol", "compare=merges")
    rotated, fixed = (compiled(compiling, *merges, "--roles", r) for r in ("rotated", "fixed"))
    assert fixed.rounds(Phase.ONLINE) == 1 + 2 * 4 + 2  # the input, two ReLUs, the output
    assert rotated.rounds(Phase.ONLINE) > fixed.rounds(Phase.ONLINE)
    online = fixed.sent_bytes(Phase.ONLINE)
    assert sum(online.values()) < sum(rotated.sent_bytes(Phase.ONLINE).values())
    assert fixed.manifest.options["roles"] == "fixed"


def test_two_parties_read_a_digit_in_eight_rounds_and_one_that_rounds_it() -> None:
    """Four products, three ReLUs and the output: in both, each to each; and its truncation."""
    plan, _ = veilgraph.compile(
        DIGITS / "digits.onnx",
        calibrate=DIGITS / "calibration.npz",
        shapes={"image": (1, 1, 28, 28)},
        suite="additive",
        parties=("alice", "bob"),
        dealer="dora",
        goal="fewest-rounds",
    )
    assert chosen(plan) == {"compare=tree"}
    counts = {layer.name: layer.rounds for layer in plan.layers if layer.rounds}
    products, relus = ("conv1", "conv2", "fc1/matmul", "fc2/matmul"), ("relu1", "relu2", "relu3")
    assert counts == dict.fromkeys((*products, *relus), 1) | {"logits": 2}
    sent = [tuple(row) for row in plan.messages(Phase.ONLINE)[:, :3].tolist()]
    opened = [(each, *pair) for each in range(7) for pair in ((0, 1), (1, 0))]
    assert sent == [*opened, (7, 0, 1), (8, 1, 0)]  # to round it, and the output


TREES = "nothing of what is compared, as long as AES-128 under a known key is a random permutation"


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_a_plan_with_trees_states_what_it_assumes(compiling: Command, suite: str) -> None:
    """And sends nothing after an opening: of two ReLUs 2 rounds each, then the output."""
    two = ("--suite", suite, "--parties", "alice,bob", "--dealer", "dora")
    line = compiling if suite == "rep3" else (*compiling, *two)
    merges = compiled(line, "--protocol", "compare=merges", "--roles", "fixed")
    assert TREES not in [each.what for each in merges.manifest.disclosures]
    assert "random permutation" not in run_verb("inspect", "mlp.plan", "--reveals").stdout
    plan = compiled(line, "--protocol", "compare=tree", "--roles", "fixed")
    (told,) = (each for each in plan.manifest.disclosures if each.what == TREES)
    assert told.to == "parties that compare by trees"
    assert "90 bits of security" in told.why
    shown = " ".join(run_verb("inspect", "mlp.plan", "--reveals", "--wide").stdout.split())
    assert TREES in shown
    assert plan.rounds(Phase.ONLINE) == 1 + 2 * 2 + 2 == merges.rounds(Phase.ONLINE) - 4


@pytest.mark.parametrize("roles", ["rotated", "fixed"])
def test_answers_are_the_models_with_all_roles(compiling: Command, roles: str) -> None:
    plan = compiled(compiling, "--protocols", "fewest-rounds", "--roles", roles)
    x = np.load("x.npz")["x"][0]
    weights = veilgraph.load_weights("mlp.weights", plan)
    found = veilgraph.simulate(plan, weights, {"x": x}).outputs["y"]
    u, w, v = (np.asarray(weights[name], np.float64) for name in "uwv")
    wanted = np.maximum(np.maximum(x @ u, 0) @ w, 0) @ v
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).mean())


def test_a_layer_says_what_the_next_best_would_take(compiling: Command) -> None:
    compiled(compiling, "--network", "wan", "--prepared")
    rows = {row["name"]: row for row in json_of("inspect", "mlp.plan", "--layers")["layers"]}
    (best,) = (each for each in rows["relu1"]["next_best"] if each)
    (more,) = (each for each in rows["relu1"]["next_best_seconds"] if each)
    assert best == "compare=table"
    assert 0.01 < more < 0.04  # a round of 20 ms more
    assert rows["fc3"]["next_best"] == [""]
    shown = run_verb("inspect", "mlp.plan", "--layers", "--wide").stdout
    assert "compare=table +" in shown


def test_choices_side_by_side(compiling: Command) -> None:
    found = json_of(*compiling, "--compare-protocols")["choices"]
    named = [(each["goal"], each["network"]) for each in found]
    autos = [("auto", network) for network in ("lan", "metro", "wan")]
    assert named == [*autos, ("least-bytes", "lan"), ("fewest-rounds", "lan")]
    for network in ("lan", "metro", "wan"):
        total = [e["online_seconds"][network] + e["offline_seconds"][network] for e in found]
        own = total[named.index(("auto", network))]
        assert own <= 1.02 * min(total)
    shown = " ".join(run_verb(*compiling, "--compare-protocols").stdout.split())
    assert re.search(r"fewest-rounds: [^:]*compare=tree \(\d layer", shown)


def convolutions() -> onnx.ModelProto:
    """Two convolutions with ReLUs and a pool, and two small dense layers."""
    rng = np.random.default_rng(3)
    sizes = {"k": (8, 1, 3, 3), "q": (8, 8, 3, 3), "w": (128, 40), "v": (40, 10)}
    weights = {
        name: (rng.normal(size=size) / np.sqrt(np.prod(size[1:]))).astype(np.float32)
        for name, size in sizes.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("AveragePool", ["b"], ["c"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "q"], ["d"], "conv2", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["d"], ["e"], "relu2"),
        helper.make_node("Flatten", ["e"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w"], ["g"], "fc1"),
        helper.make_node("Relu", ["g"], ["h"], "relu3"),
        helper.make_node("Gemm", ["h", "v"], ["y"], "fc2"),
    ]
    return model(nodes, {"x": (1, 1, 16, 16)}, ["y"], weights)


SINGLES = [
    {"protocols": {"compare": name}, "roles": roles}
    for name in ("merges", "least-bits", "table", "tree")
    for roles in ("rotated", "fixed")
]


@pytest.mark.parametrize("name", ["perceptron", "convolutions"])
def test_auto_is_never_much_slower_than_one_variant_for_all(compiling: Command, name: str) -> None:
    """Predicted, for the three networks that have names and for one of a user's own."""
    Path("far.yaml").write_text("bytes_per_second: 2.5e6\nround_trip_seconds: 0.2\n")
    if name == "convolutions":
        onnx.save(convolutions(), "mlp.onnx")
        x = np.random.default_rng(5).normal(size=(2, 1, 1, 16, 16))
        np.savez("x.npz", x=x.astype(np.float32))

    def plan_of(**options: object) -> veilgraph.Plan:
        return veilgraph.compile("mlp.onnx", calibrate="x.npz", ring=32, **options)[0]

    singles = [plan_of(**options) for options in SINGLES]
    for network in ("lan", "metro", "wan", "far.yaml"):
        own = predict(plan_of(network=network), network).total_seconds
        best = min(predict(plan, network).total_seconds for plan in singles)
        assert own <= 1.02 * best, (network, own / best)


def test_a_network_of_ones_own_is_one_choice_more(compiling: Command) -> None:
    Path("office.yaml").write_text("bytes_per_second: 1e6\nround_trip_seconds: 0.5\n")
    line = (*compiling, "--compare-protocols", "--network", "office.yaml")
    found = json_of(*line)["choices"]
    assert [each["network"] for each in found[:4]] == ["lan", "metro", "wan", "office.yaml"]
    assert set(found[0]["online_seconds"]) == {"lan", "metro", "wan", "office.yaml"}


def test_a_store_that_is_too_small(compiling: Command) -> None:
    free = compiled(compiling, "--protocols", "fewest-rounds")
    room = stored(free) // 2
    small = compiled(compiling, "--protocols", "fewest-rounds", "--most-store", str(room))
    assert stored(small) <= room
    code, told = reason(*compiling, "-o", "small.plan", "--most-store", "1000")
    assert code == 2
    assert "MB in a store at least, and 0.001 MB are allowed." in " ".join(told.split())
    assert "--most-store" in told
    assert not Path("small.plan").exists()


@pytest.mark.parametrize("option", [("--protocols", "auto"), ("-o", "mlp.plan")])
def test_a_comparison_chooses_in_every_way_itself(compiling: Command, option: Command) -> None:
    code, told = reason(*compiling, "--compare-protocols", *option)
    assert code == 2
    assert "makes no sense with --compare-protocols." in told


def test_python_names_what_may_be_chosen(compiling: Command) -> None:
    for option, known in (("goal", "least-bytes"), ("roles", "rotated")):
        with pytest.raises(UsageError, match="fastest") as refused:
            veilgraph.compile("mlp.onnx", **{option: "fastest"})
        assert known in refused.value.hint
