"""Keys: by holders, each of its own, and none of the past in a ratchet."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime.session.certificates import init
from veilgraph.runtime.session.keys import (
    DrawKeys,
    Ratchet,
    SessionKeys,
    contribution,
    derive,
    expand,
    in_order,
    key_of,
)
from veilgraph.runtime.session.private_keys import secret_of

OWN, WITH_0, WITH_2, ALL = (frozenset(each) for each in ({1}, {0, 1}, {1, 2}, {0, 1, 2}))
SECRETS = {holders: bytes([i]) * 32 for i, holders in enumerate((ALL, WITH_2, OWN, WITH_0))}
ID = bytes(range(32))


def test_keys_by_holders() -> None:
    keys = DrawKeys({holders: secret[:16] for holders, secret in SECRETS.items()})
    assert set(keys) == {OWN, WITH_0, WITH_2, ALL}
    assert keys.table([(2, 1), (1,), (0, 2, 1)]) == bytes([1] * 16 + [2] * 16 + [0] * 16)
    with pytest.raises(KeyError):
        keys.table([(0, 2)])


def test_keys_do_not_print_secrets() -> None:
    keys = SessionKeys({OWN: b"secret" * 5 + b"ss"})
    for printed in (repr(keys), f"{keys.setup()}", str(keys.ratchet())):
        assert "holders=[[1]]" in printed
        assert "secret" not in printed
        assert repr(keys.ratchet().states[OWN])[2:-1] not in printed


def test_keys_of_a_wrong_size_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        SessionKeys({OWN: bytes(16)})
    with pytest.raises(AssertionError):
        DrawKeys({OWN: bytes(32)})


def test_derivations_are_hkdf_and_apart() -> None:
    # RFC 5869, section 2, written out.
    extracted = hmac.digest(b"salt", b"secret", hashlib.sha256)
    block = hmac.digest(extracted, b"veilgraph label\0context\1", hashlib.sha256)
    assert derive(b"secret", "label", b"context", b"salt") == block
    assert expand(extracted, "label", b"context") == block
    assert expand(extracted, "label", b"context", 16) == block[:16]
    found = {
        derive(secret, label, context, salt)
        for secret in (b"a", b"b")
        for label in ("x", "y")
        for context in (b"", b"c")
        for salt in (b"", b"s")
    }
    assert len(found) == 16


def test_a_contribution_is_for_its_holders_in_its_session() -> None:
    found = {
        contribution(fresh, secret, session, party, holders)
        for fresh in (bytes(32), ID)
        for secret in (bytes(32), ID)
        for session in (bytes(32), ID)
        for party in (0, 1)
        for holders in (WITH_0, ALL)
    }
    assert len(found) == 32


def test_a_key_is_of_all_contributions_in_order() -> None:
    one, two = bytes([1]) * 32, bytes([2]) * 32
    found = {
        key_of({0: one, 1: two}, ID),
        key_of({0: two, 1: one}, ID),
        key_of({0: one, 2: two}, ID),
        key_of({0: one, 1: two, 2: one}, ID),
        key_of({0: one, 1: two}, bytes(32)),
    }
    assert len(found) == 5
    assert key_of({1: two, 0: one}, ID) in found


def test_a_ratchet_gives_each_inference_keys_of_its_own() -> None:
    ratchet = SessionKeys(SECRETS).ratchet()
    tables = [SessionKeys(SECRETS).setup()]
    for number in range(1, 50):
        assert ratchet.number == number
        tables += [ratchet.keys(), ratchet.branch().keys()]
        ratchet = ratchet.next()
    found = [key for table in tables for key in table.values()]
    assert len(set(found)) == len(found)
    assert SessionKeys(SECRETS).ratchet().at(50) == ratchet
    with pytest.raises(SecurityAbort, match="inference 49 are gone: the next is 50"):
        ratchet.at(49)


def test_holders_of_a_key_step_alike() -> None:
    mine = Ratchet(1, {OWN: bytes(32), WITH_0: ID})
    theirs = Ratchet(1, {WITH_0: ID, frozenset({0}): bytes(32)})
    assert mine.at(9).keys()[WITH_0] == theirs.at(9).keys()[WITH_0]
    assert mine.branch().keys()[WITH_0] == theirs.branch().keys()[WITH_0]


def test_seals() -> None:
    ratchet = SessionKeys(SECRETS).ratchet()
    found = {
        each.seal(secret, store)
        for each in (ratchet, ratchet.next(), ratchet.branch())
        for secret in (bytes(32), ID)
        for store in (b"one", b"other")
    }
    assert len(found) == 12


def test_sets_go_from_small_to_large() -> None:
    assert in_order([ALL, WITH_2, OWN, WITH_0, OWN]) == [OWN, WITH_0, WITH_2, ALL]


def test_a_private_key_gives_one_secret(tmp_path: Path) -> None:
    """However the file writes it; of both kinds of keys."""
    alice, bob = (init(tmp_path, name).key for name in ("alice", "bob"))
    first = secret_of(alice)
    alice.write_bytes(alice.read_bytes().replace(b"\n", b"\r\n"))
    assert secret_of(alice) == first
    assert secret_of(bob) != first
    bob.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    assert len(secret_of(bob)) == 32
