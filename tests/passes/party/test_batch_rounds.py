"""Rounds are the longest chain of messages; every node runs where its operands are, and once."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import columns_of
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import words
from veilgraph.passes.party.align_messages import MESSAGES, NOTHING
from veilgraph.passes.party.batch_rounds import Position, Schedule, batch_rounds, scheduled

W = words(32)


def test_docstring_example() -> None:
    """A message that needs none goes in round 0, whatever came before it in the program."""
    p = Program(("alice", "bob"))
    x, y = (p.source("input", name, 0, (4,), W) for name in "xy")
    first = p.send(x, 0, 1)
    second = p.send((first * 3).only(1), 1, 0)
    third = p.send(y, 0, 1)
    p.output(second.only(0), 0, "a", 0)
    p.output(third.only(1), 1, "b", 0)
    schedule = batch_rounds(p)
    sends = (first.at[1], second.at[0], third.at[1])
    assert [schedule.round_of(p.nodes[i]) for i in sends] == [0, 1, 0]
    assert schedule.rounds == {Phase.SETUP: 0, Phase.OFFLINE: 0, Phase.ONLINE: 2}


def test_each_phase_counts_its_own_rounds() -> None:
    """What two rounds of the setup lead to is sent in the first round of the inference."""
    p = Program(("alice", "bob"))
    w, x = p.source("weight", "w", 0, (4,), W), p.source("input", "x", 1, (4,), W)
    there = p.send(w, 0, 1)
    back = p.send((there * 3).only(1), 1, 0)
    late = p.send((back.only(0) * 5).only(0), 0, 1)
    online = p.send((late.only(1) * x).only(1), 1, 0)
    p.output(online.only(0), 0, "y", 0)
    schedule = batch_rounds(p)
    assert schedule.round_of(p.nodes[online.at[0]]) == 0
    assert schedule.rounds == {Phase.SETUP: 3, Phase.OFFLINE: 0, Phase.ONLINE: 1}


def test_products_run_early_and_the_rest_late() -> None:
    p = Program(("alice", "bob"))
    x, y = p.source("input", "x", 0, (4,), W), p.source("input", "y", 1, (4,), W)
    with_early = p.node(ops.MATMUL, 0, (x.at[0], x.at[0]), (4,), W, Phase.ONLINE)
    cheap = x * 5
    late = p.send(p.send(y, 1, 0).only(0) + 1, 0, 1)
    back = p.send(late.only(1) * 2, 1, 0)
    p.output((back.only(0) + cheap).only(0), 0, "a", 0)
    p.node(ops.OUTPUT, 0, (with_early,), (4,), W, Phase.ONLINE, name="b", frac_bits=0)
    schedule = batch_rounds(p)
    assert schedule.position_of(with_early) == (Phase.ONLINE, 0)
    assert schedule.position_of(cheap.at[0]) == (Phase.ONLINE, 3)


def test_what_is_sent_meanwhile_goes_before_a_product() -> None:
    """Bob's own product does not wait for alice's: she sends what he multiplies first."""
    p = Program(("alice", "bob"))
    x = p.source("input", "x", 0, (1, 64, 64), W)
    there = p.send(x, 0, 1)
    mine = p.node(ops.MATMUL, 0, (x.at[0], x.at[0]), (1, 64, 64), W, Phase.ONLINE)
    theirs = p.node(ops.MATMUL, 1, (there.at[1], there.at[1]), (1, 64, 64), W, Phase.ONLINE)
    told = p.node(ops.SEND, 1, (mine,), (1, 64, 64), W, Phase.ONLINE)
    back = p.node(ops.SEND, 0, (theirs,), (1, 64, 64), W, Phase.ONLINE)
    added = p.node(ops.ADD, 0, (back, mine), (1, 64, 64), W, Phase.ONLINE)
    last = p.node(ops.SEND, 1, (added,), (1, 64, 64), W, Phase.ONLINE)
    both = p.node(ops.ADD, 1, (told, last), (1, 64, 64), W, Phase.ONLINE)
    p.node(ops.OUTPUT, 1, (both,), (1, 64, 64), W, Phase.ONLINE, name="y", frac_bits=0)
    schedule = with_slow_products(p)
    assert schedule.rounds[Phase.ONLINE] == 3
    assert schedule.round_of(p.nodes[there.at[1]]) == 0
    assert schedule.position_of(mine) == (Phase.ONLINE, 1)  # once x is sent
    assert schedule.position_of(theirs) == (Phase.ONLINE, 1)
    assert [schedule.round_of(p.nodes[i]) for i in (told, back, last)] == [2, 1, 2]


def test_what_no_output_needs_is_dead() -> None:
    p = Program(("alice", "bob"))
    x = p.source("input", "x", 0, (4,), W)
    p.send(x, 0, 1)
    p.output(x, 0, "y", 0)
    schedule = batch_rounds(p)
    assert [p.nodes[i].op for i in schedule.live] == [ops.INPUT, ops.OUTPUT]
    assert schedule.rounds[Phase.ONLINE] == 0


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_random_programs(choices: random.Random, operations: int) -> None:
    made = RandomProgram(choices).grow(operations).program
    slow = choices.random() < 0.5
    schedule = with_slow_products(made) if slow else batch_rounds(made)
    check_order(schedule)
    check_rounds(schedule)
    check_lateness(schedule)
    if slow:
        check_products(schedule)
    else:
        chain, sends = chains(schedule), schedule.nodes_of(ops.SEND)
        assert all(schedule.round_of(send) == chain[send.id] - 1 for send in sends)


def with_slow_products(program: Program) -> Schedule:
    """As early as can be, but for products, which are all slow."""
    columns = columns_of(program.nodes)
    before = [MESSAGES if is_slow(node) else NOTHING for node in program.nodes]
    return scheduled(program, columns, np.zeros(len(columns), np.int64), np.array(before, np.uint8))


def check_order(schedule: Schedule) -> None:
    """Operands are there before; what is sent in a round is made before it."""
    nodes = schedule.program.nodes
    live = set(schedule.live)
    for i in schedule.live:
        for arg in nodes[i].args:
            assert arg in live
            phase, level = schedule.position_of(i)
            made = (phase, level - 1) if nodes[i].op is ops.SEND else (phase, level)
            assert schedule.position_of(arg) <= made


def check_rounds(schedule: Schedule) -> None:
    """The longest chain of messages of a phase; each goes as early as it can, unless it is held."""
    nodes, chain = schedule.program.nodes, chains(schedule)
    longest = dict.fromkeys(Phase, 0)
    for i in schedule.live:
        longest[nodes[i].phase] = max(longest[nodes[i].phase], chain[i])
    assert schedule.rounds == longest
    for send in (nodes[i] for i in schedule.live if nodes[i].op is ops.SEND):
        assert schedule.round_of(send) >= chain[send.id] - 1
        if schedule.round_of(send) >= chain[send.id]:
            assert any(is_slow(nodes[i]) for i in made_for(send, schedule))
            end = schedule.rounds[send.phase]
            assert schedule.position_of(send.id)[1] == min(end, needed(send.id, schedule)[1])


def chains(schedule: Schedule) -> dict[int, int]:
    """Of each live node the longest chain of messages of its phase that leads to it."""
    nodes, chain = schedule.program.nodes, dict[int, int]()
    for i in schedule.live:
        same = (chain[a] for a in nodes[i].args if nodes[a].phase == nodes[i].phase)
        chain[i] = max(same, default=0) + (nodes[i].op is ops.SEND)
    return chain


def is_slow(node: Node) -> bool:
    return node.op.early and not node.op.is_root and node.op is not ops.SEND


def made_for(send: Node, schedule: Schedule) -> set[int]:
    """What its sender makes for it after the last message that it is made of."""
    nodes, found, waiting = schedule.program.nodes, set[int](), list(send.args)
    while waiting:
        i = waiting.pop()
        if nodes[i].op is not ops.SEND and i not in found:
            found.add(i)
            waiting += nodes[i].args
    return found


def needed(i: int, schedule: Schedule) -> Position:
    """Where the first runs that reads a node."""
    nodes = schedule.program.nodes
    users = [j for j in schedule.live if i in nodes[j].args]
    positions = ((schedule.position_of(j), nodes[j].op is ops.SEND) for j in users)
    return min((phase, level - is_send) for (phase, level), is_send in positions)


def check_lateness(schedule: Schedule) -> None:
    """What is cheap and not of the setup waits for the first that needs it."""
    nodes = schedule.program.nodes
    for i in schedule.live:
        if not nodes[i].op.early and nodes[i].phase != Phase.SETUP:
            assert schedule.position_of(i) == needed(i, schedule)


def check_products(schedule: Schedule) -> None:
    """What is slow runs as early as it can, but behind what its party sends meanwhile."""
    nodes = schedule.program.nodes
    sent = {
        (nodes[nodes[i].args[0]].party, phase, level - 1)
        for i in schedule.live
        if nodes[i].op is ops.SEND
        for phase, level in [schedule.position_of(i)]
    }
    for node in (nodes[i] for i in schedule.live if is_slow(nodes[i])):
        phase, level = schedule.position_of(node.id)
        if phase == Phase.SETUP:
            continue
        of_phase = [a for a in node.args if schedule.position_of(a)[0] == phase]
        earliest = max((level_there(a, schedule) for a in of_phase), default=0)
        assert all((node.party, phase, each) in sent for each in range(earliest, level))
        assert (node.party, phase, level) not in sent or needed(node.id, schedule) == (phase, level)


def level_there(i: int, schedule: Schedule) -> int:
    """The earliest at which a node's operands let it be."""
    node = schedule.program.nodes[i]
    if node.op.early:
        return schedule.position_of(i)[1]
    own = [a for a in node.args if schedule.position_of(a)[0] == schedule.position_of(i)[0]]
    return max((level_there(a, schedule) for a in own), default=0)
