"""What parties are told by a plan that trains, entry by entry: the table of docs/training.md."""

from __future__ import annotations

from typing import Any

import pytest
from training_cases import BATCH, DATA, RATE, Dropped

import veilgraph
from veilgraph.verification.findings import OUTPUT

PARAMETERS = ("hidden.weight", "hidden.bias", "last.weight", "last.bias")
FACTORS = {("step", name, who) for name in ("step_size", "momentum") for who in ("bob", "carol")}
OVERFLOW = {("audit", "overflow", who) for who in ("alice", "bob", "carol")}


def told(**options: Any) -> set[tuple[str, str, str]]:
    """Entry, output and receiver of all that a party is told."""
    plan, _ = veilgraph.compile_training(
        Dropped().train(), DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=6,
        optimizer=veilgraph.SGD(momentum=0.5), owners={"labels": "bob"}, **options,
    )  # fmt: skip
    found = {
        (plan.manifest.entries[tensor.entry], tensor.name, who)
        for who, program in plan.programs.items()
        for tensor in program.outputs
    }
    verified = {
        (each.output, who)
        for each in veilgraph.verify(plan).revealed
        if each.kind == OUTPUT
        for who in each.to
    }
    assert {(name, who) for _, name, who in found} == verified
    return found


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, set()),
        ({"share_once": True, "noise": 0.05, "clip_norm": 1.0}, set()),
        ({"reveal": {"loss": "carol"}}, {("step", "loss", "carol")}),
        ({"reveal": {"loss": "carol"}, "loss_every": 3}, {("loss", "loss", "carol")}),
        ({"reveal": {"output": "carol"}}, {("evaluate", "output", "carol")}),
        (
            {"reveal": {"output": "carol"}, "reveal_as": "argmax"},
            {("evaluate", "output", "carol")},
        ),
        ({"reveal": {"correct": "carol"}}, {("correct", "correct", "carol")}),
        (
            {"reveal": {"parameters": "carol"}},
            {("reveal", name, "carol") for name in PARAMETERS},
        ),
    ],
    ids=["nothing", "noise", "loss", "mean", "output", "class", "correct", "parameters"],
)
def test_each_option_tells_what_it_names(options: Any, more: set[Any]) -> None:
    assert told(**options) == FACTORS | OVERFLOW | more


def test_without_an_audit_no_bit_is_told() -> None:
    assert told(audit=False) == FACTORS
