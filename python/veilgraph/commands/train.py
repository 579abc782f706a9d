"""`veilgraph train`: one party's part in training a model, together with the others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from safetensors.numpy import save

from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination, read_archive, replacing, write_archive
from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import CORRECT, EVALUATE, REVEAL, Recipe, Schedule
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Tell, progress, remark, show, show_json_line
from veilgraph.training.plan_steps import inputs_of, step_bytes
from veilgraph.training.runs.evaluations import require_evaluated
from veilgraph.training.trainer import Trainer
from veilgraph.verification.signatures import signature_file

if TYPE_CHECKING:
    import numpy.typing as npt

EPILOG = """\b
Example, three hosts, each with its own parties.yaml and key:
  alice$ veilgraph train digits.plan --party alice --config alice.yaml \\
             --data images.npz --rate 0.1 --epochs 3 --save alice.checkpoint
  bob$   veilgraph train digits.plan --party bob --config bob.yaml \\
             --data labels.npz --weights digits.weights --rate 0.1 --epochs 3 --save bob.checkpoint
  carol$ veilgraph train digits.plan --party carol --config carol.yaml \\
             --rows 4000 --rate 0.1 --epochs 3 --save carol.checkpoint
"""


@click.command("train", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@arguments.party_option
@arguments.config_option
@click.option(
    "--weights",
    "weights_file",
    type=arguments.PATH,
    metavar="FILE",
    help="The parameters as they begin: model.weights at their owner's, or model.PARTY.shares.",
)
@click.option(
    "--data",
    "data_file",
    type=arguments.PATH,
    metavar="FILE.npz",
    help="This party's rows: an array an input that is its own, `labels` among them.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many rows the others have, at a party that has none.",
)
@arguments.rate_option
@click.option(
    "--epochs",
    type=click.IntRange(1, 1_000_000),
    default=1,
    show_default=True,
    help="How often each row is taken, before --resume too; the same at every party.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the order of rows, the same at every party.",
)
@click.option(
    "--save",
    "state_file",
    type=arguments.PATH,
    metavar="FILE",
    help="Where this party's checkpoints are: its parts of all states, encrypted. The one before "
    "the last becomes FILE.before.",
)
@click.option(
    "--save-every",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="Between checkpoints, the same at every party.  [default: an epoch]",
)
@click.option(
    "--audit-every",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="After so many steps all states are compared with their bounds, and not only before a "
    "checkpoint; the same at every party.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on from the newest checkpoint that all parties have; the same at every party.",
)
@click.option(
    "--store",
    type=arguments.PATH,
    metavar="DIR",
    help="What `prepare --entry step` filled: steps have their offline phase from there, at every "
    "party that is there online, or at none. All else runs its own.",
)
@click.option(
    "--evaluate",
    "evaluates",
    is_flag=True,
    help="At the end, let whom the plan names have the model's outputs for rows, or how many "
    "answers are correct; the same at every party. With --resume and as many --epochs as were done "
    "nothing else is run.",
)
@click.option(
    "--evaluate-data",
    "rows_file",
    type=arguments.PATH,
    metavar="FILE.npz",
    help="With --evaluate, this party's rows: an array an input of the model that is its own, and "
    "`labels` where answers are counted.",
)
@click.option(
    "--evaluation",
    "evaluation_file",
    type=arguments.PATH,
    metavar="FILE.npz",
    help="With --evaluate, where the outputs go that this party receives, a row for each row.",
)
@click.option(
    "--reveal",
    "reveals",
    is_flag=True,
    help="At the end, let whom the plan names have the parameters; the same at every party.",
)
@click.option(
    "--output",
    "output_file",
    type=arguments.PATH,
    metavar="FILE.safetensors",
    help="With --reveal, where the parameters go that this party receives, for load_state_dict.",
)
@arguments.timeout_option
@arguments.plaintext_option
@arguments.trust_author_option
@arguments.device_option
@arguments.cubins_option
@arguments.threads_option
@arguments.isa_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a line of JSON for each step, and one at the end.",
)
def command(
    plan_file: Path,
    party: str,
    config_file: Path,
    weights_file: Path | None,
    data_file: Path | None,
    rows: int | None,
    rate: Schedule,
    epochs: int,
    seed: int,
    state_file: Path | None,
    save_every: int | None,
    audit_every: int | None,
    resume: bool,
    evaluates: bool,
    rows_file: Path | None,
    evaluation_file: Path | None,
    reveals: bool,
    output_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train by PLAN as one party, together with those on the other hosts.

    All parties start this within the timeout, with the same rate, epochs and seed. Rows stay with
    their owners: what the others get are shares. Who receives a loss or the parameters, the plan
    says; by default nobody does.
    """
    plan = Plan.load(plan_file)
    _require_reveal(plan, party, reveals, output_file)
    _require_evaluation(plan, party, evaluates, rows_file, evaluation_file)
    read = (plan_file, config_file, weights_file, data_file, rows_file)
    if state_file is not None:
        check_destination(state_file, *read)  # what it resumes from it may write over
    if output_file is not None:
        check_destination(output_file, *read, state_file)
    if evaluation_file is not None:
        check_destination(evaluation_file, *read, state_file, output_file)
    rows_to_evaluate = None if rows_file is None else read_archive(rows_file)
    data = None if data_file is None else read_archive(data_file)
    peers = ", ".join(name for name in plan.manifest.parties if name != party)
    with (
        progress(f"waiting for {peers}") as tell,
        Trainer(
            plan,
            party,
            config_file,
            data=data,
            rows=rows,
            weights=weights_file,
            checkpoint=state_file,
            resume=resume,
            seed=seed,
            signature=signature_file(plan_file),
            **options,
        ) as trainer,
    ):
        trainer.require_alike({"--evaluate": evaluates, "--reveal": reveals})
        run = _Run(trainer, step_bytes(plan), epochs, tell, as_json)
        if resume:
            remark(f"Going on after step {trainer.step}.")
        stored = trainer.session.left_in_store
        if stored is not None and stored < run.left:
            remark(f"The store has {stored} of the {units.counted(run.left, 'step')} to come.")
        if run.left > 0:
            every = save_every or trainer.an_epoch
            trainer.fit(
                rate=rate,
                steps=run.left,
                every=every,
                audit_every=audit_every,
                on_step=run.on_step,
            )
        evaluated = trainer.evaluate(rows_to_evaluate) if evaluates else {}
        correct, answers = evaluated.pop(CORRECT, None), trainer.answers
        if evaluation_file is not None:
            write_archive(evaluation_file, evaluated)
        found = trainer.reveal() if reveals else {}
        again = trainer.revealed
    if output_file is not None:
        _write(output_file, found)
    saved = None if state_file is None else str(state_file)
    if as_json:
        told = {"party": party, "steps": trainer.step, "seconds": run.seconds, "saved": saved}
        written = None if output_file is None else str(output_file)
        told |= {"step_bytes": run.step_bytes, "parameters": written}
        told |= {"evaluation": None if evaluation_file is None else str(evaluation_file)}
        counted = None if correct is None else int(correct.item())
        told |= {"correct": counted, "answers": answers or None}
        show_json_line({**told, "revealed": {n: count for n, (count, _) in again.items()}})
        return
    show(run.summary())
    for sentence in _repeated(again):
        remark(sentence)
    if saved is not None:
        remark("To go on: --resume and more --epochs, at every party.")
    if correct is not None:
        count = int(correct.item())
        share = units.percent(count / answers)
        show(f"{count} of {units.counted(answers, 'answer')} are correct: {share}.")
    if evaluation_file is not None:
        show(f"The outputs are in {evaluation_file}.")
    if output_file is not None:
        show(f"The parameters are in {output_file}.")


class _Run:
    """Where a run of training is, told step by step.

    Attributes:
        left: steps to come when this session began.
        seconds: that the steps of this session took so far.
        step_bytes: what all parties send in a step, offline and online.
    """

    def __init__(
        self,
        trainer: Trainer,
        step_bytes: int,
        epochs: int,
        tell: Tell,
        as_json: bool,
    ) -> None:
        self.an_epoch, self._an_epoch_tells = trainer.an_epoch, trainer.losses_an_epoch
        self.step_bytes, self._first = step_bytes, trainer.step
        self._last = epochs * self.an_epoch
        self.left = self._last - self._first
        self._tell, self._as_json = tell, as_json
        self._start, self.seconds = time.monotonic(), 0.0
        self._losses: list[float] = []

    def on_step(self, number: int, loss: float | None) -> None:
        """After each step."""
        before, self.seconds = self.seconds, time.monotonic() - self._start
        self._losses += [] if loss is None else [loss]
        done, left = number + 1 - self._first, self._last - number - 1
        if self._as_json:
            told = {"step": number, "loss": loss, "seconds": self.seconds - before}
            show_json_line({**told, "seconds_left": self.seconds / done * left})
            return
        lost = "" if loss is None else f", loss {units.real(loss)}"
        to_come = units.duration(self.seconds / done * left)
        sent = units.size(self.step_bytes)
        self._tell(f"step {number + 1} of {self._last}, {to_come} left, {sent} a step{lost}")

    def summary(self) -> str:
        """What was done, in a sentence."""
        count = self.left
        if count <= 0:
            return f"All {units.counted(self._last, 'step')} were done before."
        last = self._losses[-self._an_epoch_tells :]
        mean = units.real(float(np.mean(last))) if last else ""
        lost = f"; the mean loss of the last epoch is {mean}" if mean else ""
        return (
            f"{units.counted(count, 'step')} in {units.duration(self.seconds)}, "
            f"{units.seconds(self.seconds / count)} and {units.size(self.step_bytes)} a step{lost}."
        )


def _repeated(revealed: Mapping[str, tuple[int, int]]) -> list[str]:
    """What was told again of a step: whoever was told has the difference too."""
    return [
        f"{units.counted(again, 'run')} of `{entry}` told again what runs before a resume had told "
        f"of the same step: {units.counted(count, 'revelation')} in all."
        for entry, (count, again) in revealed.items()
        if again
    ]


def _require_reveal(plan: Plan, party: str, reveals: bool, output_file: Path | None) -> None:
    """UsageError for parameters that nobody or another party receives, or that go to no file."""
    if reveals and REVEAL not in plan.manifest.entries:
        raise UsageError(
            "This plan reveals its parameters to nobody.",
            "Compile it with --reveal parameters=PARTY.",
        )
    entries = plan.manifest.entries
    own = plan.programs[party].outputs if party in plan.programs else ()
    receives = reveals and any(entries[tensor.entry] == REVEAL for tensor in own)
    if receives and output_file is None:
        raise UsageError(f"{party} receives the parameters.", "Give --output FILE.safetensors.")
    if output_file is not None and not receives:
        raise UsageError(f"{party} receives no parameters here.", "Leave out --output.")


def _require_evaluation(
    plan: Plan, party: str, evaluates: bool, rows_file: Path | None, output_file: Path | None
) -> None:
    """UsageError for rows or outputs of an evaluation that this party lacks, or has no use for."""
    if evaluates:
        require_evaluated(plan)
    elif rows_file is not None or output_file is not None:
        raise UsageError("Nothing is evaluated here.", "Give --evaluate at every party.")
    if party not in plan.programs or not evaluates:  # Session refuses others
        return
    recipe = Recipe.of(plan.manifest.options)
    inputs = [tensor.name for tensor in inputs_of(plan, EVALUATE, party)]
    owns = ", ".join(f"`{recipe.batch.whole(name)}`" for name in inputs if recipe.is_row(name))
    if bool(owns) != (rows_file is not None):
        told = f"has rows of {owns} here" if owns else "owns no input of the model"
        hint = "Give its rows with --evaluate-data FILE.npz." if owns else "Leave its rows out."
        raise UsageError(f"{party} {told}.", hint)
    number = plan.manifest.entries.index(EVALUATE)
    receives = any(tensor.entry == number for tensor in plan.programs[party].outputs)
    if receives != (output_file is not None):
        told = "receives the outputs" if receives else "receives no output"
        hint = "Give --evaluation FILE.npz." if receives else "Leave out --evaluation."
        raise UsageError(f"{party} {told}.", hint)


def _write(path: Path, parameters: Mapping[str, npt.NDArray[Any]]) -> None:
    with replacing(path) as file:
        file.write(save({name: np.asarray(x, order="C") for name, x in parameters.items()}))
