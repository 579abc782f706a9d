"""Who asked for what, and when: a file at each party, whose lines are signed and chained by hash.

A line is a JSON object: the time, the client and its certificate, model, plan, session and request,
what became of it, and the SHA-256 of the line before. A tab and the party's signature of all that
follow. There is never a value, a mask or a share in it. Rows that are asked about in a day are
counted from here, so a party that starts again goes on counting.

Lines that are taken from the end leave a file that is whole. So a second file, the head, says how
many there are and what the last one's hash is, signed too. It is written within a second of a line,
once that is on the disk, so no crash leaves it ahead of the lines.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.runtime.session.certificates import load_certificate
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.session.public_keys import is_signed_by_party, party_signature

LOG = logging.getLogger("veilgraph.service")
_LABEL = b"veilgraph asked 1\n"
_HEAD_LABEL = b"veilgraph asked head 1\n"
_HEAD_SECONDS = 1.0
_MOST_HEAD_BYTES = 4096
_NUMBER = "line"  # of a line, from 1; lines of versions without a head have none
_FIRST = "0" * 64  # before the first line
_ASKED = "asked"
Key: TypeAlias = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


class AuditLog:
    """Appends to the file, from any thread.

    Args:
        path: of the file; made (mode 0600) if it is not there. The head is beside it, `.head`.
        key, certificate: this party's; the certificate as DER.
        most_a_day: rows that one client may ask about in one day, by UTC; any number if None.

    Raises:
        UsageError: a place that can't be written to, or that another process writes to.
        SecurityAbort: a line that was changed, taken out or put in, at the end too.
    """

    def __init__(self, path: Path, key: Key, certificate: bytes, most_a_day: int | None) -> None:
        self._path, self._key, self._most = path, key, most_a_day
        self._lock, self._heads = threading.Lock(), threading.Lock()
        self._day = _today()
        self._asked: Counter[str] = Counter()
        self._told: set[str] = set()  # who was refused today, and is written down
        self._before, self._lines = _FIRST, 0
        self._head = path.with_suffix(".head")
        self._waiting: threading.Timer | None = None  # to write the head
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._file = os.fdopen(os.open(path, flags, 0o600), "rb+", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = self._file.read()
            # A line that was cut short by a crash was reported to nobody.
            whole = content[: content.rfind(b"\n") + 1]
            self._length = len(whole)
            self._file.truncate(self._length)
        except BlockingIOError as error:
            raise UsageError(
                f"{path} is written to by another process of this party.",
                "End that, or give this one a `state_dir` of its own.",
            ) from error
        except OSError as error:
            raise UsageError(
                f"{path} can't be used: {error.strerror}.",
                "Give this party a `state_dir` that it may write to.",
            ) from error
        head = self._read_head(certificate)
        self._has_head = bool(head)
        for number, line in enumerate(whole.splitlines(), 1):
            self._take_in(number, line, certificate)
            if number == head.get("lines") and self._before != head.get("last"):
                raise self._not_as_written(number)
        if self._lines < head.get("lines", 0):
            raise SecurityAbort(
                f"{path} has {self._lines} lines, and had {head['lines']}: its end was cut off.",
                "Find out who did it. Keep the file, and move it and its head away, to begin anew.",
            )
        self._write_head()

    def _take_in(self, number: int, line: bytes, certificate: bytes) -> None:
        content, _, signature = line.partition(b"\t")
        is_own = is_signed_by_party(
            certificate, signature.decode("ascii", "replace"), _LABEL + content
        )
        facts = json.loads(content) if is_own else {}
        if not is_own or facts["before"] != self._before:
            raise self._not_as_written(number)
        if _NUMBER in facts and not self._has_head:
            raise SecurityAbort(
                f"{self._head} is missing, which says where {self._path} ends.",
                "Find out who removed it. Keep the log, and move it away to begin another.",
            )
        self._lines = number
        self._before = hashlib.sha256(line).hexdigest()
        if facts["what"] == _ASKED and facts["time"].startswith(self._day):
            self._asked[facts["certificate"]] += _rows(facts)

    def _not_as_written(self, number: int) -> SecurityAbort:
        return SecurityAbort(
            f"Line {number} of {self._path} is not as this party wrote it, or follows another.",
            "Find out who changed it. Keep the file, and move it and its head away to begin anew; "
            "so too after a change of this party's key.",
        )

    def _read_head(self, certificate: bytes) -> dict[str, Any]:
        """How many lines there were, and the last one's hash; nothing if there is no head."""
        try:
            with self._head.open("rb") as file:
                content, _, signature = file.read(_MOST_HEAD_BYTES).rstrip(b"\n").partition(b"\t")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"{self._head} can't be read: {error.strerror}.", "") from error
        text = signature.decode("ascii", "replace")
        if not is_signed_by_party(certificate, text, _HEAD_LABEL + content):
            raise SecurityAbort(
                f"{self._head} is not as this party wrote it.",
                "Find out who changed it. Keep it, and move it and the log away to begin others; "
                "so too after a change of this party's key.",
            )
        found: dict[str, Any] = json.loads(content)
        return found

    def _write_head(self) -> None:
        """Of the lines that are there now, once they are on the disk."""
        with self._heads:
            with self._lock:
                self._waiting = None
                lines, last = self._lines, self._before
            if self._file.closed:
                return
            content = json.dumps({"lines": lines, "last": last}).encode()
            signature = party_signature(self._key, _HEAD_LABEL + content).encode()
            try:
                os.fsync(self._file.fileno())
                with placed_whole(self._head) as file:
                    file.write(content + b"\t" + signature + b"\n")
            except OSError as error:  # the next line tries again
                LOG.warning("%s can't be written: %s", self._head, error.strerror)

    def close(self) -> None:
        """Writes the head, and lets go of the file; nothing may be asked after that."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.cancel()
        self._write_head()
        with self._heads, self._lock:
            self._file.close()

    def allow(self, most_a_day: int | None) -> None:
        """About how many rows a client may ask in a day from now on; those of today count."""
        with self._lock:
            self._most = most_a_day

    def ask(self, facts: Mapping[str, str]) -> None:
        """Counts the rows of a client's request, and writes it down.

        Raises:
            ResourceLimitError: the client may ask about no more rows today, or there is no room.
        """
        with self._lock:
            if self._day != _today():
                self._day = _today()
                self._asked.clear()
                self._told.clear()
            certificate, rows = facts["certificate"], _rows(facts)
            asked = self._asked[certificate]
            if self._most is not None and asked + rows > self._most:
                if certificate not in self._told:
                    self._write(facts, "over its number")
                    self._told.add(certificate)
                raise ResourceLimitError(
                    f"{facts['client']} has asked about {asked} of the {self._most} rows that it "
                    f"may ask about today, and asks about {rows} more.",
                    "Ask again tomorrow (UTC), or ask who runs the party for more.",
                )
            self._write(facts, _ASKED)
            self._asked[certificate] += rows

    def end(self, facts: Mapping[str, str], what: str) -> None:
        """What became of a request."""
        with self._lock:
            self._write(facts, what)

    def keep(self, facts: Mapping[str, str], what: str) -> None:
        """Writes down what is to outlive a crash of the host; ResourceLimitError as `ask`."""
        with self._lock:
            self._write(facts, what)
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise self._no_room(error.strerror or "it failed") from error

    def _write(self, facts: Mapping[str, str], what: str) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._file.closed:
            raise self._no_room("this party has left")
        number = self._lines + 1
        fields = {_NUMBER: number, "time": time, "what": what, **facts, "before": self._before}
        content = json.dumps(fields).encode()
        line = content + b"\t" + party_signature(self._key, _LABEL + content).encode()
        try:
            if os.fstat(self._file.fileno()).st_size != self._length:
                raise OSError(errno.EIO, "another process changed it")
            written = self._file.write(line + b"\n")
            if written != len(line) + 1:
                self._file.truncate(self._length)  # no line begins in the middle of another
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._no_room(error.strerror or "it failed") from error
        self._length += written
        self._before, self._lines = hashlib.sha256(line).hexdigest(), number
        if self._waiting is None:
            self._waiting = threading.Timer(_HEAD_SECONDS, self._write_head)
            self._waiting.daemon = True
            self._waiting.start()

    def _no_room(self, reason: str) -> ResourceLimitError:
        return ResourceLimitError(
            f"Requests can't be written down: {reason}.", "Ask who runs the party to make room."
        )


def audit_of(config: Config) -> AuditLog:
    """A party's, in its `state_dir`; errors as `AuditLog`."""
    path = config.state_dir / f"asked-{config.me.name}.jsonl"
    key, certificate = load_private_key(config.key), load_certificate(config.certificate)
    return AuditLog(path, key, certificate, config.rows_a_day)


def _rows(facts: Mapping[str, str]) -> int:
    """Of a request; of one that a version before shared inferences wrote down, 1."""
    return int(facts.get("rows", 1))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
