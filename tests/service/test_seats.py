"""A client's seats at the parties: their parts add up to what the client's own program does."""

from __future__ import annotations

import os

import numpy as np
import pytest
from serving import SUITES, compiled

from veilgraph.ir.plan.tables import BufferKind
from veilgraph.runtime.service import packed
from veilgraph.runtime.service.seat import Seat, members_of, role_keys
from veilgraph.runtime.session.keys import DrawKeys, SessionKeys, holders_of


@pytest.mark.parametrize("suite", [*SUITES, "three of additive"])
def test_masks_add_up_to_what_the_program_sends(suite: str) -> None:
    if suite in SUITES:
        plan = compiled(suite)[0]
    else:
        plan = compiled("additive", parties=("alice", "bob", "carol"))[0]
    program = plan.party("patient")
    index = plan.manifest.parties.index
    keys = {frozenset(map(index, each)): os.urandom(16) for each in program.keys}
    seats = [Seat(plan, "patient", party) for party in plan.manifest.computing]
    total = sum(seat.masks(7, DrawKeys(keys))["x"].astype(np.uint64) for seat in seats)
    (x,) = program.inputs
    own = Seat(plan, "patient", "alice")
    own._begin(b"".join(keys[frozenset(map(index, each))] for each in program.keys))
    given = np.arange(x.elements, dtype=np.uint32) * 777
    own._device.copy_in(x.offset, given.view(np.uint8))
    for sent in own._sent(7, own._places["x"]):
        np.testing.assert_array_equal(sent, (given + total) % (1 << x.ring_bits))
    receivers = {link.partition("->")[2] for link in plan.sent_bytes(2) if "patient->" in link}
    assert {seat.program.party for seat in seats} == {"patient"}
    names = [p for p, s in zip(plan.manifest.computing, seats, strict=True) if s.receives]
    assert set(names) == receivers


def test_a_roles_key_is_no_key_of_the_parties() -> None:
    plan = compiled("rep3")[0]
    holders = holders_of(plan)
    members = frozenset(map(plan.manifest.parties.index, members_of(plan)))
    inner = {each & members for each in holders} - {frozenset()}
    session = SessionKeys({each: os.urandom(32) for each in inner})
    found = role_keys(plan, holders, session)
    assert set(found) == {each for each in holders if each & members}
    assert len({found[each] for each in found}) == len(found)
    assert all(found[each] == session[each] for each in found if each <= members)


@pytest.mark.parametrize("bits", [1, 2, 7, 8, 14, 24, 31, 32, 33, 48, 63, 64])
@pytest.mark.parametrize("count", [1, 5, 64, 131])
def test_packed_elements_come_back(bits: int, count: int) -> None:
    drawn = np.random.default_rng(bits).integers(0, 1 << 63, count, np.uint64)
    words = (drawn * 2 + 1).astype("<u4" if bits <= 32 else "<u8") & packed.low(bits)
    content = packed.store(words, BufferKind.PACKED, bits)
    assert len(content) == packed.stored_bytes(BufferKind.PACKED, bits, count)
    np.testing.assert_array_equal(packed.load(content, BufferKind.PACKED, bits, count), words)
    value = sum(int(word) << (i * bits) for i, word in enumerate(words))
    assert int.from_bytes(content.tobytes(), "little") == value
