"""The clients of a party: certificates in a folder, NAME.crt, and tokens with which new ones come.

A file of certificates may hold two, while one takes the other's place. The folder is read again
when it has changed: who is taken out of it can begin nothing any more. What is written into a file
in place changes no folder, and counts within a second; so does what changes in one tick of the file
system's clock with the last look.

A token is good for one certificate, once, until an hour that is stated. NAME.token in the folder
has its SHA-256, so who reads the folder can enrol nobody. Whoever brings the token proves to have
the certificate's key, by a signature that this party and no other accepts.

A token becomes a certificate in steps, each of one name, so that a crash between any two leaves one
of them and never both. `finish` goes on, in the party's next process, from what a crash left:

Each of it is done by one process at a time, by a lock on the folder.

| step | the folder has then | a crash then leaves |
| --- | --- | --- |
| the token is claimed | NAME.used | the token, good again |
| the certificate is on the disk | NAME.used, NAME.enrolled | the certificate |
| the audit log has said so | the same | the certificate; the log may say so twice |
| the token is gone | NAME.enrolled | the certificate |
| the certificate counts | NAME.crt | the certificate |
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import math
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from veilgraph.ir.errors import PeerError, ResourceLimitError, UsageError, VeilgraphError
from veilgraph.ir.files.whole_files import placed_whole, remove_partials, sync_folder
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session.certificates import (
    check_party_name,
    fingerprint,
    is_certificate,
    load_certificate,
    load_certificates,
)
from veilgraph.runtime.session.public_keys import is_signed_by_party

LOG = logging.getLogger("veilgraph.service")
MOST_CERTIFICATE_BYTES = 1 << 13
_LOOK_SECONDS = 1.0  # between looks at each file: with thousands a look takes milliseconds
_TOKEN_BYTES = 20  # 32 characters
_LABEL = b"veilgraph enrol 1\n"
_USED, _KEPT = ".used", ".enrolled"  # a token that is claimed; a certificate on its way
Note: TypeAlias = Callable[[str, bytes], None]


class Enrolled:
    """The clients that may ask, by certificate.

    Args:
        folder: of their certificates, NAME.crt; None where nobody may ask.
        certificate, key: this party's PEM files.
    """

    def __init__(self, folder: Path | None, certificate: Path, key: Path) -> None:
        self._folder, self._certificate, self._key = folder, certificate, key
        self._lock = threading.Lock()
        self._seen: object = None
        self._looked, self._changed = -math.inf, 0  # when files were looked at; the folder's time
        self._names: dict[bytes, str] = {}
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def name_of(self, der: bytes) -> str | None:
        """The client of a certificate; None for one that may not ask now."""
        self.context()
        return self._names.get(fingerprint(der))

    def context(self) -> ssl.SSLContext:
        """TLS with those who may ask now, and with nobody else."""
        with self._lock:
            now, changed = time.monotonic(), self._folder_time()
            if changed != self._changed or now - self._looked > _LOOK_SECONDS:
                self._look()
                self._looked, self._changed = now, changed
            return self._context

    def _folder_time(self) -> int:
        try:
            return self._folder.stat().st_mtime_ns if self._folder else 0
        except FileNotFoundError:
            return 0

    def _look(self) -> None:
        now = list(self._files())
        if now != self._seen:
            self._context, self._names = self._read([file for file, _, _ in now])
            self._seen = now

    def _named(self, suffix: str) -> list[Path]:
        """The folder's files of such names; none where there is no folder."""
        return sorted(self._folder.glob(f"*{suffix}")) if self._folder else []

    def _files(self) -> Iterator[tuple[Path, int, int]]:
        """Each file of certificates, when it was written and its size."""
        for file in self._named(".crt"):
            with suppress(FileNotFoundError):  # it was taken out just now
                status = file.stat()
                yield file, status.st_mtime_ns, status.st_size

    def _read(self, files: list[Path]) -> tuple[ssl.SSLContext, dict[bytes, str]]:
        context = self.open_context()
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        names: dict[bytes, str] = {}
        for file in files:
            try:
                found = load_certificates(file)
                context.load_verify_locations(cadata=b"".join(found))
            except (UsageError, ssl.SSLError) as error:
                LOG.warning("%s is no certificate, and is passed over: %s", file, error)
                continue
            names |= dict.fromkeys(map(fingerprint, found), file.stem)
        return context, names

    def open_context(self) -> ssl.SSLContext:
        """TLS with anybody: for who brings a token, and is known by nothing else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # no resumption: each connection proves its keys anew
        context.load_cert_chain(self._certificate, self._key)
        return context

    def enrol(self, token: str, der: bytes, signature: str, note: Note = lambda *_: None) -> str:
        """Puts a certificate into the folder under the name that a token is for, which it gives.

        Args:
            note: hears of the name and the certificate, once that is on the disk and before it
                counts; what it raises leaves the token.

        Raises:
            ResourceLimitError: it can't be kept; the hint says whether the token is still good.
            PeerError: a token that is none, or not any more; a certificate that is none, that has
                another key, or that is in the folder already.
        """
        with self._alone():
            return self._enrol(token, der, signature, note)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no thread or process changes this folder's tokens and what becomes of them."""
        if self._folder is None or not self._folder.is_dir():
            yield  # there are none
            return
        import fcntl  # clients load this file too, on systems that have none

        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _enrol(self, token: str, der: bytes, signature: str, note: Note) -> str:
        file = self._file_of(token)
        if file is None:
            raise PeerError(
                "There is no such token; or it was used, or its time is over.",
                "Ask who runs the party for another.",
            )
        content = signed_content(token, load_certificate(self._certificate), der)
        if not is_certificate(der) or not is_signed_by_party(der, signature, content):
            raise PeerError("The certificate is none, or its key is another.", "Make one anew.")
        if (name := self.name_of(der)) is not None:
            raise PeerError(f"This certificate is enrolled as {name} already.", "Make another.")
        pem = x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)
        used, kept = file.with_suffix(_USED), file.with_suffix(_KEPT)
        try:
            file.rename(used)  # whoever moves it has it
        except FileNotFoundError as error:
            raise PeerError("The token was used.", "Ask for another.") from error
        except OSError as error:
            raise _unkept(error, is_good=True) from error
        try:
            with placed_whole(kept, 0o644) as placed:
                placed.write(pem)
            note(file.stem, der)
        except BaseException as error:
            is_good = _put_back(used, kept)
            if isinstance(error, OSError):
                raise _unkept(error, is_good) from error
            raise
        try:
            _count_from_now_on(kept)
        except OSError as error:
            raise _not_yet(error) from error
        return file.stem

    def finish(self, note: Note) -> None:
        """Goes on from what a crash of this party's process left.

        Args:
            note: as `enrol`'s; where it raises, the certificate counts after the next start.
        """
        with self._alone():
            self._finish(note)

    def _finish(self, note: Note) -> None:
        for kept in self._named(_KEPT):
            try:
                note(kept.stem, load_certificate(kept))
                _count_from_now_on(kept)
            except (OSError, VeilgraphError) as error:
                LOG.warning("%s can't be taken for enrolled: %s", kept, error)
        for used in self._named(_USED):
            kept = used.with_suffix(_KEPT)
            remove_partials(kept)
            if not kept.exists():
                _put_back(used, kept)

    def _file_of(self, token: str) -> Path | None:
        """The file of a token that is still good; all are compared, in a time that says nothing."""
        known, found = digest_of(token), None
        for file in self._named(".token"):
            try:
                stated = json.loads(file.read_text())
                until = datetime.fromisoformat(stated["until"])
                is_it = hmac.compare_digest(str(stated["sha256"]), known)
            except (OSError, ValueError, KeyError, TypeError) as error:
                LOG.warning("%s is no token, and is passed over: %s", file, error)
                continue
            is_free = not any(file.with_suffix(each).exists() for each in (".crt", _KEPT))
            if is_it and datetime.now(UTC) <= until and is_free:
                found = file
        return found


def _put_back(used: Path, kept: Path) -> bool:
    """Makes a token that was claimed good again, and takes its certificate away; whether it is.

    Beside a newer token, and beside a certificate that counts, it is gone: else it would be good
    again as soon as the other is taken away.
    """
    file = used.with_suffix(".token")
    try:
        kept.unlink(missing_ok=True)
        if file.exists() or used.with_suffix(".crt").exists():
            used.unlink()
            return False
        used.rename(file)
        return True
    except OSError as error:
        LOG.warning("%s can't be made good again: %s", file, error)
    return False


def _count_from_now_on(kept: Path) -> None:
    """A certificate that is on the disk takes its place, and the token that it came with is gone.

    Whatever breaks off here is done again by `finish`.

    Raises:
        OSError: it can't, or another certificate came to its place by hand, which stays.
    """
    for spent in (_USED, ".token"):
        kept.with_suffix(spent).unlink(missing_ok=True)
    place = kept.with_suffix(".crt")
    try:
        place.hardlink_to(kept)  # over no other file
    except FileExistsError:
        if place.read_bytes() != kept.read_bytes():
            raise
    kept.unlink()
    sync_folder(kept.parent)


def _not_yet(error: OSError) -> ResourceLimitError:
    return ResourceLimitError(
        f"The certificate is kept, but can't take its place: {error.strerror}.",
        "Ask who runs the party to mend that, and to start it again: it counts from then on.",
    )


def _unkept(error: OSError, is_good: bool) -> ResourceLimitError:
    told = "the token is still good" if is_good else "the token is not good any more"
    return ResourceLimitError(
        f"The certificate can't be kept: {error.strerror}.",
        f"Ask who runs the party to make room; {told}.",
    )


def make_token(folder: Path, name: str, hours: float) -> tuple[str, datetime]:
    """A token with which a client of this name enrols itself once, and until when.

    Raises:
        UsageError: no such name or folder, a client that is enrolled, or hours that are none.
    """
    check_party_name(name)
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", "me.clients names it: make it.")
    if (folder / f"{name}.crt").exists():
        raise UsageError(
            f"{name} is enrolled: {folder / f'{name}.crt'} is there.",
            "Choose another name, or take the file away.",
        )
    if (folder / f"{name}{_KEPT}").exists():
        raise UsageError(
            f"{name} brought a token: the certificate counts once the party starts again.",
            f"Start it, or take {folder / f'{name}{_KEPT}'} away.",
        )
    if not 0 < hours <= 24 * 30:
        raise UsageError(f"A token can't be good for {hours:g} hours.", "Give at most 720.")
    token = base64.b32encode(fresh_nonce()[:_TOKEN_BYTES]).decode().lower()
    until = datetime.now(UTC) + timedelta(hours=hours)
    content = {"sha256": digest_of(token), "until": until.isoformat(timespec="seconds")}
    try:
        with placed_whole(folder / f"{name}.token", 0o600) as file:
            file.write(json.dumps(content).encode())
    except OSError as error:
        raise UsageError(
            f"{folder} can't be written to: {error.strerror}.", "Do it as the party's user."
        ) from error
    return token, until


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def signed_content(token: str, party: bytes, client: bytes) -> bytes:
    """What a client signs: for one token, at one party, and of its own certificate (both DER)."""
    return b"".join((_LABEL, digest_of(token).encode(), fingerprint(party), fingerprint(client)))
