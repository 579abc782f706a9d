"""`veilgraph train`: one party's part in training a model, together with the others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination, read_archive, replacing
from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import REVEAL, Schedule
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Tell, progress, remark, show, show_json_line
from veilgraph.training.plan_steps import step_bytes
from veilgraph.training.trainer import Trainer

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
    help="How often each row is taken from here on, the same at every party.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Of the order of rows, the same at every party.",
)
@click.option(
    "--save",
    "state_file",
    type=arguments.PATH,
    metavar="FILE",
    help="Where this party's parts of all states are saved after each epoch, encrypted; what is "
    "there becomes FILE.before.",
)
@click.option(
    "--resume",
    type=arguments.PATH,
    metavar="FILE",
    help="A file that --save wrote: go on from there, with --first; all from the same step.",
)
@click.option(
    "--first",
    type=click.IntRange(min=1),
    metavar="STEP",
    help="With --resume: how many steps went before. The order of rows and the rates go on.",
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
    metavar="FILE.npz",
    help="With --reveal, where this party writes the parameters that it receives, by name.",
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
    resume: Path | None,
    first: int | None,
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
    _require_states(plan, party, state_file, resume, first)
    _require_reveal(plan, party, reveals, output_file)
    read = (plan_file, config_file, weights_file, data_file)
    if state_file is not None:
        check_destination(state_file, *read)  # what it resumes from it may write over
    if output_file is not None:
        check_destination(output_file, *read, resume)
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
            resume=resume,
            seed=seed,
            **options,
        ) as trainer,
    ):
        run = _Run(trainer, step_bytes(plan), epochs, first or 0, tell, as_json)
        for steps in run.epochs:
            trainer.fit(rate=rate, steps=steps, first=run.done, on_step=run.on_step)
            run.done += steps
            if state_file is not None:
                trainer.save(state_file)
        found = trainer.reveal() if reveals else {}
    if output_file is not None:
        _write(output_file, found)
    saved = None if state_file is None else str(state_file)
    if as_json:
        told = {"party": party, "steps": run.done, "seconds": run.seconds, "saved": saved}
        written = None if output_file is None else str(output_file)
        show_json_line({**told, "step_bytes": run.step_bytes, "parameters": written})
        return
    show(run.summary())
    if saved is not None:
        remark(f"To go on: --resume {saved} --first {run.done}, at every party.")
    if output_file is not None:
        show(f"The parameters are in {output_file}.")


class _Run:
    """Where a run of training is, told step by step.

    Attributes:
        done: steps that are done, those before this session among them.
        seconds: that the steps of this session took so far.
        step_bytes: what all parties send in a step, offline and online.
    """

    def __init__(
        self,
        trainer: Trainer,
        step_bytes: int,
        epochs: int,
        first: int,
        tell: Tell,
        as_json: bool,
    ) -> None:
        self.an_epoch = trainer.an_epoch
        self.done, self.step_bytes = first, step_bytes
        self._first, self._last = first, first + epochs * self.an_epoch
        self._tell, self._as_json = tell, as_json
        self._start, self.seconds = time.monotonic(), 0.0
        self._losses: list[float] = []

    @property
    def epochs(self) -> list[int]:
        """Steps up to the end of each epoch: the first may have begun before."""
        ends = range(self._first - self._first % self.an_epoch, self._last, self.an_epoch)
        stops = [min(end + self.an_epoch, self._last) for end in ends]
        return [b - a for a, b in zip([self._first, *stops], stops, strict=False)]

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
        count = self.done - self._first
        last = self._losses[-self.an_epoch :]
        mean = units.real(float(np.mean(last))) if last else ""
        lost = f"; the mean loss of the last epoch is {mean}" if mean else ""
        return (
            f"{units.counted(count, 'step')} in {units.duration(self.seconds)}, "
            f"{units.seconds(self.seconds / count)} and {units.size(self.step_bytes)} a step{lost}."
        )


def _require_states(
    plan: Plan, party: str, state_file: Path | None, resume: Path | None, first: int | None
) -> None:
    """UsageError for files of states that this party has not, or that a step number lacks."""
    keeps = party not in plan.programs or bool(plan.programs[party].states)
    if not keeps and (state_file or resume):
        raise UsageError(
            f"{party} keeps no state in this plan.", "Leave out --save and --resume; give --first."
        )
    if resume is not None and first is None:
        raise UsageError(
            "--resume goes on, and nothing says how many steps went before.",
            "Give --first STEP, as the party that saved was told.",
        )
    if keeps and first is not None and resume is None:
        raise UsageError("--first goes on, and nothing says from what.", "Give --resume FILE.")


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
        raise UsageError(f"{party} receives the parameters.", "Give --output FILE.npz.")
    if output_file is not None and not receives:
        raise UsageError(f"{party} receives no parameters here.", "Leave out --output.")


def _write(path: Path, parameters: Mapping[str, npt.NDArray[np.float32]]) -> None:
    with replacing(path) as file:
        arrays: dict[str, Any] = dict(parameters)
        np.savez(file, **arrays)
