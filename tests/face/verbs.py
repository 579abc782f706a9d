"""Running verbs of the command line in tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from veilgraph.cli import main
from veilgraph.plans import Plan
from veilgraph.runtime.store.weights import load_weights, save_weights

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@dataclass(frozen=True)
class Compiled:
    """A folder with the digits model, its plan, its weights, samples and one held-out digit."""

    folder: Path

    def file(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def plan(self) -> Plan:
        return Plan.load(self.folder / "digits.plan")

    def without_text(self, level: str) -> tuple[str, str]:
        """A plan that does not carry the program of one level, and its weights."""
        plan = self.plan
        weights = load_weights(self.file("digits.weights"), plan.digest)
        bare = replace(plan, ir={name: text for name, text in plan.ir.items() if name != level})
        bare.save(self.folder / "bare.plan")
        save_weights(weights, self.folder / "bare.weights", bare.digest)
        return self.file("bare.plan"), self.file("bare.weights")


def run_verb(*arguments: object) -> Result:
    """Runs the command line in this process; an error that it does not tell fails the test."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def ran(*arguments: object) -> str:
    """All that a verb prints, which ends well."""
    result = run_verb(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def json_of(*arguments: object) -> dict[str, Any]:
    """The one JSON object that a verb prints on standard output."""
    result = run_verb(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert isinstance(content, dict)
    return content


def reason(*arguments: object) -> tuple[int, str]:
    """Exit code and standard error of a verb that prints nothing else."""
    result = run_verb(*arguments)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.exit_code, result.stderr
