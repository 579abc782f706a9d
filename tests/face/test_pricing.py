"""Predicted seconds: how rounds, bytes and multiply-adds add up, by phase and by layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from verbs import Compiled

from veilgraph.ir.party.text import parse_program
from veilgraph.ir.plan.tables import LARGE_MESSAGE_BYTES, Layer, Phase
from veilgraph.measuring.pricing import computing_parties, predict
from veilgraph.measuring.work import step_seconds
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.targets.machines import MACHINE, Machine

FREE = Machine("an endless one", {64: 1e30}, *[1e30] * 5, round_seconds=0)


def test_a_machine_has_a_rate_for_each_width() -> None:
    machine = Machine("m", {32: 1e9, 64: 5e8}, 1, 1, 1, 1e6, 2e6, round_seconds=0)
    assert machine.multiplying(1e9, 32) == 1
    assert machine.multiplying(1e9, 40) == 2
    assert machine.dealing(1e6, 2e6) == 3
    assert machine.answering(1e6, 2e6) == 2.5


def test_network_alone_costs_rounds_and_what_their_links_carry(digits: Compiled) -> None:
    """At least what the busiest link carries in all; at most each round's busiest, one by one.

    And at least the longest chain of messages: those that wait for a product may go a round later.
    """
    found = predict(digits.plan, "wan", FREE)
    cost = found.cost
    rounds = cost.online.rounds * 0.02
    chain = batch_rounds(parse_program(digits.plan.ir["party"])).rounds[Phase.ONLINE] * 0.02
    busiest = max(cost.online.sent_bytes.values())
    messages = digits.plan.messages(Phase.ONLINE)
    each = sum(max(messages[messages[:, 0] == n, 3]) for n in set(messages[:, 0].tolist()))
    assert chain + busiest / 12.5e6 <= found.online_seconds <= rounds + each / 12.5e6
    assert found.total_seconds == pytest.approx(found.offline_seconds + found.online_seconds)


def test_messages_are_counted_by_round_and_link(digits: Compiled) -> None:
    names = digits.plan.manifest.parties
    for phase in Phase:
        found: Counter[str] = Counter()
        rounds = set()
        for number, sender, receiver, size in digits.plan.messages(phase).tolist():
            found[f"{names[sender]}->{names[receiver]}"] += size
            rounds.add(number)
        assert found == digits.plan.sent_bytes(phase)
        assert rounds == set(range(digits.plan.rounds(phase)))


def test_a_file_of_four_billion_rounds_is_priced_at_once(digits: Compiled) -> None:
    """Who looks at a plan has not verified it: what is counted is messages, not rounds."""
    last = digits.plan.rounds(Phase.ONLINE) - 1
    programs = {}
    for name, program in digits.plan.programs.items():
        messages = program.messages.copy()
        is_last = (messages["phase"] == Phase.ONLINE) & (messages["round"] == last)
        messages["round"][is_last] = np.iinfo(np.uint32).max
        messages["bytes"][is_last] = np.iinfo(np.uint64).max
        programs[name] = replace(program, messages=messages)
    assert replace(digits.plan, programs=programs).cost().online.network_seconds > 0


def test_two_that_wait_for_each_other_compute_one_after_the_other(digits: Compiled) -> None:
    """With fixed roles parties are half a layer apart: what one multiplies the other waits for."""
    plan = digits.plan
    machine = replace(FREE, multiply_adds_per_second={64: 1e6})
    slower = predict(plan, "lan", machine).online_seconds
    network = predict(plan, "lan", FREE).online_seconds
    online = [program.steps["phase"] == Phase.ONLINE for program in plan.programs.values()]
    each = [
        float(step_seconds(program, machine)[is_own].sum())
        for program, is_own in zip(plan.programs.values(), online, strict=True)
    ]
    assert max(each) < slower - network < sum(each)


def test_a_large_message_is_on_its_way_while_steps_still_run(digits: Compiled) -> None:
    machine = replace(FREE, multiply_adds_per_second={64: 1e6})

    def seconds(size: int, early: bool) -> float:
        programs = {}
        for name, program in digits.plan.programs.items():
            messages = program.messages.copy()
            messages["bytes"] = size
            messages["step"] = 0 if early else len(program.steps) - 1
            programs[name] = replace(program, messages=messages)
        return predict(replace(digits.plan, programs=programs), "lan", machine).online_seconds

    assert seconds(LARGE_MESSAGE_BYTES, True) < seconds(LARGE_MESSAGE_BYTES, False)
    assert seconds(LARGE_MESSAGE_BYTES - 8, True) == seconds(LARGE_MESSAGE_BYTES - 8, False)


def test_a_machine_multiplies_by_each_steps_own_ring(digits: Compiled) -> None:
    rates = replace(FREE, multiply_adds_per_second={32: 2e6, 64: 1e6})
    one = replace(FREE, multiply_adds_per_second={64: 1e6})
    for program in digits.plan.programs.values():
        mixed, wide = (step_seconds(program, machine) for machine in (rates, one))
        multiplies = wide > 1e-9
        assert multiplies.any()
        products = program.steps[multiplies]
        bits = program.buffers["bits"][products["first_buffer"]]
        np.testing.assert_allclose(wide[multiplies] / mixed[multiplies], np.where(bits > 32, 1, 2))


def test_steps_of_no_sense_take_no_time(digits: Compiled) -> None:
    """Who looks at a plan has not verified it."""
    programs = {}
    for name, program in digits.plan.programs.items():
        steps = program.steps.copy()
        steps["first_buffer"], steps["first_param"] = np.iinfo(np.uint32).max, 1 << 60
        steps["layer"] = np.iinfo(np.uint32).max
        programs[name] = replace(program, steps=steps)
        assert not step_seconds(programs[name], MACHINE).any()
    found = predict(replace(digits.plan, programs=programs), "lan")
    assert found.online_seconds >= found.cost.online.network_seconds


def test_a_round_that_nobody_answers_ends_a_prediction(digits: Compiled) -> None:
    """A file in which a message is not sent is refused where it is read, or else waits for ever."""
    first, *others = digits.plan.programs.items()
    silent = replace(first[1], messages=first[1].messages[:0])
    plan = replace(digits.plan, programs={first[0]: silent, **dict(others)})
    assert predict(plan, "lan").online_seconds < predict(digits.plan, "lan").online_seconds


def test_layers_of_one_name_are_joined_and_weights_left_out(digits: Compiled) -> None:
    layers = (
        Layer("x", "input", ring_bits=32, online_bits=96),
        Layer("w", "weight", ring_bits=32),
        Layer("fc", "matmul", ring_bits=32, frac_bits=24, multiply_adds=600),
        Layer("fc", "truncate", ring_bits=32, frac_bits=12, online_bits=800, rounds=2),
        Layer("fc", "reveal", ring_bits=32, frac_bits=12, online_bits=32, rounds=1),
    )
    found = predict(replace(digits.plan, layers=layers), "lan", FREE)
    rows = [(p.name, p.ops, p.rounds, p.online_bytes, p.multiply_adds) for p in found.layers]
    assert rows == [
        ("x", ("input",), 0, 12, 0),
        ("fc", ("matmul", "truncate"), 2, 100, 600),
        ("fc", ("reveal",), 1, 4, 0),
    ]
    joined = found.layers[1]
    assert joined.last.frac_bits == 12
    assert joined.seconds == pytest.approx(2 * 1e-4 + (100 // 6) / 1.25e9)
    assert sum(price.share for price in found.layers) == pytest.approx(1)


def test_a_layer_takes_its_steps_seconds(digits: Compiled) -> None:
    """At the party that takes longest."""
    machine = replace(FREE, multiply_adds_per_second={64: 1e6})
    plain, slower = (predict(digits.plan, "lan", each).layers for each in (FREE, machine))
    products = [price for price in plain if price.multiply_adds]
    more = [s.seconds - p.seconds for s, p in zip(slower, plain, strict=True) if p.multiply_adds]
    for price, seconds in zip(products, more, strict=True):
        assert price.multiply_adds / 3 / 1e6 <= seconds < price.multiply_adds / 1e6


def test_a_plan_without_layers_has_no_shares(digits: Compiled) -> None:
    assert predict(replace(digits.plan, layers=()), "lan").layers == ()


def test_a_dealer_does_not_compute(digits: Compiled) -> None:
    manifest = digits.plan.manifest
    assert computing_parties(digits.plan) == 3
    dealt = replace(manifest, roles={**manifest.roles, manifest.parties[-1]: "dealer"})
    assert computing_parties(replace(digits.plan, manifest=dealt)) == 2
