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

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.columns import Columns, Flags, Int32s, Int64s
from veilgraph.kernels.fused.declaration import HEADER, INSTRUCTION
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.plan.fuse_local import Actions, Lists, LocalSteps
from veilgraph.passes.plan.fused_code import Code, Keys, fused_code, keys_of, keys_of_draws

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


@dataclass(frozen=True)
class FusedPrograms:
    """The fused programs of one party, in the order of its actions.

    Attributes:
        keys: that the party holds.
        counts: of each program its streams and its parameters, [programs, 2].
        params: of all programs, one behind another.
        streams: the nodes of all streams, program by program.
        messages: which streams are messages.
    """

    keys: Keys
    counts: Int64s
    params: Int64s
    streams: Int64s
    messages: Flags


def fused_programs(steps: LocalSteps) -> list[FusedPrograms]:
    """Those of each party: each form that is new to the process is compiled at its first action."""
    actions = fused_actions(steps)
    form, nodes, said = forms(steps, actions)
    columns, program = steps.schedule.columns, steps.schedule.program
    held = keys_of(program)
    keys = keys_of_draws(columns, program, held)
    laid_out = _LaidOut.of(_templates(steps, keys, actions, form, nodes, said))
    found = []
    for party, own_keys in enumerate(held):
        own = np.flatnonzero(actions.party == party)
        chosen = laid_out.take(form[own].astype(np.int64))
        made = _programs(columns, actions.leads[own], chosen, nodes.take(own), keys)
        found.append(FusedPrograms(own_keys, *made))
    return found


def _templates(
    steps: LocalSteps,
    keys: Int32s,
    actions: Actions,
    form: Int32s,
    nodes: Lists,
    said: Sequence[bytes],
) -> list[Template]:
    """That of each form; `nodes` are those of all actions in the forms' orders."""
    found = [_kept().get(each) for each in said]
    new = [number for number, template in enumerate(found) if template is None]
    if new:
        met = np.unique(form, return_index=True)[1][new]  # at its first action
        codes = fused_code(steps, keys, actions.take(met))
        templates = _templates_of(codes, nodes.take(met), len(steps.schedule.columns))
        for number, template in zip(new, templates, strict=True):
            found[number] = template
            _keep(said[number], template)
    return [template for template in found if template is not None]


def _templates_of(codes: Sequence[Code], nodes: Lists, count: int) -> Iterator[Template]:
    """Of programs of actions; `nodes` are the actions' in the orders of their forms."""
    numbers = np.empty(count, np.int64)  # of an action's nodes in its form
    ends = nodes.first.tolist()
    for code, (begin, end) in zip(codes, pairwise(ends), strict=True):
        numbers[nodes.rows[begin:end]] = np.arange(end - begin)
        streams, drawn = numbers[code.streams], numbers[code.drawn]
        yield Template(code.params, streams, code.messages, code.draws, drawn)


@lru_cache(1)
def _kept() -> dict[bytes, Template]:
    """The programs of a process, by what their forms say."""
    return {}


def _keep(said: bytes, template: Template) -> None:
    if len(_kept()) >= MOST_KEPT:  # another thread may be adding the same
        _kept().clear()
    _kept()[said] = template


def fused_actions(steps: LocalSteps) -> Actions:
    """Those of all parties, party by party."""
    return steps.actions.take(np.flatnonzero(steps.actions.fused))


def forms(steps: LocalSteps, actions: Actions) -> tuple[Int32s, Lists, list[bytes]]:
    """Of fused actions their forms, counted in the order in which they are met, and their nodes in
    the forms' orders. Then what each form says, in this process.
    """
    columns = steps.schedule.columns
    form, first, numbered, said = native.forms_of(
        facts_of(columns),
        columns.party,
        columns.stage,
        columns.elements,
        columns.op.astype(np.int32),
        _numbers((type.kind, type.bits) for _, type in columns.tensors)[columns.tensor],
        _numbers(columns.pairs)[columns.attributes],
        _numbers(columns.tensors)[columns.tensor],
        steps.is_stored,
        steps.is_unpacked,
        columns.first,
        columns.args,
        actions.party,
        actions.place,
        *actions.nodes,
    )
    return form, Lists(first, numbered), said


def _numbers(values: Iterable[Hashable]) -> Int32s:
    return np.array([*map(_number, values)], np.int32)


@lru_cache(MOST_NUMBERS)
def _number(value: Hashable) -> int:
    """The same for the same value, as long as that is kept; of no other value in this process."""
    return next(_UNUSED)


class _LaidOut(NamedTuple):
    """Templates one behind another; `messages` are of the rows of `streams`."""

    params: Lists
    streams: Lists
    messages: Lists
    draws: Lists
    drawn: Lists

    @staticmethod
    def of(templates: Sequence[Template]) -> _LaidOut:
        return _LaidOut(
            _lists([t.params for t in templates]),
            _lists([t.streams for t in templates]),
            _lists([t.messages for t in templates]),
            _lists([t.draws for t in templates]),
            _lists([t.drawn for t in templates]),
        )

    def take(self, chosen: Int64s) -> _LaidOut:
        """Some of them, in this order."""
        return _LaidOut(*(each.take(chosen) for each in self))


def _lists(rows: Sequence[npt.NDArray[Any]]) -> Lists:
    first = np.cumsum([0, *(len(each) for each in rows)])
    return Lists(first, np.concatenate(rows) if rows else np.zeros(0, np.int32))


def _programs(
    columns: Columns, leads: Int32s, templates: _LaidOut, nodes: Lists, keys: Int32s
) -> tuple[Int64s, Int64s, Int64s, Flags]:
    """One party's, as `FusedPrograms` has them, each of its template; `nodes` are its actions' in
    the forms' orders, `leads` the first ones as the actions have them.

    `keys` are of all nodes that draw.
    """
    first, numbered = nodes.first[:-1], nodes.rows
    params, starts = templates.params.rows.astype(np.int64), templates.params.first[:-1]
    params[starts] = columns.steps[leads]
    counts = [np.diff(each.first) for each in (templates.streams, templates.params)]
    drawn = np.diff(templates.drawn.first)
    draws = _WORDS * templates.draws.rows + np.repeat(starts + HEADER, drawn)
    made = numbered[templates.drawn.rows + np.repeat(first, drawn)]
    params[draws + _WORDS - 1] = columns.number[made]  # an instruction's immediate
    params.view(np.int32)[2 * draws + _KEY] = keys[made]
    places = templates.streams.rows + np.repeat(first, counts[0])
    streams = numbered[places].astype(np.int64)
    return np.stack(counts, axis=1), params, streams, templates.messages.rows.astype(np.uint8)
