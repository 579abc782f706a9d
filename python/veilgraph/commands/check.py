"""`veilgraph check`: a plan's exact integers beside ONNX Runtime or torch, layer by layer."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import click

from veilgraph.checks.accuracy import Accuracy, read_labels
from veilgraph.checks.checking import TOLERANCE, check
from veilgraph.checks.kept_ranges import ranges_file, with_ranges
from veilgraph.checks.layer_errors import Check, DecisionError, LayerError, OutputError
from veilgraph.checks.library import opened_samples
from veilgraph.checks.promises import Promise
from veilgraph.checks.suggestions import bits_lacking
from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination
from veilgraph.measuring.pricing import predict
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.html import Subject, write_report
from veilgraph.reports.tables import Table, progress, show, show_json
from veilgraph.reports.text import brief, ranges
from veilgraph.runtime.simulate import entry_of
from veilgraph.runtime.store.weights import load_weights

EPILOG = """\b
Example, on the samples that the plan was calibrated with:
  veilgraph check digits.plan --weights digits.weights --model digits.onnx \\
      --inputs calibration.npz
"""


@click.command("check", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@arguments.weights_option
@arguments.model_option
@click.option(
    "--inputs",
    "samples_file",
    type=arguments.PATH,
    required=True,
    metavar="FILE.npz",
    help="Samples: one array an input, samples on a new first axis; or a CSV file, for tables "
    "whose columns the plan names. A state's array is optional.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="How far each layer may be off, as a share of its largest value.  [default: "
    f"{TOLERANCE} for outputs; layers are then named alone]",
)
@click.option(
    "--labels",
    "labels_file",
    type=arguments.PATH,
    metavar="FILE.npy",
    help="What is right for each sample, integers: also count right decisions.",
)
@click.option(
    "--avgpool",
    is_flag=True,
    help="Also say what the model decides with average pools in place of max pools.",
)
@click.option(
    "--entry",
    metavar="NAME",
    help="Which of the plan's entries to compare; --model is that entry's.  [default: the first]",
)
@click.option(
    "--html",
    "report",
    type=arguments.PATH,
    metavar="FILE",
    help="Write a page with errors and headroom by layer, for a browser.",
)
@arguments.json_option
def command(
    plan_file: Path,
    weights_file: Path,
    model: Path,
    samples_file: Path,
    tolerance: float | None,
    labels_file: Path | None,
    avgpool: bool,
    entry: str | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Compare PLAN with its model: the integers of each layer with ONNX Runtime's numbers, or
    torch's.

    Runs where the model's owner is, on samples of theirs, without any protocol. The end is exit
    code 4 where a value left its range, an output is further off than tolerated (with --tolerance
    any layer), or the outputs are further off than --max-error allowed, judged on four samples or
    more.

    A state that --inputs has no array of is zero at first. Samples are runs one after the other
    then: the plan goes on from its own state, and the model from the model's.
    """
    if report is not None:
        own = ranges_file(plan_file)
        check_destination(report, plan_file, own, weights_file, model, samples_file, labels_file)
    plan = with_ranges(Plan.load(plan_file), ranges_file(plan_file))
    weights = load_weights(weights_file, plan.digest)
    number = entry_of(plan, entry)
    samples = opened_samples(plan, samples_file, number)
    count = min((len(array) for array in samples.values()), default=1)
    labels = None if labels_file is None else read_labels(labels_file, count)
    with progress("comparing") as tell:
        found = check(plan, weights, model, samples, tolerance, tell, labels, avgpool, entry)
    if report is not None:
        subject = Subject(plan_file.name, model.name, date.today())
        write_report(report, plan, predict(plan, entry=number), found, subject=subject)
    if as_json:
        said = {"entry": plan.manifest.entries[number], "encoding": plan.manifest.encoding}
        show_json({**said, **_values(found)})
    else:
        show(*_tables(plan, found), *_accuracy_lines(found, avgpool))
    status = found.status()
    if status is not None:
        status.is_reported = as_json  # "ok" says so
        raise status


def _values(found: Check) -> dict[str, Any]:
    drift = found.first_drift
    return {
        "ok": found.status() is None,
        "samples": found.samples,
        "tolerance": found.tolerance,
        "first_drift": None if drift is None else drift.name,
        "excursions": [
            {
                "name": each.name,
                "op": each.op,
                "declared": [units.finite(each.declared.low), units.finite(each.declared.high)],
                "reached": [each.low, each.high],
                "count": each.count,
            }
            for each in found.excursions.values()
        ],
        "layers": [_layer_values(layer, found) for layer in found.layers],
        "outputs": [
            {
                **_layer_values(each, found),
                "agreeing": each.agreeing,
                "decisions": each.decisions,
            }
            for each in found.outputs
        ],
        "promise": _promise_values(found.promise),
        "accuracy": _accuracy_values(found.accuracy),
    }


def _promise_values(found: Promise | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "max_error": found.allowed,
        "mean_relative_error": found.measured,
        "judgement": found.judgement.value,
    }


def _accuracy_values(found: Accuracy | None) -> dict[str, Any] | None:
    if found is None:
        return None
    labelled = found.labels is not None
    return {
        "decisions": found.decisions,
        "plan": found.share(found.plan) if labelled else None,
        "model": found.share(found.model) if labelled else None,
        "with_average_pools": found.share(found.averaged) if labelled else None,
        "same_with_average_pools": found.share(found.same),
    }


def _accuracy_lines(found: Check, pools: bool) -> list[str]:
    accuracy = found.accuracy
    if accuracy is None:
        return []
    lines = []
    if accuracy.labels is not None:
        right = [units.percent(accuracy.share(n)) for n in (accuracy.plan, accuracy.model)]
        lines.append(
            f"Right of {accuracy.decisions} labelled decisions: {right[0]} of the plan's, "
            f"{right[1]} of the model's."
        )
    if pools:
        kept = f"{accuracy.same} of {accuracy.decisions} decisions"
        after = f", {units.percent(accuracy.share(accuracy.averaged))} right"
        told = after if accuracy.labels is not None else ""
        lines.append(f"With average pools the model keeps {kept}{told}.")
    return lines


def _layer_values(layer: LayerError, found: Check) -> dict[str, Any]:
    return {
        "name": layer.name,
        "ops": list(layer.ops),
        "ring_bits": layer.ring_bits,
        "frac_bits": layer.frac_bits,
        "factor": layer.factor,
        "worst_error": layer.worst,
        "mean_error": layer.mean,
        "mean_relative_error": layer.mean_relative,
        "relative_error": layer.relative,
        "headroom_bits": units.finite(layer.headroom_bits),
        "bits_lacking": bits_lacking(layer.relative, found.tolerance),
        "advice": found.advice(layer),
    }


def _tables(plan: Plan, found: Check) -> list[Table | str]:
    rows = [
        (
            layer.name,
            brief(layer.ops),
            layer.ring_bits,
            layer.frac_bits,
            f"{layer.worst:.2e}",
            f"{100 * layer.mean_relative:.3f}%",
            f"{100 * layer.relative:.3f}%",
            f"{layer.headroom_bits:.1f}",
        )
        for layer in found.layers
    ]
    headings = (
        "layer|protocols|#ring|#frac|#worst error|#mean of mean|#worst of largest|#headroom bits"
    )
    outside = [str(each) for each in found.excursions.values()]
    drift = found.first_drift
    return [
        Table.of(headings, rows),
        *(_output_line(output, found.samples) for output in found.outputs),
        f"Encoding: {plan.manifest.encoding}.",
        *([str(found.promise)] if found.promise else []),
        *(outside or ["No value left its range."]),
        ranges(plan),
        "No layer drifts." if drift is None else f"First layer that drifts: {drift.name}.",
        *([_harmless(drift, found)] if drift is not None and found.is_harmless else []),
    ]


def _harmless(drift: LayerError, found: Check) -> str:
    return (
        f"It is {drift.relative:.1%} of its largest value off. No output is more than "
        f"{found.tolerance:.1%} off, so that is no error; --tolerance judges layers too."
    )


def _output_line(output: OutputError, samples: int) -> str:
    counted = units.counted(samples, "sample")
    if isinstance(output, DecisionError):
        right = f"{output.agreeing} of {output.decisions}"
        return f"Output {output.name} on {counted}: {right} decisions are the model's."
    agreement = (
        f"; the largest is at the same place in {output.agreeing} of {output.decisions}"
        if output.decisions
        else ""
    )
    return (
        f"Output {output.name} on {counted}: {output.worst:.2e} off at the worst, "
        f"{output.mean:.2e} in the mean, which is {output.mean_relative:.3%} of the mean size; "
        f"values up to {units.real(output.largest)}{agreement}."
    )
