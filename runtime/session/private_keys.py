"""A party's or a client's private key: in a file of its own, or what a command prints.

A command is how a key with a passphrase comes in, or one that an agent or a secret manager keeps.
What it prints stays in memory: in a file that has no name, and whose pages the system clears when
it is closed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.session.keys import derive
from veilgraph.runtime.session.sections import Section

PrivateKey: TypeAlias = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey

_MAX_PEM_BYTES = 1 << 16
COMMAND_SECONDS = 60.0  # in which a person types a passphrase


@dataclass(frozen=True)
class KeyFile:
    """Where a key can be read; for one of a command, as long as this object lives."""

    path: Path
    _held: BinaryIO | None = field(default=None, repr=False, compare=False)

    @staticmethod
    def of(me: Section) -> KeyFile:
        """What `me.key` or `me.key_command` names.

        Raises:
            UsageError: neither, or both; a command that fails or prints too much.
        """
        if ("key" in me.values) == ("key_command" in me.values):
            raise UsageError(
                f"{me.where} must have either `key` or `key_command`.",
                "`veilgraph cert init` makes a key; a command prints one, as PEM.",
            )
        if "key" in me.values:
            return KeyFile(me.file("key"))
        return _in_memory(_printed(me.words("key_command"), me.folder))


def _printed(command: Sequence[str], folder: Path) -> bytes:
    """What a command writes to its output; what it has to say goes where this process's does."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder,
            timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
    except OSError as error:
        raise _no_key(command, f"can't be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _no_key(command, f"took longer than {COMMAND_SECONDS:g} seconds") from error
    if done.returncode:
        raise _no_key(command, f"ended with exit code {done.returncode}")
    if len(done.stdout) > _MAX_PEM_BYTES:
        raise _no_key(command, "printed far more than a key")
    return done.stdout


def _no_key(command: Sequence[str], why: str) -> UsageError:
    return UsageError(f"me.key_command, {command[0]}, {why}.", "Run it by hand: it prints a key.")


def _in_memory(pem: bytes) -> KeyFile:
    if sys.platform != "linux":
        raise UsageError(
            "me.key_command needs Linux, where a file can be in memory alone.",
            "Put the key into a file that only you can read, and name it by `key`.",
        )
    file = os.fdopen(os.memfd_create("veilgraph key"), "w+b", buffering=0)
    os.fchmod(file.fileno(), 0o600)
    file.write(pem)
    return KeyFile(Path(f"/proc/self/fd/{file.fileno()}"), file)


def load_private_key(path: Path) -> PrivateKey:
    """The private key of a PEM file that only its owner may read.

    Raises:
        UsageError: a file that can't be read, that others can read, or that holds no such key.
    """
    pem = read_pem(path, "key")
    # On Windows lists of access say who may read, and no mode.
    if sys.platform != "win32" and path.stat().st_mode & 0o077:
        raise UsageError(f"Others on this host can read the key {path}.", f"chmod 600 {path}")
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"{path} holds no private key that can be read without a password.",
            "Give the .key file that `cert init` made, or have `me.key_command` print the key.",
        ) from error
    if not isinstance(key, PrivateKey):
        raise UsageError(
            f"The key {path} is neither an Ed25519 nor an ECDSA key.", "Make one: `cert init`."
        )
    return key


def secret_of(path: Path) -> bytes:
    """32 bytes that only the owner of a private key's file can know, for deriving others from.

    They are of the key itself, not of how a file or a library writes it: RFC 8032's 32 bytes, or
    ECDSA's number, big endian, in as many bytes as the curve's order has.

    Raises:
        UsageError: as `load_private_key`.
    """
    key = load_private_key(path)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return derive(key.private_bytes_raw(), "private key ed25519")
    number = key.private_numbers().private_value
    return derive(number.to_bytes(-(-key.key_size // 8), "big"), f"private key {key.curve.name}")


def read_pem(path: Path, what: str) -> bytes:
    """The bytes of a PEM file; UsageError, by `what` it is, for one that can't be read."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_PEM_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(
            f"The {what} {path} can't be read: {reason}.", "`cert init` makes one."
        ) from error
    if len(content) > _MAX_PEM_BYTES:
        raise UsageError(f"The {what} {path} is far too long.", "Give a PEM file.")
    return content
