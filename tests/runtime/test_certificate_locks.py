"""Files to a certificate: the private key's holder opens them, and nobody can be tricked."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.session.certificates import init, load_certificate, self_signed
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.store.at_rest import PUBLIC_KEY
from veilgraph.runtime.store.certificate_locks import lock_of_own, lock_to, public_key

NOW = datetime.now(UTC)


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def test_both_ends_have_one_key_and_each_file_its_own(tmp_path: Path) -> None:
    for name in ("alice", "bob", "carol"):
        files = init(tmp_path, name)
        key, certificate = load_private_key(files.key), load_certificate(files.certificate)
        locks = [lock_to(certificate) for _ in range(3)]
        assert len({lock.key for lock in locks}) == 3
        for lock in locks:
            assert lock.how == PUBLIC_KEY
            assert lock_of_own(key, lock.ephemeral) == lock
    first = load_private_key(tmp_path / "alice.key")
    assert lock_of_own(first, lock.ephemeral).key != lock.key


def test_vectors_of_rfc_8032_and_the_map_of_rfc_7748() -> None:
    """The scalar of RFC 8032's first test, multiplied on both curves: one point, by the map."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes_raw()
    assert public.hex().startswith("d75a980182b10ab7d54bfed3c964073a")
    mapped = public_key(der(self_signed(key, "alice", [], NOW, 9)))
    y, prime = int.from_bytes(public, "little") & (2**255 - 1), 2**255 - 19
    u = int.from_bytes(mapped, "little")
    assert (u * (1 - y) - (1 + y)) % prime == 0
    scalar = hashlib.sha512(seed).digest()[:32]
    assert X25519PrivateKey.from_private_bytes(scalar).public_key().public_bytes_raw() == mapped


def test_keys_that_are_refused() -> None:
    old = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(UsageError, match="to an Ed25519 key alone") as caught:
        lock_to(der(self_signed(old, "alice", [], NOW, 9)))
    assert "cert init" in caught.value.hint
    with pytest.raises(UsageError, match="to an Ed25519 key alone"):
        lock_of_own(old, bytes(32))
    key = Ed25519PrivateKey.generate()
    raw = key.public_key().public_bytes_raw()
    certificate = der(self_signed(key, "alice", [], NOW, 9))
    for y in (0, 1, 2**255 - 20):  # points of order 4, 1 and 2: all that they agree on is known
        weak = certificate.replace(raw, y.to_bytes(32, "little"))
        with pytest.raises(UsageError, match="one that anybody can agree with"):
            lock_to(weak)
