"""Fused programs that differ in names alone, compiled once in a process.

A transformer's blocks and a network's stages have the same actions, over other nodes, draws and
lengths. The **form** of an action says all that its compilation reads, nodes numbered from 0 in the
order in which the form meets them (passes/native/forms.cpp). Actions of one form share one program;
its streams, its draws with their keys and its number of elements are each action's own. Programs
are kept for later compilations, by all that their forms say.

    before:  fused {%7 = draw 3, %8 = sub %5 %7}    fused {%27 = draw 9, %28 = sub %25 %27}
    after:   one program; streams %5 and %8 with draw 3, streams %25 and %28 with draw 9
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np

from veilgraph.ir.party.columns import Columns, Flags, Int32s, Int64s
from veilgraph.kernels.fused.declaration import HEADER, INSTRUCTION
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.party.batch_rounds import Position, place_of
from veilgraph.passes.plan.fuse_local import Action, LocalSteps
from veilgraph.passes.plan.fused_code import Code, flags_of, fused_code, keys_of_draws

_WORDS = INSTRUCTION.itemsize // 8  # of an instruction; the last one is its immediate
_KEY = 2  # where the key of a draw is, in words of 32 bits
MOST_KEPT = 1 << 12  # programs of forms: a few kB each
MOST_NUMBERS = 1 << 16  # of values that a process keeps
_UNUSED = count()  # numbers that no value has had in this process


@dataclass(frozen=True)
class Template:
    """The program of a form.

    `streams` are numbers of nodes in the form, and `messages` says which streams are messages.
    `draws` are the instructions that draw, `drawn` the numbers of their nodes in the form.
    """

    params: Int64s
    streams: Int64s
    messages: Flags
    draws: Int64s
    drawn: Int64s

    @staticmethod
    def of(code: Code, nodes: Sequence[int]) -> Template:
        """The program of an action; `nodes` are the action's in the order of its form."""
        numbers = {node: number for number, node in enumerate(nodes)}
        return Template(
            code.params,
            np.array([numbers[node] for node in code.streams.tolist()], np.int64),
            code.messages,
            code.draws,
            np.array([numbers[node] for node in code.drawn.tolist()], np.int64),
        )


@dataclass(frozen=True)
class FusedPrograms:
    """The fused programs of one party, in the order of its actions.

    Attributes:
        counts: of each program its streams and its parameters.
        params: of all programs, one behind another.
        streams: the nodes of all streams, program by program.
        messages: which streams are messages.
    """

    counts: Sequence[tuple[int, int]]
    params: Int64s
    streams: Int64s
    messages: Flags


def fused_programs(steps: LocalSteps) -> list[FusedPrograms]:
    """Those of each party: each form that is new to the process is compiled at its first action."""
    actions = fused_actions(steps)
    form, first, numbered, said = forms(steps, actions)
    columns = steps.schedule.columns
    keys = keys_of_draws(columns, steps.schedule.program)
    templates = _templates(steps, keys, actions, form, (first, numbered), said)
    found, at = [], 0
    for own in actions:
        rows = slice(at, at + len(own))
        chosen = [templates[number] for number in form[rows].tolist()]
        found.append(_programs(columns, own, chosen, first[rows], numbered, keys))
        at += len(own)
    return found


def _templates(
    steps: LocalSteps,
    keys: Int32s,
    actions: Sequence[Sequence[tuple[Action, Position]]],
    form: Int32s,
    nodes: tuple[Int64s, Int32s],
    said: Sequence[bytes],
) -> list[Template]:
    """That of each form; `nodes` are those of all actions in the forms' orders, as lists."""
    every = [(party, *each) for party, own in enumerate(actions) for each in own]
    found = [_kept().get(each) for each in said]
    met = np.unique(form, return_index=True)[1].tolist()
    new = [number for number, template in enumerate(found) if template is None]
    codes = fused_code(steps, keys, [every[met[number]] for number in new]) if new else []
    first, numbered = nodes
    for number, code in zip(new, codes, strict=True):
        own = numbered[first[met[number]] : first[met[number] + 1]].tolist()
        found[number] = made = Template.of(code, own)
        _keep(said[number], made)
    return [template for template in found if template is not None]


@lru_cache(1)
def _kept() -> dict[bytes, Template]:
    """The programs of a process, by what their forms say."""
    return {}


def _keep(said: bytes, template: Template) -> None:
    if len(_kept()) >= MOST_KEPT:  # another thread may be adding the same
        _kept().clear()
    _kept()[said] = template


def fused_actions(steps: LocalSteps) -> list[list[tuple[Action, Position]]]:
    """Those of each party, in order."""
    return [
        [(action, s.position) for s in segments for action in s.actions if action.fused]
        for segments in steps.segments
    ]


def forms(
    steps: LocalSteps, actions: Sequence[Sequence[tuple[Action, Position]]]
) -> tuple[Int32s, Int64s, Int32s, list[bytes]]:
    """Of the fused actions of all parties their forms, counted in the order in which they are met,
    and their nodes in the forms' orders: where an action's begin in a list, and the list. Then what
    each form says, in this process.
    """
    columns = steps.schedule.columns
    every = [each for own in actions for each in own]
    sizes = [len(action.nodes) for action, _ in every]
    nodes = [node for action, _ in every for node in action.nodes]
    return native.forms_of(
        facts_of(columns),
        columns.party,
        columns.stage,
        columns.elements,
        columns.op.astype(np.int32),
        _numbers((type.kind, type.bits) for _, type in columns.tensors)[columns.tensor],
        _numbers(columns.pairs)[columns.attributes],
        _numbers(columns.tensors)[columns.tensor],
        flags_of(steps.stored, len(columns)),
        flags_of(steps.unpacked, len(columns)),
        columns.first,
        columns.args,
        np.repeat(np.arange(len(actions), dtype=np.int32), [len(own) for own in actions]),
        np.array([place_of(position) for _, position in every], np.int64),
        np.cumsum([0, *sizes], dtype=np.int64),
        np.array(nodes, np.int32),
    )


def _numbers(values: Iterable[Hashable]) -> Int32s:
    return np.array([*map(_number, values)], np.int32)


@lru_cache(MOST_NUMBERS)
def _number(value: Hashable) -> int:
    """The same for the same value, as long as that is kept; of no other value in this process."""
    return next(_UNUSED)


def _programs(
    columns: Columns,
    actions: Sequence[tuple[Action, Position]],
    templates: Sequence[Template],
    first: Int64s,
    numbered: Int32s,
    keys: Int32s,
) -> FusedPrograms:
    """One party's, each of its template; `first` is where an action's nodes are in `numbered`.

    `keys` are of all nodes that draw.
    """
    empty = np.zeros(0, np.int64)
    params = np.concatenate([empty, *(t.params for t in templates)])
    sizes = np.array([len(t.params) for t in templates], np.int64)
    starts = np.cumsum(sizes) - sizes
    leads = np.array([action.nodes[0] for action, _ in actions], np.int64)
    params[starts] = columns.steps[leads]
    drawn = np.array([len(t.draws) for t in templates], np.int64)
    draws = _WORDS * np.concatenate([empty, *(t.draws for t in templates)])
    draws += np.repeat(starts + HEADER, drawn)
    number = np.concatenate([empty, *(t.drawn for t in templates)]) + np.repeat(first, drawn)
    nodes = numbered[number]
    params[draws + _WORDS - 1] = columns.number[nodes]  # an instruction's immediate
    params.view(np.int32)[2 * draws + _KEY] = keys[nodes]
    streams = np.array([len(t.streams) for t in templates], np.int64)
    places = np.concatenate([empty, *(t.streams for t in templates)]) + np.repeat(first, streams)
    return FusedPrograms(
        list(zip(streams.tolist(), sizes.tolist(), strict=True)),
        params,
        numbered[places].astype(np.int64),
        np.concatenate([np.zeros(0, np.uint8), *(t.messages for t in templates)]),
    )
