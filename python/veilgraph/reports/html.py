"""One page about a plan, to look at rather than to read: `inspect --html` and `check --html`.

Self-contained: no script, no font, no image from anywhere, and a policy that lets browsers load
none. Plans are untrusted: all text goes through `markup`, which escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from veilgraph.checks.promises import Judgement
from veilgraph.commands.files import replacing
from veilgraph.ir.errors import SecurityAbort
from veilgraph.ir.plan.tables import Magnitudes
from veilgraph.measuring.pricing import LayerPrice, Prediction
from veilgraph.plans import Plan
from veilgraph.reports import text as reports
from veilgraph.reports import units
from veilgraph.reports.headroom import Bounds, bounds
from veilgraph.reports.layer_graph import LayerGraph, drawing
from veilgraph.reports.markup import Element, Node, tag
from veilgraph.reports.tables import Table
from veilgraph.verification.findings import Verified

if TYPE_CHECKING:  # a party's host has no MLIR, which checking needs
    from veilgraph.checks.layer_errors import Check, LayerError

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
NEAR_BITS = 1.0  # of headroom: what the usual margin of two leaves
CHART_BITS = 28  # powers of two that a chart of magnitudes shows
CHART = (140, 26)  # its size in pixels


@dataclass(frozen=True)
class Subject:
    """What a page is about: the plan's file, the model's name if it is known, and the day."""

    plan_name: str
    model_name: str
    day: date

    def __str__(self) -> str:
        model = f"{self.model_name} in " if self.model_name else ""
        return f"{model}{self.plan_name}, {self.day.isoformat()}"


@dataclass(frozen=True)
class Row:
    """A layer, as the table shows it.

    Attributes:
        key: of the layer in the graph; an output has its own.
        bounds: of the largest value on the samples, or of the calibrated range, where it is known.
        magnitudes: of the layer's values, where a plan or a check has them.
        error: how far the layer was off, where a check compared it.
    """

    key: str
    price: LayerPrice
    bounds: Bounds | None = None
    magnitudes: Magnitudes | None = None
    error: LayerError | None = None


def write_report(
    path: Path,
    plan: Plan,
    predicted: Prediction,
    found: Check | None = None,
    verified: Verified | None = None,
    subject: Subject | None = None,
) -> None:
    """Writes the page; UsageError where it can't be written."""
    with replacing(path) as file:
        file.write(page(plan, predicted, found, verified, subject).encode())


def page(
    plan: Plan,
    predicted: Prediction,
    found: Check | None = None,
    verified: Verified | None = None,
    subject: Subject | None = None,
) -> str:
    """The page as text.

    Args:
        found: what `check` saw, which adds errors and the samples' magnitudes.
        verified: what holds of the plan; it is verified here if that is not known yet.
        subject: what the title names, besides the outputs.
    """
    style = files("veilgraph.reports").joinpath("report.css").read_text(encoding="utf-8")
    title = str(subject) if subject else ", ".join(plan.manifest.receivers)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} - Veilgraph"),
        tag("style", style),
    )
    body = tag("body", _header(plan, subject), _cards(predicted, found), *_verdict(found))
    rows = _rows(plan, predicted, found)
    sections = [_layers(plan, predicted, rows, found), *_outputs(found)]
    sections += [_learns(plan, verified or reports.verified_or_why(plan)), _end(plan)]
    body = tag("body", body.children, sections)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _header(plan: Plan, subject: Subject | None) -> list[Element]:
    manifest = plan.manifest
    inputs = [f"{t.name} ({units.shape(t.shape)}) of {t.owner}" for t in reports.plan_inputs(plan)]
    outputs = [
        f"{t.name} ({units.shape(t.shape)}) for {t.owner.replace(',', ' and ')}"
        for t in reports.plan_outputs(plan)
    ]
    others = [n for n in manifest.parties if n not in manifest.computing]
    beside = "".join(f", {name} the {manifest.roles[name]}" for name in others)
    named = [tag("p", str(subject), class_="subject")] if subject else []
    return [
        *named,
        tag("h1", f"{' and '.join(inputs)} → {' and '.join(outputs)}"),
        tag(
            "p",
            f"Computed by {', '.join(manifest.computing)}{beside} in suite {manifest.suite}: "
            f"{manifest.security}. Weights: {reports.weights_holder(plan)}.",
            class_="soft",
        ),
        tag("p", f"Encoding: {manifest.encoding}.", class_="soft small"),
    ]


def _cards(predicted: Prediction, found: Check | None) -> Element:
    cost, network = predicted.cost, predicted.network.name
    told = [
        (units.seconds(predicted.online_seconds), f"online on {network}, predicted"),
        (units.seconds(predicted.offline_seconds), "offline before it"),
        (str(cost.online.rounds), "rounds online"),
        (units.size(cost.online.total_bytes), "sent online by all"),
        (units.size(cost.offline.total_bytes), "sent offline"),
        (units.size(cost.setup.total_bytes), "sent in setup, once"),
    ]
    if found is not None and found.outputs:
        worst = max(found.outputs, key=lambda output: output.mean_relative)
        told.append((f"{worst.mean_relative:.3%}", f"mean error of {worst.name}"))
    cards = [tag("div", tag("b", value), tag("span", what), class_="card") for value, what in told]
    return tag("div", cards, class_="cards")


def _verdict(found: Check | None) -> list[Element]:
    if found is None:
        return []
    status = found.status()
    if status is None:
        sentence = f"On {units.counted(found.samples, 'sample')} no value left its range, and no "
        kept = found.promise
        told = f" {kept}" if kept else ""
        fine = kept is None or kept.judgement is Judgement.KEPT
        what = "output" if found.first_drift else "layer"
        return [
            tag(
                "p",
                f"{sentence}{what} drifted.{told}",
                class_="verdict" if fine else "verdict open",
            )
        ]
    return [tag("p", f"{status.message} {status.hint}", class_="verdict bad")]


# Layers


def _rows(plan: Plan, predicted: Prediction, found: Check | None) -> list[Row]:
    graph = LayerGraph.of(plan, predicted.entry)
    errors = {layer.name: layer for layer in found.layers} if found else {}
    kept = {entry.name: entry for entry in plan.magnitudes}
    rows = []
    for price in predicted.layers:
        output = "reveal" in price.ops
        error = None if output else errors.get(price.name)
        found_bounds = bounds(price, graph)
        magnitudes = None if output else kept.get(price.name)
        if error is not None:
            magnitudes = error.magnitudes.result(price.name) or magnitudes
            if found_bounds is not None and math.isfinite(error.headroom_bits):
                largest = found_bounds.limit - error.headroom_bits
                found_bounds = replace(found_bounds, largest=largest)
        key = f"output {price.name}" if output else price.name
        rows.append(Row(key, price, found_bounds, magnitudes, error))
    return rows


def _layers(plan: Plan, predicted: Prediction, rows: Sequence[Row], found: Check | None) -> Element:
    graph = LayerGraph.of(plan, predicted.entry)
    for name, source in zip(graph.outputs, graph.returned, strict=False):
        graph.sources[f"output {name}"] = [source]
    edges = graph.edges([row.key for row in rows])
    seconds = max((row.price.seconds for row in rows), default=0)
    sent = max((_sent(row) for row in rows), default=0)
    rounds = max((row.price.rounds for row in rows), default=0)
    worst = max((row.error.relative for row in rows if row.error), default=0)
    lines = []
    for number, row in enumerate(rows):
        drawn = [tag("td", drawing(edges, len(rows)), rowspan=len(rows), class_="drawn")]
        price = row.price
        cells: list[Node] = [
            *(drawn if number == 0 else []),
            tag("td", price.name, class_="name", title=price.name),
            tag(
                "td",
                reports.short_protocols(price, graph.functions.get(row.key, ())),
                class_="soft small protocols",
                title=reports.protocols(price),
            ),
            tag("td", _encoding(row), class_="soft small number"),
            tag("td", _bar([price.seconds], seconds, units.seconds(price.seconds))),
            tag(
                "td", _bar([price.online_bytes, price.offline_bytes], sent, units.size(_sent(row)))
            ),
            tag("td", _bar([price.rounds], rounds, str(price.rounds)), class_="rounds"),
            tag("td", _chart(row)),
        ]
        if found is not None:
            cells.append(tag("td", _error(row.error, worst, found.tolerance)))
        lines.append(tag("tr", cells))
    headings = ["", "layer", "protocols", "ring.frac", "time", "bytes", "rounds", "headroom"]
    headings += ["worst error"] if found is not None else []
    head = tag("tr", [tag("th", heading) for heading in headings])
    return tag(
        "section",
        tag("h2", "Layers"),
        tag("div", tag("table", head, lines, class_="layers"), class_="panel"),
        _legend(found is not None),
        tag("p", reports.assumptions(predicted), class_="soft small"),
    )


def _sent(row: Row) -> int:
    return row.price.online_bytes + row.price.offline_bytes


def _encoding(row: Row) -> str:
    last = row.price.last
    return f"{last.ring_bits}.{last.frac_bits}" if last.ring_bits else ""


def _bar(parts: Sequence[float], largest: float, told: str, kind: str = "") -> list[Node]:
    """Stacked parts of the longest bar there is; nothing for zero."""
    if not largest or not sum(parts):
        return [""]
    widths = [f"width:{100 * part / largest:.2f}%" for part in parts]
    inside = [tag("i", style=width) for width in widths]
    return [tag("span", inside, class_=f"bar {kind}".strip()), tag("span", told)]


def _error(error: LayerError | None, worst: float, tolerance: float) -> list[Node]:
    """A layer's worst error on a logarithmic scale, from a millionth up."""
    if error is None:
        return [""]
    share = 1 + math.log10(max(error.relative, 1e-6)) / 6
    kind = (
        "over"
        if error.relative > tolerance
        else "near"
        if error.relative > tolerance / 4
        else "fine"
    )
    told = f"{error.relative:.3%}"
    return _bar([max(share, 0.02)], max(1.0, 1 + math.log10(max(worst, 1e-6)) / 6), told, kind)


def _chart(row: Row) -> Node:
    """How large values are, by powers of two, below the limit that is the right edge."""
    if row.bounds is None:
        return ""
    headroom = row.bounds.headroom_bits
    width, height = CHART
    step = width / CHART_BITS
    kind = "over" if headroom < 0 else "near" if headroom < NEAR_BITS else "fine"
    free = min(max(headroom, 0), CHART_BITS) * step
    drawn = [
        tag("line", x1=0, x2=width, y1=height - 1, y2=height - 1, class_="axis"),
        tag("rect", x=f"{width - free:.1f}", y=0, width=f"{free:.1f}", height=height - 1,
            class_=f"room {kind}"),
        *_shares(row.bounds, row.magnitudes),
        tag("line", x1=width - 1, x2=width - 1, y1=0, y2=height, class_="limit"),
    ]  # fmt: skip
    return tag(
        "svg",
        tag("title", f"{headroom:.1f} bits of headroom below 2^{row.bounds.limit:.0f}"),
        drawn,
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
    )


def _shares(bounds: Bounds, magnitudes: Magnitudes | None) -> list[Element]:
    """Bars of the shares that are known; else one line at the largest value."""
    width, height = CHART
    step = width / CHART_BITS
    if magnitudes is None:
        x = width - bounds.headroom_bits * step
        line = tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=4, y2=height - 1, class_="edge")
        return [line] if 0 <= x <= width else []
    found = []
    largest = max((*magnitudes.shares, 1))
    for place, share in enumerate(magnitudes.shares[:-1]):
        right = width - (bounds.limit - magnitudes.top + place) * step
        tall = (height - 3) * math.sqrt(min(share, largest) / largest)
        if share > 0 and step <= right <= width + step:
            found.append(
                tag("rect", x=f"{right - step + 0.5:.1f}", y=f"{height - 1 - tall:.1f}",
                    width=f"{step - 1:.1f}", height=f"{tall:.1f}", class_="share")
            )  # fmt: skip
    return found


def _legend(checked: bool) -> Element:
    told = [
        (tag("i", style="background:var(--accent)"), "online, or all of it"),
        (tag("i", style="background:var(--second)"), "offline"),
        (
            tag("i", style="background:var(--good)"),
            "room left below the limit, a power of two a step.",
        ),
    ]
    of_what = " Errors are shares of a layer's largest value, on a logarithmic scale."
    errors = of_what if checked else ""
    note = (
        " Bars in the charts of headroom are the values on the samples, where they are known; a "
        "line is their largest. A layer's time is as if it ran alone."
    )
    return tag("p", [part for pair in told for part in pair], note, errors,
               class_="soft small legend")  # fmt: skip


# What is told besides


def _outputs(found: Check | None) -> list[Element]:
    if found is None:
        return []
    rows = [
        (
            output.name,
            f"{output.mean_relative:.3%}",
            f"{output.worst:.2e}",
            f"{output.agreeing} of {output.decisions}" if output.decisions else "",
        )
        for output in found.outputs
    ]
    headings = (
        "output",
        "mean error, of the mean size",
        "worst error",
        "largest at the same place",
    )
    parts = [tag("h2", "Beside the model"), _panel(headings, rows)]
    if found.excursions:
        told = [(str(each),) for each in found.excursions.values()]
        parts.append(_panel(("values that left their range",), told))
    return [tag("section", parts)]


def _learns(plan: Plan, verified: Verified | SecurityAbort) -> Element:
    parts: list[Node] = [tag("h2", "Who learns what")]
    for content in reports.reveals(plan, verified):
        if isinstance(content, Table):
            parts.append(_panel([column.heading for column in content.columns], content.rows))
        else:
            parts.append(tag("p", content, class_="soft"))
    return tag("section", parts)


def _panel(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> Element:
    head = tag("tr", [tag("th", heading) for heading in headings])
    lines = [tag("tr", [tag("td", str(cell)) for cell in row]) for row in rows]
    return tag("div", tag("table", head, lines), class_="panel small")


def _end(plan: Plan) -> Element:
    options: Mapping[str, object] = plan.manifest.options
    told = ", ".join(
        f"{name}={value}" for name, value in options.items() if value not in (None, {})
    )
    return tag(
        "footer",
        tag("p", f"Veilgraph {plan.manifest.veilgraph_version}; compiled with {told}."),
        tag("p", f"digest {plan.digest}", class_="mono"),
    )
