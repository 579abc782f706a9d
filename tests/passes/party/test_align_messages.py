"""Messages that are alike wait for each other where that takes less time; no others move."""

from __future__ import annotations

import random
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram
from test_batch_rounds import check_lateness, check_order

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, columns_of
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import MOST_COUNTED_BYTES, Pace, Phase
from veilgraph.ir.types import words
from veilgraph.passes._native import align_messages as align
from veilgraph.passes.party.align_messages import MESSAGES, NOTHING, align_messages, pace_of
from veilgraph.passes.party.batch_rounds import Schedule, batch_rounds, scheduled
from veilgraph.passes.party.products import nanoseconds
from veilgraph.targets.networks import network
from veilgraph.targets.variants import Goal

SMALL, LARGE, LAST = words(8), words(32), words(16)
ELEMENTS = 1000  # of messages of 4 kB that are alike


def exchange(more: bool = False) -> tuple[Program, list[int]]:
    """alice may tell bob a round before he can tell her; the first of three sends is what he lacks.

    Args:
        more: what she told him leads to a message of its own.
    """
    p = Program(("alice", "bob"))
    x, y = (p.source("input", name, i, (ELEMENTS,), LARGE) for i, name in enumerate("xy"))
    asked = p.send(x.mod(8), 0, 1)
    there = p.send(x, 0, 1)
    back = p.send((y + asked.mod(32)).only(1), 1, 0)
    p.output(back.only(0), 0, "a", 0)
    if more:
        p.output(p.send(there.mod(16).only(1), 1, 0).only(0), 0, "b", 0)
    else:
        p.output(there.only(1), 1, "b", 0)
    return p, [asked.at[1], there.at[1], back.at[0]]


def rounds(schedule: Schedule, sends: list[int]) -> list[int]:
    return [schedule.round_of(schedule.program.nodes[i]) for i in sends]


def test_docstring_example() -> None:
    """Both ways of an exchange go in the round of the later one."""
    program, sends = exchange()
    assert rounds(batch_rounds(program), sends) == [0, 0, 1]
    assert rounds(batch_rounds(program, Pace(1)), sends) == [0, 1, 1]


@pytest.mark.parametrize(("round_bytes", "count"), [(4000, 2), (4001, 2), (3999, 3)])
def test_a_round_more_is_taken_for_as_many_bytes(round_bytes: int, count: int) -> None:
    """One way of an exchange is 4,000 bytes: early, both ways of it are in links' times."""
    program, sends = exchange(more=True)
    schedule = batch_rounds(program, Pace(round_bytes))
    assert schedule.rounds[Phase.ONLINE] == count
    assert rounds(schedule, sends) == ([0, 0, 1] if count == 2 else [0, 1, 1])


def test_messages_of_other_types_are_not_alike() -> None:
    apart = Program(("alice", "bob"))
    x, y = (apart.source("input", name, i, (ELEMENTS,), LARGE) for i, name in enumerate("xy"))
    asked = apart.send(x.mod(8), 0, 1)
    there = apart.send(x.mod(31), 0, 1)
    back = apart.send((y + asked.mod(32)).only(1), 1, 0)
    apart.output(back.only(0), 0, "a", 0)
    apart.output(there.only(1), 1, "b", 0)
    schedule = batch_rounds(apart, Pace(1))
    assert rounds(schedule, [asked.at[1], there.at[1], back.at[0]]) == [0, 0, 1]


def test_two_that_wait_for_each_other_go_early() -> None:
    """One chunk's 32 bits lead to its 16 bits, another's 16 bits to its 32."""
    p = Program(("alice", "bob"))
    x, y = (p.source("input", name, 0, (ELEMENTS,), LARGE) for name in "xy")
    first = p.send(x, 0, 1)
    then = p.send(first.mod(16).only(1), 1, 0)
    other = p.send(y.mod(16), 0, 1)
    last = p.send(other.mod(32).only(1), 1, 0)
    p.output((then.mod(32) + last).only(0), 0, "a", 0)
    schedule = batch_rounds(p, Pace(1))
    found = rounds(schedule, [v.at[i] for v, i in ((first, 1), (then, 0), (other, 1), (last, 0))])
    assert found == [0, 1, 0, 1]


def test_a_layer_of_more_types_than_are_compared_goes_early() -> None:
    p, sends = exchange()
    z = p.source("input", "z", 0, (ELEMENTS,), LARGE)
    for bits in range(9, 9 + 16):
        p.output(p.send(z.mod(bits), 0, 1).only(1), 1, f"z{bits}", 0)
    assert rounds(batch_rounds(p, Pace(1)), sends) == [0, 0, 1]


def test_chains_that_wait_for_each_other_take_no_time() -> None:
    """5,000 messages of random types, back and forth: what a stranger may write."""
    p = Program(("alice", "bob"))
    choices = random.Random(1)
    chains = [p.source("input", f"x{i}", 0, (1,), LARGE) for i in range(5)]
    for n in range(1000):
        for i, x in enumerate(chains):
            sent = p.send(x.mod(choices.choice((8, 16, 32))), n % 2, 1 - n % 2)
            chains[i] = sent.mod(32).only(1 - n % 2)
    for i, x in enumerate(chains):
        p.output(x, 0, f"y{i}", 0)
    began = time.process_time()
    assert batch_rounds(p, Pace(1)).rounds[Phase.ONLINE] >= 1000
    assert time.process_time() - began < 5


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 5000))
def test_random_programs(choices: random.Random, operations: int, round_bytes: int) -> None:
    """Operands are there before, nothing goes earlier than it could, and the price is no higher."""
    program = RandomProgram(choices).grow(operations).program
    early, aligned = batch_rounds(program), batch_rounds(program, Pace(round_bytes))
    check_order(aligned)
    check_lateness(aligned)
    assert aligned.live == early.live
    for send in aligned.nodes_of(ops.SEND):
        assert aligned.round_of(send) >= early.round_of(send)
    assert price(aligned, round_bytes) <= price(early, round_bytes)


def price(schedule: Schedule, round_bytes: int) -> int:
    links: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    nodes = schedule.program.nodes
    for node in schedule.nodes_of(ops.SEND):
        if node.phase == Phase.SETUP:
            continue
        loads = links.setdefault(schedule.position_of(node.id), {})
        link = (nodes[node.args[0]].party, node.party)
        loads[link] = loads.get(link, 0) + node.type.message_bytes(node.elements)
    return sum(round_bytes + max(loads.values()) for loads in links.values())


def test_a_round_takes_what_its_network_says() -> None:
    """Half a round trip, and what a machine takes for a round."""
    assert pace_of(network("wan"), Goal.AUTO) == Pace(251_250, 20_100_000)
    assert pace_of(network("wan"), Goal.FEWEST_ROUNDS) == Pace()


def test_the_fastest_and_slowest_networks_have_a_round() -> None:
    none = network("lan").__class__("none", 1e-9, 0.0)
    endless = network("lan").__class__("endless", 1e300, 1e6)
    assert pace_of(none, Goal.AUTO).bytes == 1
    assert pace_of(endless, Goal.LEAST_BYTES).bytes == MOST_COUNTED_BYTES


def test_a_message_of_a_product_waits_for_what_another_product_needs() -> None:
    """Then both parties multiply at once, for a round more; where products take longer than it."""
    p = Program(("alice", "bob"))
    x, y = (p.source("input", name, i, (1, 64, 64), LARGE) for i, name in enumerate("xy"))
    there = p.send(x, 0, 1)
    own = p.node(ops.MATMUL, 0, (x.at[0], x.at[0]), (1, 64, 64), LARGE, Phase.ONLINE)
    told = p.node(ops.SEND, 1, (own,), (1, 64, 64), LARGE, Phase.ONLINE)
    theirs = p.node(ops.MATMUL, 1, (there.at[1], y.at[1]), (1, 64, 64), LARGE, Phase.ONLINE)
    added = p.node(ops.ADD, 1, (told, theirs), (1, 64, 64), LARGE, Phase.ONLINE)
    back = p.node(ops.SEND, 0, (added,), (1, 64, 64), LARGE, Phase.ONLINE)
    p.node(ops.OUTPUT, 0, (back,), (1, 64, 64), LARGE, Phase.ONLINE, name="z", frac_bits=0)
    sends, many = [there.at[1], told, back], 1 << 30
    assert dict(nanoseconds(columns_of(p.nodes)))[own] > 5000
    assert rounds(batch_rounds(p, Pace(many, 1_000_000)), sends) == [0, 0, 1]
    held = batch_rounds(p, Pace(many, 1_000))
    assert rounds(held, sends) == [0, 1, 2]
    assert held.position_of(own) == held.position_of(theirs) == (Phase.ONLINE, 1)
    assert rounds(batch_rounds(p, Pace(many, 0)), sends) == [0, 0, 1]


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_held_random_programs(choices: random.Random, operations: int) -> None:
    """They are in order, and no later done than with all that is slow as early as it can be."""
    program = RandomProgram(choices).grow(operations).program
    columns = columns_of(program.nodes)
    pace = Pace(100, choices.choice((2, 20)))
    held = scheduled(program, columns, *align_messages(columns, pace))
    check_order(held)
    check_lateness(held)
    early, _ = align_messages(columns, Pace(100))
    without = scheduled(program, columns, early, np.zeros(len(columns), np.uint8))
    assert done(held, pace) <= done(without, pace)


def done(schedule: Schedule, pace: Pace) -> int:
    """When the last party is, phase by phase, as bytes that a link carries meanwhile."""
    nodes, total = schedule.program.nodes, 0
    work = dict(nanoseconds(schedule.columns))
    for phase in (Phase.OFFLINE, Phase.ONLINE):
        ready = Counter[int]()
        for level in range(schedule.rounds[phase] + 1):
            sent, at = Counter[tuple[int, int]](), (phase, level)
            for i in schedule.live:
                node, place = nodes[i], schedule.position_of(i)
                if node.op is ops.SEND and place == (phase, level + 1):
                    link = nodes[node.args[0]].party, node.party
                    sent[link] += node.type.message_bytes(node.elements)
                elif i in work and place == at:
                    ready[node.party] += work[i] * pace.bytes // pace.nanoseconds
            begun = ready.copy()
            for (sender, receiver), size in sent.items():
                ready[receiver] = max(ready[receiver], begun[sender] + size + pace.bytes)
        total += max(ready.values(), default=0)
    return total


def test_many_slow_products_take_no_square_of_time() -> None:
    """Each looks for a place at which its party sends nothing, and there is none."""
    p = Program(("alice", "bob"))
    sources = [p.source("input", name, i, (1, 1, 1), LARGE) for i, name in enumerate("xy")]
    own = product = sources[0].at[0]
    there, back = sources[0].at[0], sources[1].at[1]
    for _ in range(1 << 15):
        product = p.node(ops.MATMUL, 0, (product, own), (1, 1, 1), LARGE, Phase.ONLINE)
        there, back = (
            p.node(ops.SEND, 0, (back,), (1, 1, 1), LARGE, Phase.ONLINE),
            p.node(ops.SEND, 1, (there,), (1, 1, 1), LARGE, Phase.ONLINE),
        )
    for i, (party, last) in enumerate(((0, there), (1, back), (0, product))):
        p.node(ops.OUTPUT, party, (last,), (1, 1, 1), LARGE, Phase.ONLINE, name=f"{i}", frac_bits=0)
    columns = columns_of(p.nodes)
    before = np.where(columns.op == NUMBERS[ops.MATMUL], MESSAGES, NOTHING).astype(np.uint8)
    start = time.process_time()
    scheduled(p, columns, np.zeros(len(columns), np.int64), before)
    assert time.process_time() - start < 1


def test_columns_of_no_program_are_refused() -> None:
    one, none = np.zeros(1, np.int32), np.zeros(0, np.int32)
    facts, lengths = np.zeros(1, np.uint32), np.zeros(1, np.int64)
    first, flags = np.zeros(2, np.int64), np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match="no such party"):
        align(facts, one, one, one, one - 1, lengths, 1, lengths, flags, first, none)
    with pytest.raises(ValueError, match="takes no time"):
        align(facts, one, one, one, one, lengths, 0, lengths, flags, first, none)
    with pytest.raises(ValueError, match="other lengths"):
        align(facts, one, one, one, one, np.zeros(2, np.int64), 1, lengths, flags, first, none)
