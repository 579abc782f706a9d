"""The comparisons of `veilgraph compile`: they compile a model several times, and write nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from veilgraph.checks.comparison import (
    MORE_NETWORKS,
    NETWORKS,
    Candidate,
    compare_errors,
    compare_owners,
    compare_protections,
    compare_protocols,
    compare_suites,
    table,
)
from veilgraph.commands import arguments
from veilgraph.ir.errors import UsageError
from veilgraph.reports.tables import progress, show, show_json

# Names of options with --compare-suites, which takes each suite's own and writes nothing.
NOT_BY_SUITE = (
    "destination",
    "suite",
    "parties",
    "dealer",
    "clients",
    "owners",
    "receivers",
    "forms",
    "protocols",
    "dump_phases",
    "state",
    "state_range",
)
KEPT_BY_SUITE = (
    "cache",
    "network",
    "public",
    "trees",
    "categories",
    "calibrate",
    "ring",
    "frac_bits",
    "max_error",
    "avgpool",
    "trust_ranges",
    "keep_clips",
    "protect_weights",
    "goal",
    "prepared",
    "most_store",
    "roles",
)


def suites(model: Path, as_json: bool, options: dict[str, Any]) -> None:
    """Shows the suites side by side; parties and owners are each suite's defaults."""
    _refuse(
        "--compare-suites",
        NOT_BY_SUITE,
        "It tries every suite with parties of its own, and writes nothing: leave one out.",
    )
    kept = {name: options[name] for name in KEPT_BY_SUITE}
    shapes = arguments.by_name("--shape", options["shapes"])
    _show("suites", "who may be curious", as_json, compare_suites, model, shapes=shapes, **kept)


def owners(model: Path, as_json: bool, options: dict[str, Any]) -> None:
    """Shows who may have the weights side by side, under the same options."""
    _refuse("--compare-owners", ("destination",), "It writes nothing: leave one out.")
    _show("owners", "who has the weights", as_json, compare_owners, model, **options)


def protections(model: Path, as_json: bool, options: dict[str, Any]) -> None:
    """Shows side by side what keeps a receiver from fitting weights to how values were rounded."""
    _refuse(
        "--compare-protections",
        ("destination", "protect_weights"),
        "It writes nothing, and tries each protection itself: leave one out.",
    )
    kept = {name: value for name, value in options.items() if name != "protect_weights"}
    _show("protections", "what a receiver learns", as_json, compare_protections, model, **kept)


def errors(model: Path, allowed: tuple[float, ...], as_json: bool, options: dict[str, Any]) -> None:
    """Shows what each error allowed costs, and what was measured."""
    _refuse(
        "--compare-errors",
        ("destination", "max_error"),
        "It writes nothing, and has the errors itself: leave one out.",
    )
    if options["calibrate"] is None:
        raise UsageError(
            "--compare-errors needs samples: errors are measured on them.",
            "Give some: --calibrate samples.npz.",
        )
    kept = {name: value for name, value in options.items() if name != "max_error"}
    _show("errors", "error", as_json, compare_errors, model, allowed=allowed, **kept)


def protocols(model: Path, as_json: bool, options: dict[str, Any]) -> None:
    """Shows what is chosen by each network, by bytes and by rounds, and what it takes on each."""
    _refuse(
        "--compare-protocols",
        ("destination", "goal"),
        "It writes nothing, and chooses in every way itself: leave one out.",
    )
    kept = {name: value for name, value in options.items() if name != "goal"}
    networks = tuple(dict.fromkeys((*MORE_NETWORKS, options["network"])))
    _show("choices", "chosen", as_json, compare_protocols, model, networks, **kept)


def _given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _refuse(comparison: str, names: tuple[str, ...], hint: str) -> None:
    """UsageError for options that a comparison tries itself, or has no use for."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and _given(context, option.name):
            raise UsageError(f"{option.opts[-1]} makes no sense with {comparison}.", hint)


def _show(
    key: str,
    heading: str,
    as_json: bool,
    compare: Callable[..., list[Candidate]],
    model: Path,
    networks: tuple[str, ...] = (),
    **options: Any,
) -> None:
    chosen = _given(click.get_current_context(), "network")
    networks = networks or ((options["network"],) if chosen else NETWORKS)
    with progress(f"compiling for each of the {key}") as tell:
        found = compare(model, progress=tell, **options)
    if as_json:
        show_json({key: [candidate.values(networks) for candidate in found]})
        return
    show(table(found, networks, heading))
