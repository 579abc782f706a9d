"""Three parties for tests: their files on disk, and ways to run them as processes or threads."""

from __future__ import annotations

import multiprocessing
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from veilgraph.ir.errors import VeilgraphError
from veilgraph.runtime._native import OpenSsl
from veilgraph.runtime.links.links import Links, TlsLinks
from veilgraph.runtime.links.native import NativeLinks
from veilgraph.runtime.links.openssl import openssl
from veilgraph.runtime.links.tls import RECORDS_PER_KEY, NativeTransport
from veilgraph.runtime.session.certificates import fingerprint, init, self_signed
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.keys import Holders
from veilgraph.runtime.session.private_keys import load_private_key

NAMES = ("alice", "bob", "carol")
DIGEST = bytes(range(32))
PAIRS_AND_OWN: list[Holders] = [frozenset({i, j}) for i in range(3) for j in range(i + 1)]


class Connect(Protocol):
    """How a party gets its links; see `TlsLinks.connect`."""

    def __call__(
        self,
        config: Config,
        *,
        insecure_plaintext: bool = False,
        timeout_seconds: float | None = None,
    ) -> Links: ...


def native_transport(records_per_key: int = RECORDS_PER_KEY) -> NativeTransport:
    """Skips the test where this Python's OpenSSL can't be called."""
    found = openssl()
    if not isinstance(found, OpenSsl):
        pytest.skip(found)
    return NativeTransport(found, records_per_key)


def connect_native(config: Config, **options: Any) -> NativeLinks:
    return NativeLinks.connect(config, native_transport(), **options)


def connect_mixed(config: Config, **options: Any) -> Links:
    """alice's links are Python's, those of the others native."""
    return (connect_native if config.party else TlsLinks.connect)(config, **options)


KINDS: dict[str, Connect] = {
    "native": connect_native,
    "python": TlsLinks.connect,
    "mixed": connect_mixed,
}


def write_parties(
    folder: Path, timeout_seconds: float = 10.0, names: Sequence[str] = NAMES
) -> dict[str, Path]:
    """Keys, certificates and a parties.yaml for each party, on free ports; the files by name."""
    ports = _free_ports(len(names))
    listed = [
        {"name": name, "host": "127.0.0.1", "port": port, "certificate": f"{name}.crt"}
        for name, port in zip(names, ports, strict=True)
    ]
    files = {}
    for name in names:
        init(folder, name)
        me = {"name": name, "key": f"{name}.key", "state_dir": "state"}
        content = {"parties": listed, "me": me, "timeout_seconds": timeout_seconds}
        files[name] = folder / f"{name}.yaml"
        files[name].write_text(yaml.safe_dump(content))
    return files


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Changes a parties.yaml in place."""
    content = yaml.safe_load(file.read_text())
    change(content)
    file.write_text(yaml.safe_dump(content))
    return file


def pin(file: Path, party: int, der: bytes) -> None:
    """Pins a party's certificate by its fingerprint, so that nobody looks at it beforehand."""

    def change(content: dict[str, Any]) -> None:
        content["parties"][party].pop("certificate", None)
        content["parties"][party]["fingerprint"] = fingerprint(der).hex()

    edit(file, change)


def dated(folder: Path, name: str, start: datetime, days: int) -> bytes:
    """Replaces a party's certificate by one of other dates."""
    made = self_signed(load_private_key(folder / f"{name}.key"), name, [], start, days)
    (folder / f"{name}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return made.public_bytes(serialization.Encoding.DER)


def load_all(files: dict[str, Path]) -> list[Config]:
    return [Config.load(file) for file in files.values()]


def run_threads(acts: Sequence[Callable[[], Any]], seconds: float = 30) -> list[Any]:
    """Runs each in its thread, which ends in time; the values returned, or the user errors raised,
    in order.
    """
    results: list[Any] = [None] * len(acts)

    def run(index: int) -> None:
        try:
            results[index] = acts[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive()
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, VeilgraphError):
            raise result
    return results


def connect_all(connect: Connect, configs: Sequence[Config], **options: Any) -> list[Any]:
    """All parties' links, in this process."""
    links = run_threads([lambda c=c: connect(c, **options) for c in configs])
    for each in links:
        assert isinstance(each, TlsLinks | NativeLinks), each
    return links


def run_processes(
    connect: Connect, act: Callable[..., Any], files: dict[str, Path], *args: Any
) -> list[Any]:
    """Runs `act(links, *args)` for each party in its own process, over TLS; results in order.

    A user error comes back as (exit code, sentence); a process that died as its exit status.
    """
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in files]
    processes = [
        context.Process(target=_party, args=(sender, connect, file, act, args))
        for (_, sender), file in zip(pipes, files.values(), strict=True)
    ]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()
    results = []
    for process, (receiver, _) in zip(processes, pipes, strict=True):
        try:
            assert receiver.poll(30)
            results.append(receiver.recv())
        except EOFError:
            process.join()
            results.append(process.exitcode)
        process.join()
    return results


def _party(
    sender: Any, connect: Connect, file: Path, act: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    try:
        with connect(Config.load(file)) as links:
            sender.send(act(links, *args))
    except VeilgraphError as error:
        sender.send((error.exit_code, error.message))


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
