"""The entry `share` of a plan that trains: a batch of rows becomes the states that a step finds.

It is made when the step is: rows are shared in the very encoding that the step reads them in, so
nothing is computed. What is kept of them between steps is at run time (data_sets.py).
"""

from __future__ import annotations

from dataclasses import replace

from veilgraph.ir.secret.program import SecretProgram
from veilgraph.passes.graph.training.programs import Training
from veilgraph.passes.pipeline import CHOSEN, Stage
from veilgraph.passes.program import Level, Options, Program
from veilgraph.passes.ranges.calibrate import assume

SAID = "rows as a step reads them"
SHARE_PASSES = ("share_rows", CHOSEN[0])


def shares_of(step: Program, training: Training, options: Options) -> tuple[Program, list[Stage]]:
    """The program that shares a batch of rows, and the passes that it goes through."""
    states = {argument.name: argument for argument in step.secret.arguments}
    rows = [
        replace(states[held], name=name, role="input", owner=step.target.owner(name))
        for name, held in training.held.items()
    ]
    kept = {held: f"{held}.next" for held in training.held.values()}
    given = replace(options, samples=None, states=kept)
    program = Program(step.target, given, training.sharing())
    program.ranges, program.questions = assume(program.graph), []

    def share(program: Program) -> None:
        context, margin = program.graph.module.context, step.secret.margin
        program.secret = SecretProgram.create(context, rows, {}, SAID, margin)
        program.secret.finish(dict(zip(kept.values(), program.secret.block.arguments, strict=True)))
        program.level = Level.SECRET

    reason = "steps find rows as all parties keep them"
    return program, [(SHARE_PASSES[0], reason, share), CHOSEN]
