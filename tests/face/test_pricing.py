"""Predicted seconds: how rounds, bytes and multiply-adds add up, by phase and by layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from verbs import Compiled

from veilgraph.ir.plan.tables import Layer, Phase
from veilgraph.measuring.pricing import Machine, computing_parties, predict

FREE = Machine("an endless one", {64: 1e30}, 1e30, 1e30, 0)


def test_a_machine_has_a_rate_for_each_width() -> None:
    machine = Machine("m", {32: 1e9, 64: 5e8}, 1e6, 2e6, round_seconds=0)
    assert machine.multiplying(1e9, 32) == 1
    assert machine.multiplying(1e9, 40) == 2
    assert machine.dealing(1e6, 2e6) == 3
    assert machine.answering(1e6, 2e6) == 2.5


def test_network_alone_costs_rounds_and_what_their_links_carry(digits: Compiled) -> None:
    """At least what the busiest link carries in all; at most each round's busiest, one by one."""
    found = predict(digits.plan, "wan", FREE)
    cost = found.cost
    rounds = cost.online.rounds * 0.02
    busiest = max(cost.online.sent_bytes.values())
    messages = digits.plan.messages(Phase.ONLINE)
    each = sum(max(messages[messages[:, 0] == n, 3]) for n in set(messages[:, 0].tolist()))
    assert rounds + busiest / 12.5e6 <= found.online_seconds <= rounds + each / 12.5e6
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


def test_computation_is_shared_by_the_parties(digits: Compiled) -> None:
    machine = Machine("m", {64: 1e6}, 1e30, 1e30, 0)
    slower = predict(digits.plan, "lan", machine).online_seconds
    network = predict(digits.plan, "lan", FREE).online_seconds
    multiply_adds = sum(layer.multiply_adds for layer in digits.plan.layers)
    assert slower - network == pytest.approx(multiply_adds / 3 / 1e6)


def test_each_layer_computes_in_its_own_ring(digits: Compiled) -> None:
    machine = Machine("m", {32: 2e6, 64: 1e6}, 1e30, 1e30, 0)
    layers = tuple(
        Layer(f"fc{bits}", "matmul", ring_bits=bits, multiply_adds=300) for bits in (32, 40)
    )
    plan = replace(digits.plan, layers=layers)
    found = predict(plan, "lan", machine).online_seconds - predict(plan, "lan", FREE).online_seconds
    assert found == pytest.approx(100 / 2e6 + 100 / 1e6)


def test_layers_of_one_name_are_joined_and_weights_left_out(digits: Compiled) -> None:
    layers = (
        Layer("x", "input", ring_bits=32, online_bits=96),
        Layer("w", "weight", ring_bits=32),
        Layer("fc", "matmul", ring_bits=32, frac_bits=24, multiply_adds=600),
        Layer("fc", "truncate", ring_bits=32, frac_bits=12, online_bits=800, rounds=2),
        Layer("fc", "reveal", ring_bits=32, frac_bits=12, online_bits=32, rounds=1),
    )
    found = predict(
        replace(digits.plan, layers=layers), "lan", Machine("m", {64: 1e6}, 1e6, 1e6, 0)
    )
    rows = [(p.name, p.ops, p.rounds, p.online_bytes, p.multiply_adds) for p in found.layers]
    assert rows == [
        ("x", ("input",), 0, 12, 0),
        ("fc", ("matmul", "truncate"), 2, 100, 600),
        ("fc", ("reveal",), 1, 4, 0),
    ]
    joined = found.layers[1]
    assert joined.last.frac_bits == 12
    seconds = 2 * 1e-4 + (100 // 6) / 1.25e9 + 200 / 1e6 + 100 / 3 / 1e6  # nothing is dealt
    assert joined.seconds == pytest.approx(seconds)
    assert sum(price.share for price in found.layers) == pytest.approx(1)


def test_a_plan_without_layers_has_no_shares(digits: Compiled) -> None:
    assert predict(replace(digits.plan, layers=()), "lan").layers == ()


def test_a_dealer_does_not_compute(digits: Compiled) -> None:
    manifest = digits.plan.manifest
    assert computing_parties(digits.plan) == 3
    dealt = replace(manifest, roles={**manifest.roles, manifest.parties[-1]: "dealer"})
    assert computing_parties(replace(digits.plan, manifest=dealt)) == 2
