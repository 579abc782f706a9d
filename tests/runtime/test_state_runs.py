"""States through compile and simulate: counters that several runs add to, revealed at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from counters import (
    ENTRIES,
    REVEAL,
    SAMPLES,
    SHAPE,
    STATE,
    STEP,
    SUITES,
    W,
    X,
    counter,
    last,
    model,
    near,
    node,
)
from onnx import numpy_helper

import veilgraph
from veilgraph.cli import main
from veilgraph.compilation import states
from veilgraph.ir.errors import AccuracyError, SecurityAbort, UsageError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.measure import values
from veilgraph.measuring.processes import simulate_processes
from veilgraph.runtime.simulate import simulate_many
from veilgraph.targets.suites import SUITES as SUITES_BY_NAME
from veilgraph.verification.verify import verify

# In one process


@pytest.mark.parametrize("suite", SUITES)
def test_a_counter_grows_by_a_secret_over_a_hundred_runs(suite: str) -> None:
    plan, weights = counter(suite)
    verify(plan)
    runs = [*({"x": x} for x in X), {}]
    entries = [*["step"] * 100, "reveal"]
    assert near(last(simulate_many(plan, weights, runs, entries=entries)), X.sum(axis=0))


@pytest.mark.parametrize("suite", SUITES)
def test_a_state_is_zero_until_an_owner_gives_it_a_value(suite: str) -> None:
    plan, weights = counter(suite)
    assert near(last(simulate_many(plan, weights, [{}], entries=["reveal"])), 0)
    start = np.array([[10.0, -20.0, 0.5, 300.0]], np.float32)
    entries = ["step", "start", "step", "reveal"]
    runs = [{"x": X[0]}, {"start": start}, {"x": X[1]}, {}]
    assert near(last(simulate_many(plan, weights, runs, entries=entries)), start + X[1])


@pytest.mark.parametrize("suite", SUITES)
def test_clients_add_to_a_state_that_they_have_no_part_of(suite: str) -> None:
    """gina gives what is added, hugo is told the sum; the parties that compute keep the state."""
    plan, weights = veilgraph.compile(
        {"step": STEP, "reveal": REVEAL},
        state=STATE,
        state_range={"count": (-500, 500)},
        calibrate={"x": X},
        clients=["gina", "hugo"],
        owners={"x": "gina"},
        receivers={"total": ["hugo"]},
        frac_bits=12,
        **SUITES[suite],
    )
    verify(plan)
    computing = plan.manifest.computing
    assert [name for name, program in plan.programs.items() if program.states] == [*computing]
    runs = [*({"x": x} for x in X[:5]), {}]
    answer = simulate_many(plan, weights, runs, entries=[*["step"] * 5, "reveal"])
    assert near(last(answer), X[:5].sum(axis=0))


def test_a_model_alone_reveals_what_is_asked_for() -> None:
    """An output beside the state, or its next value itself where a receiver is named."""
    plan, weights = veilgraph.compile(
        STEP, state=STATE, calibrate={"x": X}, receivers={"count_next": ["carol"]}
    )
    verify(plan)
    assert plan.manifest.receivers == {"count_next": ("carol",)}
    answer = simulate_many(plan, weights, [{"x": x} for x in X[:20]])
    for number, run in enumerate(answer.runs):
        assert np.abs(run.outputs["count_next"] - X[: number + 1].sum(axis=0)).max() < 0.05


@pytest.mark.parametrize(("state", "evaluations"), [(STATE, 7), (None, 0)])
def test_samples_are_run_one_after_the_other_for_states_alone(
    monkeypatch: pytest.MonkeyPatch, state: Mapping[str, str] | None, evaluations: int
) -> None:
    """Once a sample where a state is kept; a model without states is not evaluated for them."""
    seen: list[Any] = []

    def counted(graph: Graph, given: Mapping[str, Any]) -> Any:
        seen.append(given)
        return evaluate(graph, given)

    monkeypatch.setattr(states, "evaluate", counted)
    samples = {"x": X[:7]} if state else {"x": X[:7], "count": X[:7]}
    veilgraph.compile(STEP, state=state, calibrate=samples)
    assert len(seen) == evaluations


def test_what_nobody_asks_for_is_revealed_to_nobody() -> None:
    plan, _ = veilgraph.compile(STEP, state=STATE, calibrate={"x": X})
    assert not plan.manifest.receivers
    assert all(not program.outputs for program in plan.programs.values())
    assert not any(d.what.startswith("output") for d in plan.manifest.disclosures)


def test_products_are_truncated_into_what_is_kept() -> None:
    """A moving average: the next value has twice the fraction bits, and is kept with as many."""
    nodes = [
        node("Mul", "count", "w", "old"),
        node("Add", "old", "x", "count_next"),
        node("Add", "old", "x", "y"),
    ]
    averaged = model(nodes, ["x", "count"], ["count_next", "y"])
    small = {"x": X / 8}
    for index, initializer in enumerate(averaged.graph.initializer):
        averaged.graph.initializer[index].CopyFrom(numpy_helper.from_array(W / 4, initializer.name))
    for options in SUITES.values():
        plan, weights = veilgraph.compile(averaged, state=STATE, calibrate=small, **options)
        verify(plan)
        answer = simulate_many(plan, weights, [{"x": x} for x in small["x"][:30]])
        wanted = np.zeros(SHAPE)
        for run, x in zip(answer.runs, small["x"], strict=False):
            wanted = wanted * W / 4 + x
            assert np.abs(run.outputs["y"] - wanted).max() < 0.02


def test_states_that_change_places() -> None:
    """Each becomes what the other was: neither is written over before it was read."""
    nodes = [
        node("Add", "a", "x", "b_next"),
        node("Identity", "b", "a_next"),
        node("Sub", "a", "b", "y"),
    ]
    swapped = model(nodes, ["x", "a", "b"], ["a_next", "b_next", "y"])
    state = {"a": "a_next", "b": "b_next"}
    plan, weights = veilgraph.compile(swapped, state=state, calibrate={"x": X[:20]})
    verify(plan)
    answer = simulate_many(plan, weights, [{"x": x} for x in X[:12]])
    a = b = np.zeros(SHAPE)
    for run, x in zip(answer.runs, X, strict=False):
        assert np.abs(run.outputs["y"] - (a - b)).max() < 0.05
        a, b = b, a + x


def test_a_plan_with_states_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    plan, _ = counter("rep3")
    plan.save(tmp_path / "a.plan")
    read = veilgraph.Plan.load(tmp_path / "a.plan")
    assert read.digest == plan.digest
    assert (read.manifest.entries, dict(read.manifest.states)) == (tuple(ENTRIES), STATE)
    for name, program in plan.programs.items():
        assert read.party(name).states == program.states
        assert (read.party(name).kept == program.kept).all()


def test_verify_says_what_an_output_and_a_state_are_of() -> None:
    found = verify(counter("rep3")[0])
    assert ("count", "state", 4) in [(s.name, s.owner, s.numbers) for s in found.secrets]
    (total,) = [r for r in found.revealed if r.what == "output total"]
    # Not of the state alone: of what steps and starts put in it.
    assert (total.to, set(total.depends)) == (("bob",), {"count", "x", "start"})


def rows_changed(plan: veilgraph.Plan, change: Callable[[Any], None]) -> veilgraph.Plan:
    alice = plan.party("alice")
    kept = alice.kept.copy()
    change(kept)
    return replace(plan, programs={**plan.programs, "alice": replace(alice, kept=kept)})


def test_a_plan_that_lies_about_its_states_is_refused() -> None:
    plan, _ = counter("rep3")

    def elsewhere(kept: Any) -> None:
        kept["offset"][kept["phase"] == Phase.ONLINE] += 64

    with_client = {**plan.manifest.roles, "carol": "client"}
    lies = [
        (rows_changed(plan, elsewhere), "what it keeps from run to run is not its states"),
        (
            replace(plan, manifest=replace(plan.manifest, states={})),
            "its states are not those that it names",
        ),
        (
            replace(plan, manifest=replace(plan.manifest, entries=("step", "reveal"))),
            "it does something in no entry that it has",
        ),
        (
            replace(plan, manifest=replace(plan.manifest, entries=("step", "step", "start"))),
            "its entries are none, too many, or named alike",
        ),
        (
            replace(plan, manifest=replace(plan.manifest, entries=("step", "a b", "start"))),
            "an entry's name is not a plain word",
        ),
        (
            replace(plan, manifest=replace(plan.manifest, roles=with_client)),
            "a state lies at carol, who is its client",
        ),
    ]
    for lie, told in lies:
        with pytest.raises(SecurityAbort, match=told):
            verify(lie)


# What is refused at once


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"state": {"cuont": "count_next"}}, "no input `cuont` to be a state"),
    ({"state": {"count": "next"}}, "no output `next` for state `count` to become"),
    ({"owners": {"count": "alice"}}, "State `count` has no owner"),
    ({"state_range": {"x": (0, 1)}}, "`x` is no state"),
    ({"state_range": {"count": (3, 2)}}, "State `count` can't lie between 3 and 2"),
    ({"state_range": {"count": (1, 2)}}, "State `count` can't lie between 1 and 2"),
    ({"reveal_as": {"count_next": "argmax"}}, "no output `count_next` to reveal"),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"state": STATE, "calibrate": {"x": X}} | options
    with pytest.raises(UsageError, match=told):
        veilgraph.compile(STEP, **given)


def test_a_suite_that_keeps_nothing_has_no_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES_BY_NAME, "rep3", replace(SUITES_BY_NAME["rep3"], states=None))
    with pytest.raises(UsageError, match="Suite rep3 keeps nothing from run to run"):
        veilgraph.compile(STEP, state=STATE, calibrate={"x": X})


def test_a_range_needs_samples() -> None:
    with pytest.raises(UsageError, match="The range of a state is held on samples"):
        veilgraph.compile(STEP, state=STATE, state_range={"count": (-1, 1)})


def test_a_state_has_one_shape() -> None:
    nodes = [node("Add", "count", "x", "count_next")]
    shapes = {"count": (1, 1), "count_next": SHAPE}
    with pytest.raises(UsageError, match="State `count` has shape 1x1, and 1x4 too"):
        veilgraph.compile(
            model(nodes, ["x", "count"], ["count_next"], shapes),
            state=STATE,
            calibrate={"x": X},
        )


def test_a_state_that_leaves_its_range_on_the_samples() -> None:
    with pytest.raises(AccuracyError, match=r"State `count` reaches .* outside its range"):
        veilgraph.compile(STEP, state=STATE, state_range={"count": (-10, 10)}, calibrate={"x": X})


def test_a_state_that_grows_without_end() -> None:
    grown = model(
        [node("Mul", "count", "count", "c"), node("Add", "c", "x", "count_next")],
        ["x", "count"],
        ["count_next"],
    )
    with pytest.raises(AccuracyError, match="State `count` is not finite"):
        veilgraph.compile(grown, state=STATE, calibrate={"x": 5 + X})


@pytest.mark.parametrize(
    ("entries", "options", "told"),
    [
        ({"a b": STEP}, {}, "Entries are named a b"),
        ({}, {}, "Entries are named nothing"),
        (ENTRIES, {"public": ["w"]}, "are one model's, and here are several"),
        (
            {"step": STEP, "wide": model([node("Neg", "x", "y")], ["x"], ["y"], {"x": (1, 5)})},
            {},
            "Input `x` has one shape in one entry",
        ),
        (
            {"step": STEP, "still": model([node("Neg", "w", "y")], ["x"], ["y"])},
            {"owners": {"weights": "public"}, "calibrate": {"x": X}},
            "Entry `still` returns `y`, which is public",
        ),
    ],
)
def test_entries_that_make_no_sense(entries: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        veilgraph.compile(entries, **({"state": STATE} | options))


def test_an_entry_that_is_not_there() -> None:
    plan, weights = counter("rep3")
    with pytest.raises(UsageError, match="The plan has no entry `sum`"):
        simulate_many(plan, weights, [{}], entries=["sum"])


def test_a_misspelt_entry_gets_the_nearest_name() -> None:
    plan, weights = counter("rep3")
    with pytest.raises(UsageError, match="no entry `reveel`") as refused:
        veilgraph.simulate(plan, weights, {}, entry="reveel")
    assert refused.value.hint == "Its entries: step, reveal, start. Did you mean reveal?"


def test_an_input_of_another_entry_is_refused() -> None:
    plan, weights = counter("rep3")
    with pytest.raises(UsageError, match="Entry `step` has no input `start`") as refused:
        veilgraph.simulate(plan, weights, {"x": X[0], "start": X[0]}, entry="step")
    assert refused.value.hint == "Its inputs are x."


def test_an_entry_is_measured_with_its_own_inputs_rounds_and_bytes() -> None:
    """Adding to a count takes a round, and a ReLU of it several, of which merges take more."""
    relu = model([node("Relu", "count", "total")], ["count"], ["total"])
    plan, weights = veilgraph.compile(
        {"step": STEP, "relu": relu},
        state=STATE,
        state_range={"count": (-500, 500)},
        calibrate={"x": X},
        protocols={"compare": "merges"},
    )
    assert plan.rounds(Phase.ONLINE, 0) < plan.rounds(Phase.ONLINE, 1)
    for number, (name, outputs) in enumerate({"step": set(), "relu": {"total"}}.items()):
        measured = veilgraph.bench(plan, weights, iterations=2, entry=name)
        shown, sent = values(measured), plan.sent_bytes(Phase.ONLINE, number)
        assert shown["rounds"] == plan.rounds(Phase.ONLINE, number)
        assert shown["sent_bytes"]["online"] == sent
        assert set(measured.outputs) == outputs
        priced = veilgraph.inspect(plan, entry=name)
        assert priced.cost.online.sent_bytes == sent
        assert priced.cost.online.rounds == plan.rounds(Phase.ONLINE, number)
        answer = veilgraph.simulate(plan, weights, {"x": X[0]} if number == 0 else {}, entry=name)
        offline = plan.sent_bytes(Phase.OFFLINE, number)
        assert answer.rounds == plan.rounds(Phase.ONLINE, number)
        assert answer.sent_bytes == sum(sent.values()) + sum(offline.values())


def test_processes_run_the_entry_that_each_batch_names() -> None:
    plan, weights = counter("rep3")
    runs = [{"x": X[0]}, {"x": X[1]}, {}]
    answer, _ = simulate_processes(plan, weights, runs, entries=["step", "step", "reveal"])
    assert near(last(answer), X[0] + X[1])


@pytest.fixture
def counter_files(tmp_path: Path) -> Path:
    plan, weights = counter("rep3")
    plan.save(tmp_path / "a.plan")
    veilgraph.save_weights(weights, tmp_path / "a.weights", plan)
    np.save(tmp_path / "x.npy", X[0])
    return tmp_path


def verb(*args: str | Path) -> Any:
    return CliRunner().invoke(main, [str(a) for a in args])


@pytest.mark.parametrize("name", ["simulate", "bench"])
def test_verbs_run_an_entry_by_name(counter_files: Path, name: str) -> None:
    files = (counter_files / "a.plan", "--weights", counter_files / "a.weights")
    shown = verb(name, *files, "--entry", "reveal", "--json")
    assert shown.exit_code == 0, shown.output
    plan = counter("rep3")[0]
    assert json.loads(shown.stdout)["rounds"] == plan.rounds(Phase.ONLINE, 1)
    misspelt = verb(name, *files, "--entry", "stepp")
    assert misspelt.exit_code == 2
    assert "The plan has no entry `stepp`." in misspelt.output
    assert "Did you mean step?" in " ".join(misspelt.output.split())


def test_an_entry_is_priced_with_its_own_products() -> None:
    wide = {"x": (1, 4), "y": (1, 1)}
    weight = numpy_helper.from_array(W.T.copy(), "w")
    product = model([node("MatMul", "x", "w", "y")], ["x"], ["y"], wide)
    product.graph.initializer[0].CopyFrom(weight)
    plan, _ = veilgraph.compile(
        {"double": model([node("Add", "x", "x", "v")], ["x"], ["v"]), "product": product},
        calibrate={"x": X},
    )
    total = sum(layer.multiply_adds for layer in plan.layers)
    assert total > 0
    found = [veilgraph.inspect(plan, entry=name) for name in plan.manifest.entries]
    assert [each.cost.online.multiply_adds for each in found] == [0, total]
    assert "y" not in {price.name for price in found[0].layers if price.multiply_adds}


def test_inspect_names_the_entry_that_it_prices(counter_files: Path) -> None:
    file = counter_files / "a.plan"
    shown = verb("inspect", file, "--entry", "start")
    assert (shown.exit_code, "Entry start:" in shown.output) == (0, True), shown.output
    found = json.loads(verb("inspect", file, "--entry", "start", "--json").stdout)
    plan = counter("rep3")[0]
    assert (found["entries"], found["entry"]) == (list(ENTRIES), "start")
    assert found["rounds"] == plan.rounds(Phase.ONLINE, 2)
    assert found["sent_bytes"]["offline"] == plan.sent_bytes(Phase.OFFLINE, 2)
    wrong = verb("inspect", file, "--entry", "strat")
    assert (wrong.exit_code, "Did you mean start?" in " ".join(wrong.output.split())) == (2, True)


def test_simulate_says_that_an_entry_reveals_nothing(counter_files: Path) -> None:
    files = (counter_files / "a.plan", "--weights", counter_files / "a.weights")
    given = f"x=@{counter_files / 'x.npy'}"
    shown = verb("simulate", *files, "--entry", "step", "--input", given)
    assert (shown.exit_code, "Nobody receives an output." in shown.output) == (0, True)
    output = f"total=@{counter_files / 'y.npy'}"
    wrong = verb("simulate", *files, "--input", given, "--output", output)
    assert (wrong.exit_code, "--output names `total`" in wrong.output) == (2, True)


# On the command line


def test_the_command_line_compiles_entries_and_states(tmp_path: Path) -> None:
    for name, each in ENTRIES.items():
        (tmp_path / f"{name}.onnx").write_bytes(each.SerializeToString())
    np.savez(tmp_path / "samples.npz", **SAMPLES)
    entries = [f"--entry={name}={tmp_path / f'{name}.onnx'}" for name in ENTRIES]
    options = ["--state=count=count_next", "--state-range=count=-500:500"]
    plan = tmp_path / "count.plan"
    ending = ["--calibrate", str(tmp_path / "samples.npz"), "-o", str(plan)]
    found = CliRunner().invoke(main, ["compile", *entries, *options, *ending])
    assert found.exit_code == 0, found.output
    manifest = veilgraph.Plan.load(plan).manifest
    assert (manifest.entries, dict(manifest.states)) == (tuple(ENTRIES), STATE)
    refused = [
        (["compile", *ending], "One MODEL is compiled"),
        (["compile", "a.onnx", *entries, *ending], "One MODEL is compiled"),
        (["compile", *entries, "--compare-owners"], "Comparisons are of one model"),
        (["compile", "a.onnx", "--state-range=x=1", *ending], "is no range like"),
        (["run", str(plan), *RUN, "--resume"], "--resume goes on from a file"),
    ]
    for command, told in refused:
        assert told in CliRunner().invoke(main, command).output


RUN = ("--party", "alice", "--config", "alice.yaml")
