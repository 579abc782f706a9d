"""Three processes of `veilgraph serve` on loopback and the clients that may ask them.

Links between parties go by way of proxies where faults are to be made, and so do those of clients.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import yaml

import veilgraph
from benchmarks.harness.sessions import Ours
from benchmarks.serving.clocks import Clock
from benchmarks.serving.proxies import Proxy
from veilgraph.measuring.processes import write_configs
from veilgraph.runtime.session import certificates

PARTIES = ("alice", "bob", "carol")
LEAVE_SECONDS = 60


class Ward:
    """Serves from `__enter__` to `__exit__`.

    Args:
        folder: empty; all files go there.
        models: what is served, by NAME/VERSION.
        clients: how many there are; `clients` are their parties.yaml.
        ahead: inferences of each plan to prepare.
        has_proxies: between parties, and before each party for clients: `links` and `doors`.
        has_clocks: of each party, which can be moved: `clocks`.
        moves_timers: whether waits end by these clocks too.
    """

    def __init__(
        self,
        folder: Path,
        models: Mapping[str, Ours],
        clients: int,
        ahead: int,
        *,
        has_proxies: bool = False,
        has_clocks: bool = False,
        moves_timers: bool = False,
        timeout_seconds: float = 60.0,
    ) -> None:
        self.folder, self._ahead = folder, ahead
        clocked = PARTIES if has_clocks or moves_timers else ()
        self.clocks = {name: Clock(folder, name, moves_timers=moves_timers) for name in clocked}
        write_configs(folder, list(PARTIES))
        (folder / "clients").mkdir()
        listed = yaml.safe_load((folder / "alice.yaml").read_text())["parties"]
        ports = {each["name"]: each["port"] for each in listed} if has_proxies else {}
        # Parties dial those before them: nobody dials the last.
        self.links = {name: Proxy(ports[name]) for name in PARTIES[:-1] if name in ports}
        self.doors = {name: Proxy(port) for name, port in ports.items()}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for party in PARTIES:
            self._configure(party, timeout_seconds)
            for name, ours in models.items():
                self.put(party, name, ours)
        by_door: list[object] = [
            {**each, "port": self.doors[each["name"]].port if self.doors else each["port"]}
            for each in listed
        ]
        self.clients = [
            self._client(f"patient{number}", by_door, timeout_seconds) for number in range(clients)
        ]

    def _configure(self, party: str, timeout_seconds: float) -> None:
        file = self.folder / f"{party}.yaml"
        content = yaml.safe_load(file.read_text())
        content["me"]["clients"] = "clients"
        content["timeout_seconds"] = timeout_seconds
        for each in content["parties"]:
            if each["name"] != party and each["name"] in self.links:
                each["port"] = self.links[each["name"]].port
        file.write_text(yaml.safe_dump(content))

    def _client(self, name: str, parties: list[object], timeout_seconds: float) -> Path:
        files = certificates.init(self.folder, name, ["127.0.0.1"])
        shutil.copy(files.certificate, self.folder / "clients")
        me = {"name": name, "key": f"{name}.key", "certificate": f"{name}.crt"}
        stated = {"parties": parties, "me": me, "timeout_seconds": timeout_seconds}
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(stated))
        return self.folder / f"{name}.yaml"

    def place(self, party: str, name: str) -> Path:
        """The folder of a model at a party."""
        return self.folder / f"{party}.models" / name

    def put(self, party: str, name: str, ours: Ours) -> None:
        """A model, NAME/VERSION, which counts from the party's next start or reload."""
        made = self.folder / f"{party}.{name.replace('/', '-')}"
        made.mkdir()
        if ours.plan.party(party).weights:
            veilgraph.save_weights(ours.weights, made / "model.weights", ours.plan)
        ours.plan.save(made / "model.plan")
        self.place(party, name).parent.mkdir(parents=True, exist_ok=True)
        made.rename(self.place(party, name))

    def start(self, party: str) -> None:
        command = [sys.executable, "-m", "veilgraph", "serve", "--party", party, "--config",
                   str(self.folder / f"{party}.yaml"), "--models",
                   str(self.folder / f"{party}.models"), "--ahead", str(self._ahead)]  # fmt: skip
        clock = self.clocks[party].environment if party in self.clocks else {}
        with (self.folder / f"{party}.log").open("ab") as log:
            self.processes[party] = subprocess.Popen(
                command, stderr=log, env={**os.environ, **clock}
            )

    def reload(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGHUP)

    def __enter__(self) -> Self:
        for party in PARTIES:
            self.start(party)
        return self

    def end(self) -> None:
        """All parties leave."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __exit__(self, *_: object) -> None:
        self.end()
        for proxy in (*self.links.values(), *self.doors.values()):
            proxy.close()
