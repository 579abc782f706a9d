"""Shares of weights that no party has: what is dealt, what a file holds, and what is refused."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreters import plan_of
from small_plans import W, X, check_answer, revealed, shared
from three_parties import run_threads

from veilgraph.ir.errors import SecurityAbort, UsageError, VeilgraphError
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.types import words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.passes.party.verify_masking import coalitions, verify_masking
from veilgraph.runtime.links.loopback import loopback
from veilgraph.runtime.session.certificates import init, issue
from veilgraph.runtime.session.handshake import NO_DEALING, NO_STATE, Agreed, Terms, confirm_id
from veilgraph.runtime.simulate import simulate
from veilgraph.runtime.store.at_rest import Part
from veilgraph.runtime.store.share_files import DealtShares, deal, load_shares
from veilgraph.targets.parties import Operation
from veilgraph.targets.target import Target, target

TARGETS = (
    target("rep3"),
    target("additive", ("alice", "bob"), dealer="dora"),
    target("additive", ("alice", "bob", "carol"), dealer="dora"),
    target("cleartext", ("alice",)),
)
RINGS = (24, 32, 40, 64)


def dealt_plan(chosen: Target, ring_bits: int) -> Plan:
    """y = x w / 2^4 for the first party, who gives x [4, 6]; w [6, 3] is shared from files."""
    program = Program(chosen.everyone)
    suite, p = chosen.suite, chosen.placed(program)
    x = shared(p, "input", "x", 0, X.shape, ring_bits, chosen.suite)
    w = suite.from_shares(p, "w", W.shape, words(ring_bits))
    y = suite.offered("matmul")(p, Operation("matmul", (4, 3), ring_bits, {}), x, w)
    y = suite.offered("truncate")(p, Operation("truncate", (4, 3), ring_bits, {"bits": 4}), y)
    program.output(revealed(p, 0, y, chosen.suite), 0, "y", 4)
    verify_masking(batch_rounds(program), coalitions(chosen), {"y": {0}})
    plan = plan_of(Expanded(program), chosen.suite.name)
    owners = {"x": "alice", "weights": "shared"}
    roles = {party.name: party.role.name for party in chosen.members}
    return replace(plan, manifest=replace(plan.manifest, owners=owners, roles=roles))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return dealt_plan(TARGETS[0], 40)


@pytest.fixture
def file(plan: Plan, tmp_path: Path) -> Path:
    """Bob's file."""
    deal(plan, {"w": W})["bob"].save(tmp_path / "model.bob.shares")
    return tmp_path / "model.bob.shares"


# What is dealt


@pytest.mark.parametrize("ring_bits", RINGS)
@pytest.mark.parametrize("chosen", TARGETS, ids=lambda t: f"{t.suite.name}-{len(t.parties)}")
def test_parties_compute_with_dealt_weights(chosen: Target, ring_bits: int) -> None:
    plan = dealt_plan(chosen, ring_bits)
    answer = simulate(plan, {"w": W}, {"x": X}, iterations=2)
    check_answer(answer.outputs["y"])
    assert {name for name, p in plan.programs.items() if p.shares} == set(chosen.parties)
    assert not any(p.weights for p in plan.programs.values())


@pytest.mark.parametrize("ring_bits", RINGS)
@pytest.mark.parametrize("chosen", TARGETS, ids=lambda t: f"{t.suite.name}-{len(t.parties)}")
def test_the_parts_add_up_and_no_coalition_has_all(chosen: Target, ring_bits: int) -> None:
    plan = dealt_plan(chosen, ring_bits)
    dealt = deal(plan, {"w": W})
    all_parts = {k: v.astype(object) for each in dealt.values() for k, v in each.words.items()}
    total = sum(all_parts.values()) - W.astype(object)
    assert (total % 2**ring_bits == 0).all()
    for coalition in coalitions(chosen):
        names = [chosen.everyone[i] for i in coalition]
        held = {key for name in names if name in dealt for key in dealt[name].words}
        assert len(held) < len(all_parts)


def test_parts_are_uniform_and_drawn_anew() -> None:
    """Of zeros too: each bit of each part is one half of the time, and two dealings differ."""
    plan = dealt_plan(TARGETS[0], 24)
    parts: dict[str, list[np.ndarray]] = {}
    for _ in range(200):
        for each in deal(plan, {"w": np.zeros(W.shape)}).values():
            for key, value in each.words.items():
                parts.setdefault(key, []).append(value)
    for values in parts.values():
        drawn = np.array(values[::2])  # both holders were given the same
        assert len(np.unique(drawn)) > 0.99 * drawn.size
        ones = ((drawn[..., None] >> np.arange(24)) & 1).mean(axis=(0, 1, 2))
        assert (abs(ones - 0.5) < 6 * 0.5 / np.sqrt(drawn.size)).all()
        assert (drawn >> 24 == 0).all()


def test_both_holders_of_a_part_have_the_same(plan: Plan) -> None:
    dealt = deal(plan, {"w": W})
    assert sum(len(each.words) for each in dealt.values()) > 3  # some part has two
    for mine, theirs in combinations(dealt.values(), 2):
        for key in mine.words.keys() & theirs.words.keys():
            np.testing.assert_array_equal(mine.words[key], theirs.words[key])
    assert len({each.dealing for each in dealt.values()}) == 1


def test_a_weight_that_is_missing(plan: Plan) -> None:
    with pytest.raises(UsageError, match="Weight `w` is to be dealt, and it is not there"):
        deal(plan, {"v": W})


# Files


def test_a_file_is_what_was_dealt_and_its_owners_alone(plan: Plan, tmp_path: Path) -> None:
    dealt = deal(plan, {"w": W})["bob"]
    dealt.save(tmp_path / "bob.shares")
    found = load_shares(tmp_path / "bob.shares", plan, "bob")
    assert (found.party, found.dealing, found.plan_digest) == ("bob", dealt.dealing, plan.digest)
    assert found.words.keys() == dealt.words.keys()
    for key, value in dealt.words.items():
        np.testing.assert_array_equal(found.words[key], value)
    assert stat.S_IMODE((tmp_path / "bob.shares").stat().st_mode) == 0o600


def test_a_file_of_another_plan(plan: Plan, file: Path) -> None:
    """A plan that was changed is another one: it can't have shares loaded to send them."""
    other = replace(plan, manifest=replace(plan.manifest, encoding="other"))
    with pytest.raises(SecurityAbort, match="belongs to another plan") as caught:
        load_shares(file, other, "bob")
    assert caught.value.exit_code == 6


def test_a_file_of_another_party(plan: Plan, file: Path) -> None:
    with pytest.raises(SecurityAbort, match="is bob's, and this is carol") as caught:
        load_shares(file, plan, "carol")
    assert caught.value.exit_code == 6


def test_no_file(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        load_shares(tmp_path / "none", plan, "bob")
    with pytest.raises(UsageError, match="is no file"):
        load_shares(tmp_path, plan, "bob")
    (tmp_path / "old").write_bytes(bytes(500))
    with pytest.raises(UsageError, match="holds no shares at rest"):
        load_shares(tmp_path / "old", plan, "bob")


def test_files_cut_short(plan: Plan, file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        with pytest.raises(VeilgraphError, match=r"is empty|is cut short"):
            load_shares(file, plan, "bob")


Change = Callable[[Part], Iterable[Part]]
CHANGES: tuple[tuple[str, Change], ...] = (
    ("lack part 1 of `w`", lambda part: ()),
    ("lack part 1 of `w`", lambda part: (replace(part, name="v"),)),
    ("another shape", lambda part: (replace(part, array=part.array.T),)),
    ("another shape", lambda part: (replace(part, bits=24, array=part.array.astype("<u4")),)),
    ("another shape", lambda part: (replace(part, bits=32),)),
    ("another shape", lambda part: (replace(part, part=(1, 4)),)),
)


@pytest.mark.parametrize(("said", "change"), CHANGES)
def test_files_of_other_content(plan: Plan, file: Path, said: str, change: Change) -> None:
    dealt = load_shares(file, plan, "bob")
    (one,) = (part for part in dealt.parts if part.part == (1, 3))
    others = [part for part in dealt.parts if part is not one]
    replace(dealt, parts=(*others, *change(one))).save(file)
    with pytest.raises(UsageError, match=said):
        load_shares(file, plan, "bob")


def test_parts_that_the_plan_does_not_ask_for_are_left(plan: Plan, file: Path) -> None:
    dealt = load_shares(file, plan, "bob")
    replace(dealt, parts=(*dealt.parts, replace(dealt.parts[0], name="v"))).save(file)
    assert load_shares(file, plan, "bob").words.keys() == dealt.words.keys()


# Files that are encrypted to a certificate


def test_a_file_that_one_party_alone_opens(plan: Plan, tmp_path: Path) -> None:
    bob, carol = (init(tmp_path, name) for name in ("bob", "carol"))
    dealt, file = deal(plan, {"w": W})["bob"], tmp_path / "bob.shares"
    dealt.save(file, bob.certificate)
    found = load_shares(file, plan, "bob", bob.key)
    for key, value in dealt.words.items():
        np.testing.assert_array_equal(found.words[key], value)
    assert found.dealing == dealt.dealing
    with pytest.raises(SecurityAbort, match="doesn't open with bob's private key") as caught:
        load_shares(file, plan, "bob", carol.key)
    assert caught.value.exit_code == 6
    with pytest.raises(UsageError, match="is encrypted, and no private key was given"):
        load_shares(file, plan, "bob")
    issue(tmp_path, "bob")  # a new certificate for the same key
    assert load_shares(file, plan, "bob", bob.key).dealing == dealt.dealing


def test_a_file_made_readable_to_all_is_not_what_was_encrypted(plan: Plan, tmp_path: Path) -> None:
    """The lock is in the head, and the file's keys are of all of the head."""
    bob, file = init(tmp_path, "bob"), tmp_path / "bob.shares"
    deal(plan, {"w": W})["bob"].save(file, bob.certificate)
    content = file.read_bytes()
    for how in (0, 2, 3):
        file.write_bytes(content[:12] + bytes([how]) + content[13:])
        with pytest.raises(SecurityAbort, match="doesn't open with bob's"):
            load_shares(file, plan, "bob", bob.key)
    for ephemeral in (bytes(32), bytes([1]) + bytes(31)):  # of small order
        file.write_bytes(content[:136] + ephemeral + content[168:])
        with pytest.raises(SecurityAbort, match="was changed: nobody's key opens it"):
            load_shares(file, plan, "bob", bob.key)


def test_a_file_that_can_not_be_written_leaves_nothing(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        deal(plan, {"w": W})["bob"].save(tmp_path / "nowhere" / "model.bob.shares")
    assert list(tmp_path.iterdir()) == []


# The handshake


def confirmed(dealings: Mapping[int, bytes]) -> list[Any]:
    links, agreed = loopback(3, ("alice", "bob", "carol"), 5.0), Agreed(bytes(32), {})
    return run_threads(
        [lambda i=i: confirm_id(links[i], agreed, None, dealings[i]) for i in range(3)]
    )


def test_parties_of_two_dealings_stop(plan: Plan) -> None:
    first, second = (deal(plan, {"w": W})["bob"].dealing for _ in range(2))
    assert confirmed({0: first, 1: first, 2: first}) == [NO_STATE] * 3
    results = confirmed({0: first, 1: second, 2: first})
    assert all(isinstance(each, SecurityAbort) for each in results), results
    assert results[0].message == (
        "bob has shares of the weights from another dealing than this party."
    )
    assert "alice has shares" in results[1].message


def test_a_dealer_has_no_shares_and_takes_part(plan: Plan) -> None:
    dealing = deal(plan, {"w": W})["bob"].dealing
    assert confirmed({0: dealing, 1: dealing, 2: NO_DEALING}) == [NO_STATE] * 3
    assert Terms(bytes(32), 64).dealing == NO_DEALING


def test_shares_in_memory_are_checked_as_files_are(plan: Plan) -> None:
    dealt = deal(plan, {"w": W})["bob"]
    dealt.check(plan, "bob")
    spoilt: tuple[DealtShares, ...] = (
        replace(dealt, plan_digest="ab" * 32),
        replace(dealt, party="carol"),
        replace(dealt, parts=()),
    )
    for each in spoilt:
        with pytest.raises(VeilgraphError):
            each.check(plan, "bob")
