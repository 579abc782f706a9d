"""A party of a service that waits for the others, and what may be said at its port."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from benchmarks.serving.ward import PARTIES
from veilgraph.measuring.processes import write_configs
from veilgraph.plans import Plan
from veilgraph.runtime.client import wire
from veilgraph.runtime.client.client_config import ClientConfig
from veilgraph.runtime.session import certificates
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.peer_status import PeerStatus
from veilgraph.runtime.session.preamble import own_greeting
from veilgraph.serving.party_links import reach
from veilgraph.serving.service import Service

ANSWER_SECONDS, SOUND_EVERY = 15.0, 500


class OpenPort:
    """alice's; bob and carol never come.

    Attributes:
        hellos: sound first words of a client, of one that enrols, and of a party; each is the
            begin of a handshake.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        write_configs(folder, list(PARTIES))
        (folder / "clients").mkdir()
        file = folder / "alice.yaml"
        content = yaml.safe_load(file.read_text())
        content["me"]["clients"] = "clients"
        file.write_text(yaml.safe_dump(content))
        place = folder / "models" / "small" / "1"
        place.mkdir(parents=True)
        plan.save(place / "model.plan")
        client = certificates.init(folder, "patient")
        shutil.copy(client.certificate, folder / "clients")
        me = {"name": "patient", "key": "patient.key", "certificate": "patient.crt"}
        stated = {"parties": content["parties"], "me": me}
        (folder / "patient.yaml").write_text(yaml.safe_dump(stated))
        self._client = ClientConfig.load(folder / "patient.yaml")
        self._alice = self._client.parties[0]
        bob = own_greeting(Config.load(folder / "bob.yaml"), plaintext=False)
        hello = _hello(client)
        self.hellos = {
            "a client's": wire.MAGIC + hello,
            "a newcomer's": wire.ENROL + hello,
            "a party's": bob + bytes([PeerStatus.WELCOME]) + _hello(certificates.CertificateFiles(
                folder / "bob.key", folder / "bob.crt", "")),
        }  # fmt: skip
        self._service = Service("alice", file, folder / "models")
        self._count, self._broken = 0, list[str]()

    @contextmanager
    def open(self) -> Iterator[None]:
        """It listens meanwhile."""
        thread = threading.Thread(target=self._service.run, daemon=True)
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: self._broken.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("veilgraph").addHandler(handler)
        before, threading.excepthook = threading.excepthook, lambda e: self._broken.append(str(e))
        thread.start()
        try:
            yield
        finally:
            threading.excepthook = before
            logging.getLogger("veilgraph").removeHandler(handler)
            self._service.leave()
            self._service.close()

    def say(self, content: bytes) -> None:
        """Says it, and waits for the end of the conversation.

        Raises:
            RuntimeError: the party did not end it, a thread of it broke, or it serves nobody.
        """
        place = self._alice.host, self._alice.port
        with socket.create_connection(place, ANSWER_SECONDS) as own:
            try:
                own.sendall(content)
                own.shutdown(socket.SHUT_WR)
                while own.recv(1 << 14):
                    pass
            except TimeoutError as error:
                raise RuntimeError("the party goes on waiting") from error
            except OSError:  # it ended the conversation
                pass
        self._count += 1
        if self._broken:
            raise RuntimeError(f"a thread of the party broke: {self._broken}")
        if self._count % SOUND_EVERY == 0:
            reach(self._alice, self._client, ANSWER_SECONDS).close()


def _hello(files: certificates.CertificateFiles) -> bytes:
    """The first message of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(files.certificate, files.key)
    said = ssl.MemoryBIO()
    own = context.wrap_bio(ssl.MemoryBIO(), said)
    with suppress(ssl.SSLWantReadError):
        own.do_handshake()
    return said.read()
