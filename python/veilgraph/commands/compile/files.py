"""The files of `veilgraph compile`: models to read, and plans, weights and shares to write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veilgraph.checks.kept_ranges import ranges_file
from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination
from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.file_kinds import FileKind, mistaken
from veilgraph.ir.plan.tables import SHARED, WEIGHTS
from veilgraph.model_files import require_model_file
from veilgraph.runtime.session.certificates import load_certificate
from veilgraph.runtime.store.certificate_locks import public_key


def models_to_read(
    model: Path | None, entries: tuple[tuple[str, str], ...], *, compares: bool
) -> list[Path]:
    """The files to read; UsageError unless there is one MODEL, or entries, and no other files."""
    named = arguments.by_name("--entry", entries)
    if (model is None) == (not named):
        raise UsageError(
            "One MODEL is compiled, or one --entry after another.",
            "Give a model, or --entry NAME=MODEL for each of several.",
        )
    if named and compares:
        raise UsageError("Comparisons are of one model, and these are several.", "Name MODEL.")
    models = [model] if model is not None else [Path(file) for file in named.values()]
    for file in models:
        require_model_file(file)
    return models


def plan_beside(models: list[Path], options: Mapping[str, Any], *, force: bool) -> Path:
    """model.plan for model.onnx, named after the first of several.

    Args:
        options: of `compile`.

    Raises:
        UsageError: that would write over an earlier compile.
        UsageError, UnsupportedError: what is wrong with a model that is the only one comes first.
    """
    plan = models[0].with_suffix(".plan")
    if not models[0].exists() or force:
        return plan  # what is wrong with the model is said when it is read
    for file in (plan, plan.with_suffix(".weights"), ranges_file(plan)):
        if file.exists():
            if len(models) == 1:
                _import(models[0], options)
            raise UsageError(
                f"{file} is there already.", "Give --force to replace it, or another name with -o."
            )
    return plan


def _import(model: Path, options: Mapping[str, Any]) -> None:
    # With the importers, which no other verb needs.
    from veilgraph.compilation.models import import_model

    import_model(model, options["shapes"], public=options["public"])


def check_files(models: list[Path], samples: Path | None, destination: Path) -> Path:
    """Where the weights go; refuses what would be written over."""
    if not models[0].exists() and destination.parent == models[0].parent:
        return destination  # that it is not there is told, and nothing of its folder
    check_destination(destination, samples)
    weights_file = destination.with_suffix(".weights")
    check_destination(weights_file, samples)
    for file in (destination, weights_file):
        refuse_models(models, file)
    if weights_file == destination:
        raise UsageError(
            f"{destination} is the name that the weights get.", "Name the plan like -o model.plan."
        )
    return weights_file


def read_names(files: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The lines of each file, by input; UsageError for what can't be read as text."""
    found = {}
    for name, file in files.items():
        try:
            lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}.", "Check it.") from error
        except UnicodeDecodeError as error:
            told = mistaken(file, FileKind.TEXT, "text file of names")
            raise UsageError(told, "Write a column's name a line, in UTF-8.") from error
        found[name] = tuple(line.strip() for line in lines if line.strip())
    return found


def certificates_by_party(
    given: tuple[tuple[str, str], ...], owners: Mapping[str, str]
) -> dict[str, Path]:
    """The certificate to encrypt each party's shares to; refuses what none can be encrypted to."""
    if given and owners.get(WEIGHTS) != SHARED:
        raise UsageError(
            "--certificate is for files of shares, and this plan has none.",
            "Add --owner weights=shared.",
        )
    found = {party: Path(file) for party, file in arguments.by_name("--certificate", given).items()}
    holders: dict[bytes, str] = {}
    for party, file in found.items():
        other = holders.setdefault(public_key(load_certificate(file)), party)
        if other != party:
            raise UsageError(
                f"{party} and {other} have the same key.", "Every party has its own certificate."
            )
    return found


def refuse_models(models: list[Path], file: Path) -> None:
    """UsageError for a file to write that is a model."""
    if file.exists() and any(m.exists() and file.samefile(m) for m in models):
        raise UsageError(
            f"{file} is the model itself, and would be overwritten.", "Choose another -o."
        )
