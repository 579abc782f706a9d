"""A model compiled, compared layer by layer, and run by three parties: one report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from benchmarks.harness.reporting import commit, machine
from benchmarks.models.compiling import compiled_apart
from benchmarks.models.recipe import Arrays, Case, Recipe, Sources
from benchmarks.peers.environments import Unavailable
from veilgraph.checks.checking import check
from veilgraph.checks.layer_errors import LayerError
from veilgraph.ir.errors import VeilgraphError
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.pricing import predict
from veilgraph.measuring.processes import simulate_processes
from veilgraph.measuring.spread import Spread
from veilgraph.plans import Plan

Report = dict[str, Any]
Weights = Mapping[str, npt.NDArray[np.float32]]
LAYER_FIELDS = ("name", "ops", "ring", "frac", "mean_relative", "worst_relative", "headroom_bits")
PHASES = (Phase.SETUP, Phase.OFFLINE, Phase.ONLINE)


def measured(recipe: Recipe, sources: Sources, ring: int | str) -> Report:
    """The report of one model; where it stops short, why.

    Its fields are those of the recipe, where and when, and what `_compiled`, `_checked` and
    `_computed` give.
    """
    report: Report = {
        "name": recipe.name,
        "title": recipe.title,
        "weights": recipe.weights,
        "inputs": recipe.inputs,
        "ring": str(ring),
        "most_error": recipe.most_error,
        "task": recipe.decisions,
        **machine(),
        "commit": commit(),
        "date": date.today().isoformat(),
    }
    try:
        case = recipe.make(sources)
        plan, weights = _compiled(case, ring, report)
        _checked(recipe, case, plan, weights, report)
        if recipe.runs:
            _computed(recipe, case, plan, weights, report)
    except (Unavailable, VeilgraphError) as error:
        report["stopped"] = str(error)
    return report


def _compiled(case: Case, ring: int | str, report: Report) -> tuple[Plan, Weights]:
    """Compiles; reports seconds, memory, rounds, bytes, and what a lan is predicted to take."""
    plan, weights, taken = compiled_apart(case.model, case.calibrate, ring)
    predicted = predict(plan, "lan")
    report |= {
        "compile_seconds": taken["clock_seconds"],
        "compile_peak_bytes": taken["peak_bytes"],
        "parameters": sum(array.size for array in weights.values()),
        "rounds": {phase.name.lower(): plan.rounds(phase) for phase in PHASES},
        "sent_bytes": {
            phase.name.lower(): sum(plan.sent_bytes(phase).values()) for phase in PHASES
        },
        "arena_bytes": max(program.arena_bytes for program in plan.programs.values()),
        "predicted_seconds": {
            "setup": predicted.setup_seconds,
            "offline": predicted.offline_seconds,
            "online": predicted.online_seconds,
        },
    }
    return plan, weights


def _checked(recipe: Recipe, case: Case, plan: Plan, weights: Weights, report: Report) -> None:
    """Compares the plan's exact integers with ONNX Runtime, layer by layer."""
    samples = {name: array[: recipe.checked] for name, array in case.tests.items()}
    found = check(plan, weights, case.model, samples)
    report["checked"] = {
        "samples": found.samples,
        "excursions": [str(each) for each in found.excursions.values()],
        "outputs": {each.name: _errors(each) for each in found.outputs},
        "layer_fields": LAYER_FIELDS,
        "layers": [_layer(each) for each in found.layers],
    }


def _layer(layer: LayerError) -> list[Any]:
    headroom = round(layer.headroom_bits, 1) if math.isfinite(layer.headroom_bits) else None
    errors = _errors(layer)
    kinds = "+".join(dict.fromkeys(layer.ops))
    return [layer.name, kinds, layer.ring_bits, layer.frac_bits, *errors.values(), headroom]


def _errors(layer: LayerError) -> dict[str, float]:
    """Mean over mean size, and worst over largest."""
    return {
        "mean_relative": float(f"{layer.mean_relative:.3g}"),
        "worst_relative": float(f"{layer.relative:.3g}"),
    }


def _computed(recipe: Recipe, case: Case, plan: Plan, weights: Weights, report: Report) -> None:
    """All test samples in one session of three processes over TLS.

    Seconds are the slowest party's, the median over inferences; the first warms up where there is
    another.
    """
    count = len(next(iter(case.tests.values())))
    batches = [{name: array[i] for name, array in case.tests.items()} for i in range(count)]
    answer, parties = simulate_processes(plan, weights, batches)
    found = [run.outputs for run in answer.runs]
    wanted = _by_onnx_runtime(case, batches)
    timed = answer.runs[1:] or answer.runs
    report |= {
        "inferences": count,
        "seconds": {
            "setup": answer.setup_seconds,
            "offline": Spread.of([run.seconds(Phase.OFFLINE) for run in timed]).median,
            "online": Spread.of([run.seconds(Phase.ONLINE) for run in timed]).median,
        },
        "party_peak_bytes": {name: party.peak_bytes for name, party in parties.items()},
        "outputs": {name: _error(name, found, wanted) for name in wanted[0]},
    }
    if recipe.agree is not None:
        told = [recipe.agree(*pair) for pair in zip(found, wanted, strict=True)]
        report["equal_decisions"] = sum(equal for equal, _ in told)
        report["decisions"] = sum(count for _, count in told)


def _error(name: str, found: Sequence[Arrays], wanted: Sequence[Arrays]) -> dict[str, float]:
    """Of one output over all samples; mean and worst are as `_errors` has them."""
    theirs = np.stack([each[name] for each in wanted]).astype(np.float64)
    ours = np.stack([each[name] for each in found]).reshape(theirs.shape)
    difference, size = np.abs(ours - theirs), np.abs(theirs)
    return {
        "mean_relative": float(difference.sum() / (size.sum() or 1.0)),
        "worst_relative": float(difference.max() / (size.max() or 1.0)),
        "worst": float(difference.max()),
        "largest": float(size.max()),
    }


def _by_onnx_runtime(case: Case, batches: Sequence[Arrays]) -> list[dict[str, Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, dict(b)), strict=True)) for b in batches]
