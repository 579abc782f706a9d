"""The entry `audit` of a plan that trains: whether a state lies outside of its bounds, in one bit.

It is made when the step is: its states are those that the step keeps, in the encoding that this
found for them.
"""

from __future__ import annotations

from dataclasses import replace

from veilgraph.passes.graph.training.programs import Training
from veilgraph.passes.pipeline import CHOSEN, Stage
from veilgraph.passes.program import Level, Options, Program
from veilgraph.passes.ranges.calibrate import assume
from veilgraph.passes.secret.audit_states import audit_states, bound_of

SAID = "states as they are kept, compared with powers of two"
AUDIT_PASSES = ("audit_states", CHOSEN[0])


def audit_of(step: Program, training: Training, options: Options) -> tuple[Program, list[Stage]]:
    """The program that audits what a step keeps, and the passes that it goes through."""
    secret = step.secret
    states = [argument for argument in secret.arguments if argument.name in training.states]
    bounds = {state.name: bound_of(state, secret.margin) for state in states}
    program = Program(step.target, replace(options, samples=None), training.audit(bounds))
    program.ranges, program.questions = assume(program.graph), []

    def audit(program: Program) -> None:
        context = program.graph.module.context
        program.secret = audit_states(context, states, secret.margin, SAID)
        program.level = Level.SECRET

    reason = "nothing else tells that what nobody sees left its ring"
    return program, [(AUDIT_PASSES[0], reason, audit), CHOSEN]
