"""States over runs: what two runs show together says nothing, and programs that leak are refused.

Views of two runs in a row are enumerated in a tiny ring: all secrets, all draws of both runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from conformance import SETTINGS, Setting
from receivers import asked
from views import Array, as_numbers, draw_nodes, is_known, unknown_bits

from veilgraph.ir.meaning.party import DrawSource, Evaluation, evaluate
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Draw, Shape
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind, Type, words
from veilgraph.passes.party.batch_rounds import Schedule, batch_rounds
from veilgraph.passes.party.verify_masking import MaskingError, coalitions, verify_masking
from veilgraph.targets.blocks.linear import add
from veilgraph.targets.parties import Form, Member, Operation

BITS = 2
RING = words(BITS)
OWNER = 0
SECURE = [s for s in SETTINGS if s.suite.security.coalition and s.computing < 5]
# A product of three parties and a dealer has more draws than can be enumerated twice.
ENUMERATED = [(s, "sum") for s in SECURE] + [(s, "product") for s in SECURE[:2]]


def traced(setting: Setting, elements: int, form: str) -> Schedule:
    """One run: s becomes s + x, or s x + s, and is kept."""
    program = Program(setting.target.everyone)
    p, suite, shape = setting.target.placed(program), setting.suite, (elements,)
    states = suite.states
    assert states is not None
    with program.in_phase(Phase.ONLINE):
        x = suite.share(p, Member(OWNER), program.source("input", "x", OWNER, shape, RING))
        s = states.found(p, "s", shape, RING)
    times = Operation("mul", shape, BITS, {})
    grown = add(p, times, s, x if form == "sum" else suite.called(p, "mul")(p, times, s, x))
    with program.in_phase(Phase.ONLINE):
        states.keep(p, "s", grown)
    return batch_rounds(program)


def held(setting: Setting, coalition: Sequence[int]) -> set[int]:
    """The parts of a state that a coalition has."""
    if setting.suite.name == "rep3":
        return {j % 3 for i in coalition for j in (i, i + 1)}
    return set(coalition)


def parts_of(setting: Setting, coalition: Sequence[int], secret: int, seed: int) -> list[int]:
    """Parts of a state; those that the coalition has are the same whatever the state is."""
    generator = np.random.default_rng(seed)
    parts = [int(part) for part in generator.integers(1 << BITS, size=setting.computing)]
    free = max(set(range(setting.computing)) - held(setting, coalition))
    parts[free] = (secret - sum(parts) + parts[free]) % (1 << BITS)
    return parts


def chosen(schedule: Schedule, coalition: Sequence[int], choices: Array, seed: int) -> DrawSource:
    """Element i of all that is unknown is choice i; what is known is the same for all."""
    places, place = {}, 0
    for number, (draw, type) in sorted(draw_nodes(schedule).items()):
        if not is_known(draw, coalition):
            places[number] = place
            place += type.bits

    def source(draw: Draw, shape: Shape, type: Type) -> Array:
        assert type.kind is Kind.WORDS
        if draw.number in places:
            return choices >> np.uint64(places[draw.number]) & np.uint64((1 << type.bits) - 1)
        fixed = np.random.default_rng([seed, draw.number]).integers(1 << type.bits)
        return np.full(shape, fixed, np.uint64)

    return source


def seen(
    schedule: Schedule, done: Evaluation, coalition: Sequence[int]
) -> Iterator[npt.NDArray[np.uint64]]:
    """What a coalition is sent, and what it keeps."""
    nodes = schedule.program.nodes
    for i in schedule.live:
        outside = nodes[i].op is ops.SEND and nodes[nodes[i].args[0]].party not in coalition
        if outside and nodes[i].party in coalition:
            yield as_numbers(done.values[i], nodes[i].type)
    for (party, _), value in sorted(done.kept.items()):
        if party in coalition:
            yield as_numbers(value, RING)


def view(
    schedule_of: Callable[[int], Schedule],
    coalition: Sequence[int],
    parts: Sequence[int],
    inputs: Sequence[int],
) -> npt.NDArray[np.uint64]:
    """All that a coalition sees of runs in a row, for every choice of what it does not know."""
    bits = unknown_bits(schedule_of(1), coalition)
    count = 1 << bits * len(inputs)
    assert bits * len(inputs) <= 20
    schedule, every = schedule_of(count), np.arange(count, dtype=np.uint64)
    state = {f"{j}/s": np.full(count, part, np.uint64) for j, part in enumerate(parts)}
    columns = [np.zeros(count, np.uint64)]
    for run, x in enumerate(inputs):
        choices = every >> np.uint64(bits * run) & np.uint64((1 << bits) - 1)
        draws = chosen(schedule, coalition, choices, run)
        done = evaluate(schedule.program, {"x": np.full(count, x), **state}, draws)
        columns += seen(schedule, done, coalition)
        state = {name: value for (_, name), value in done.kept.items()}
    rows = np.column_stack(columns)
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize(("setting", "form"), ENUMERATED, ids=str)
def test_two_runs_show_nothing_together(setting: Setting, form: str) -> None:
    for coalition in coalitions(setting.target):
        if max(coalition) >= setting.computing:
            continue  # the dealer is sent nothing and keeps nothing
        inputs = [(1, 2)] if OWNER in coalition else list(itertools.product((0, 1, 3), repeat=2))
        views = [
            view(
                lambda n: traced(setting, n, form),
                coalition,
                parts_of(setting, coalition, secret, seed=7),
                run_inputs,
            )
            for secret in range(1 << BITS)
            for run_inputs in inputs
        ]
        assert all(np.array_equal(each, views[0]) for each in views), coalition


@pytest.mark.parametrize("form", ["sum", "product"])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_runs_compute_on_what_was_kept(setting: Setting, form: str) -> None:
    schedule = traced(setting, 3, form)
    verify_masking(schedule, coalitions(setting.target), {})
    state = {f"{j}/s": np.full(3, 1, np.uint64) for j in range(setting.computing)}
    total = np.full(3, setting.computing % 4, np.uint64)
    for run in range(4):
        x = np.arange(3, dtype=np.uint64)
        draws = np.random.default_rng(run)
        made: dict[int, Array] = {}

        def draw(d: Draw, shape: Shape, type: Type, made=made, draws=draws) -> Array:
            return made.setdefault(d.number, draws.integers(0, 4, shape, dtype=np.uint64))

        done = evaluate(schedule.program, {"x": x, **state}, draw)
        total = (total + (x if form == "sum" else total * x)) % 4
        state = {}
        for (_, name), value in done.kept.items():
            assert np.array_equal(state.setdefault(name, value), value), "copies of a part differ"
        assert np.array_equal(sum(state.values()) % 4, total)


# Programs that are refused


def part(p: Program, number: int, *holders: int, name: str = "s") -> Value:
    return p.state(name, (number, 3), holders, (5,), words(32))


def state(p: Program, name: str = "s") -> list[Value]:
    """Parts 0, 1 and 2, part j at parties j - 1 and j."""
    return [part(p, j, *sorted(((j - 1) % 3, j)), name=name) for j in range(3)]


def keep(p: Program, parts: Sequence[Value], name: str = "s") -> None:
    for j, value in enumerate(parts):
        p.keep(value, name, (j, 3), ((j - 1) % 3, j))


def x(p: Program) -> Value:
    return p.source("input", "x", 0, (5,), words(32))


def end(p: Program, value: Value, at: int = 1) -> None:
    p.output((value * value).only(at), at, f"y{value.at[at]}", 0)


def part_as_it_is(p: Program) -> None:
    s = state(p)
    end(p, p.send(s[0].only(0), 0, 1))
    keep(p, s)


def resharing_without_masks(p: Program) -> None:
    """What a product leaves is no sum with a zero sharing: it is sent and kept as it is."""
    s = state(p)
    z = [(s[i] * (s[i] + s[(i + 1) % 3]) + s[(i + 1) % 3] * s[i]).only(i) for i in range(3)]
    keep(p, [p.send(z[i], i, (i - 1) % 3) for i in range(3)])


def part_as_mask(p: Program) -> None:
    """x + s[0] in one run, and with another x in the next: their difference is told."""
    s = state(p)
    end(p, p.send(x(p) + s[0].only(0), 0, 1))
    keep(p, s)


def kept_mask_as_mask(p: Program) -> None:
    """A draw of this run is kept, and masks a message of the next, when it is none any more."""
    r = p.draw((0, 2), (5,), words(32))
    s = state(p)
    end(p, p.send(x(p) + s[0].only(0), 0, 1))
    keep(p, [s[0] + r, s[1], s[2] - p.send(r, 2, 1)])


def mask_of_the_setup(p: Program) -> None:
    s = state(p)
    with p.in_phase(Phase.SETUP):
        r = p.draw((0,), (5,), words(32))
    end(p, p.send(s[0].only(0) + r, 0, 1))
    keep(p, s)


def whole_at_one_party(p: Program) -> None:
    """The third part comes to party 1 under a mask that it knows."""
    s = state(p)
    keep(p, s)
    p.keep(s[1], "s", (0, 3), (1,))


def whole_over_two_entries(p: Program) -> None:
    """One entry keeps part 0 with party 1 in place of part 2, which another entry left there."""
    s = state(p)
    keep(p, s)
    with p.in_entry(1):
        t = state(p)
        p.keep(t[1], "s", (0, 3), (0, 1))
        p.keep(t[1], "s", (1, 3), (1,))
        p.keep(t[2], "s", (2, 3), (2,))


def in_part(p: Program) -> None:
    s = state(p)
    keep(p, s)
    with p.in_entry(1):
        p.keep(part(p, 0, 2, 0) * 3, "s", (0, 3), (2, 0))


def at_one_holder(p: Program) -> None:
    s = state(p)
    keep(p, s)
    with p.in_entry(1):
        t = state(p)
        for j in range(3):
            p.keep(t[j], "s", (j, 3), (j,))


def twice(p: Program) -> None:
    s = state(p)
    keep(p, s)
    p.keep(s[0] + s[0], "s", (0, 3), (0,))


def never_kept(p: Program) -> None:
    keep(p, state(p))
    end(p, p.send(part(p, 0, 0, name="t") + p.draw((0,), (5,), words(32)), 0, 1))


def read_where_it_is_not_kept(p: Program) -> None:
    keep(p, state(p))
    end(p, part(p, 0, 1))


def of_two_rings(p: Program) -> None:
    keep(p, [value.mod(16) for value in state(p)])


def of_other_parts(p: Program) -> None:
    s = state(p)
    keep(p, s)
    with p.in_entry(1):
        end(p, p.state("s", (0, 2), (0,), (5,), words(32)), at=0)


REFUSED: dict[Callable[[Program], None], str] = {
    part_as_it_is: "is not hidden from bob",
    resharing_without_masks: "is not hidden from",
    part_as_mask: "is not hidden from bob",
    kept_mask_as_mask: "is not hidden from bob",
    mask_of_the_setup: "is not hidden from bob",
    whole_at_one_party: "state 's' is",
    whole_over_two_entries: "state 's' is",
    in_part: "state 's' is replaced in part",
    at_one_holder: "state 's' is replaced in part",
    twice: "state 's' is replaced in part, or twice",
    never_kept: "state 't' has not the parts",
    read_where_it_is_not_kept: "bob reads a part of state 's' that it never keeps",
    of_two_rings: "state 's' has two shapes or rings",
    of_other_parts: "state 's' has not the parts",
}


@pytest.mark.parametrize(
    ("leak", "told"), REFUSED.items(), ids=lambda v: getattr(v, "__name__", "")
)
def test_leaks_and_broken_states_are_refused(leak: Callable[[Program], None], told: str) -> None:
    program = Program(("alice", "bob", "carol"))
    leak(program)
    with pytest.raises(MaskingError, match=told):
        verify_masking(batch_rounds(program), [(0,), (1,), (2,)], asked(program))


def test_all_parts_at_a_coalition_are_refused() -> None:
    """Each entry by itself is whole, and every party has all three parts."""
    program = Program(("alice", "bob", "carol"))
    s = [program.state("s", (j, 3), (0, 1, 2), (5,), words(32)) for j in range(3)]
    for j, value in enumerate(s):
        program.keep(value, "s", (j, 3), (0, 1, 2))
    with pytest.raises(MaskingError, match="state 's' is not hidden from alice"):
        verify_masking(batch_rounds(program), [(0,), (1,), (2,)], {})


def told(value: Callable[[Sequence[Value]], Value]) -> Program:
    program = Program(("alice", "bob", "carol"))
    s = state(program)
    keep(program, s)
    program.output(value(s).only(0), 0, "y", 0)
    return program


@pytest.mark.parametrize(
    "value",
    [lambda s: s[0], lambda s: s[0] + s[1], lambda s: s[0] >> 4, lambda s: s[0] + s[0] + s[1]],
    ids=["a part", "two parts", "bits of a part", "parts counted differently"],
)
def test_a_part_of_a_state_is_no_output(value: Callable[[Sequence[Value]], Value]) -> None:
    """A part may be a mask of a run before."""
    program = told(value)
    with pytest.raises(MaskingError, match="output 'y' tells alice a part of state 's'"):
        verify_masking(batch_rounds(program), [(0,), (1,), (2,)], asked(program))


def test_a_state_is_an_output_like_any_other() -> None:
    program = Program(("alice", "bob", "carol"))
    s = state(program)
    keep(program, s)
    missing = program.send(s[2].only(2), 2, 0, declared="reveal")
    program.output((s[0] + s[1] + missing).only(0), 0, "y", 0)
    verify_masking(batch_rounds(program), [(0,), (1,), (2,)], asked(program))


def test_a_part_as_mask_does_show_something_over_two_runs() -> None:
    """What is refused above is seen in the enumeration: the test of views is no test of nothing."""

    def leaking(elements: int) -> Schedule:
        program = Program(("alice", "bob", "carol"))
        value = program.source("input", "x", 0, (elements,), RING)
        s = [program.state("s", (j, 3), (j,), (elements,), RING) for j in range(3)]
        end(program, program.send(value + s[0], 0, 1))
        for j in range(3):
            program.keep(s[j], "s", (j, 3), (j,))
        return batch_rounds(program)

    def seen_of(*inputs: int) -> list[list[int]]:
        """Whatever part 0 is."""
        return sorted(view(leaking, (1,), [s, 2, 3], inputs)[0].tolist() for s in range(4))

    assert seen_of(0) == seen_of(1) == seen_of(2)
    assert seen_of(0, 0) != seen_of(0, 1)


def test_forms_of_what_is_kept() -> None:
    """rep3 keeps replicated parts; a public value is kept as one part, beside zeros."""
    setting = SETTINGS[0]
    program = Program(setting.target.everyone)
    p, states = setting.target.placed(program), setting.suite.states
    assert states is not None
    shared = states.found(p, "s", (4,), RING)
    assert shared.form is Form.REPLICATED
    public = shared.map(lambda part: part)
    value = program.const(3, (4,), RING)
    states.keep(p, "s", type(public)((value,), Form.PUBLIC))
    done = evaluate(program, {f"{j}/s": np.zeros(4) for j in range(3)}, lambda *_: np.zeros(4))
    assert sum(int(v[0]) for (i, n), v in done.kept.items() if int(n[0]) == i) == 3
