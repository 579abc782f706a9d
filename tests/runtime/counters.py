"""Counters for tests: plans with a state, several entries, and hosts that run them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from three_parties import run_threads, write_parties

import veilgraph
from veilgraph.session import Session

SHAPE = (1, 4)
SUITES: dict[str, dict[str, Any]] = {
    "rep3": {"suite": "rep3"},
    "additive": {"suite": "additive", "parties": ["alice", "bob"], "dealer": "carol"},
}
W = np.array([[1.5, 2.0, -1.0, 0.25]], np.float32)
STATE = {"count": "count_next"}


def model(
    nodes: Sequence[Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> ModelProto:
    def info(name: str) -> Any:
        shape = (shapes or {}).get(name, SHAPE)
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    weights = [numpy_helper.from_array(W, "w")]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [info(name) for name in inputs],
        [info(name) for name in outputs],
        [weight for weight in weights if weight.name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def node(op: str, *names: str) -> Any:
    return helper.make_node(op, names[:-1], names[-1:])


STEP = model([node("Add", "count", "x", "count_next")], ["x", "count"], ["count_next"])
REVEAL = model([node("Identity", "count", "total")], ["count"], ["total"])
START = model([node("Identity", "start", "count_next")], ["start"], ["count_next"])
ENTRIES = {"step": STEP, "reveal": REVEAL, "start": START}
X = np.random.default_rng(5).uniform(0, 3, (100, *SHAPE)).astype(np.float32)
SAMPLES = {"x": X, "start": 100 * X}


@cache
def counter(suite: str) -> tuple[veilgraph.Plan, Any]:
    """Steps that add a secret of alice, a start of alice's, and bob who is told the total."""
    return veilgraph.compile(
        ENTRIES,
        state=STATE,
        state_range={"count": (-500, 500)},
        calibrate=SAMPLES,
        receivers={"total": ["bob"]},
        frac_bits=12,
        **SUITES[suite],
    )


def last(answer: Any) -> Any:
    return answer.runs[-1].outputs["total"]


def near(found: Any, wanted: Any, unit: float = 2.0**-12, units: int = 110) -> bool:
    return bool(np.abs(found - wanted).max() <= units * unit)


class Hosts:
    """Three hosts with one plan, and what each of them does in a session."""

    def __init__(self, folder: Path, suite: str) -> None:
        self.folder, self.files = folder, write_parties(folder, timeout_seconds=20)
        self.plan, _ = counter(suite)

    def state(self, name: str) -> Path:
        return self.folder / f"{name}.state"

    def store(self, name: str) -> Path:
        return self.folder / f"{name}.store"

    def together(
        self,
        act: Callable[[Session, str], Any],
        without: Collection[str] = (),
        **options: Callable[[str], Any],
    ) -> dict[str, Any]:
        """`act` at each party but those `without`; options are made by the party's name."""

        def one(name: str) -> Any:
            own = {option: make(name) for option, make in options.items()}
            keeps = self.plan.party(name).states
            own = {k: v for k, v in own.items() if k != "resume" or keeps}
            with Session(self.plan, name, self.files[name], trust_author=True, **own) as session:
                return act(session, name)

        names = [name for name in self.files if name not in without]
        return dict(zip(names, run_threads([lambda n=n: one(n) for n in names]), strict=True))

    def steps(self, first: int, last: int, saves: bool = True) -> Callable[[Session, str], None]:
        def act(session: Session, name: str) -> None:
            for x in X[first:last]:
                session.run({"x": x} if name == "alice" else {}, "step")
            if saves and self.plan.party(name).states:
                session.save_state(self.state(name))

        return act


def told_total(session: Session, name: str) -> Any:
    return session.run({}, "reveal").get("total")
