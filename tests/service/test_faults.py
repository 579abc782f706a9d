"""Faults from a seed while clients ask: a right answer or an error in time, and service again.

Three processes of `veilgraph serve`, each pair linked by way of a proxy that cuts and delays.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from proxies import Proxy
from serving import SAMPLES, Hospital, answer_to, compiled, members, question

from veilgraph.ir.errors import VeilgraphError
from veilgraph.runtime.client import wire
from veilgraph.serving.client import Client
from veilgraph.serving.party_links import wire_receive, wire_send

CLIENTS, TIMEOUT = 3, 8.0
# Seconds, where the machine has nothing else to do; and of a run among other tests, which shows
# that all ends, and not how soon.
SLACK, BACK_SECONDS = 3.0, 10.0
LONG = 30.0
FAULTS = ("kill", "stop", "vanish", "cut", "hold")


class Ward:
    """The processes, their proxies, and the client threads with what they found wrong."""

    def __init__(self, hospital: Hospital, slack: float) -> None:
        self.hospital, self.wrong, self.slack = hospital, list[str](), slack
        self.answers = self.errors = 0
        self.ended = threading.Event()
        listed = yaml.safe_load(hospital.client.read_text())["parties"]
        self.proxies = {each["name"]: Proxy(each["port"]) for each in listed}
        for party in hospital.parties:
            path = hospital.folder / f"{party}.yaml"
            content = yaml.safe_load(path.read_text())
            for each in content["parties"]:
                if each["name"] != party:
                    each["port"] = self.proxies[each["name"]].port
            path.write_text(yaml.safe_dump(content))
        self.processes = {party: self.start(party) for party in hospital.parties}

    def start(self, party: str) -> subprocess.Popen[bytes]:
        folder = self.hospital.folder
        command = [sys.executable, "-m", "veilgraph", "serve", "--party", party, "--config",
                   str(folder / f"{party}.yaml"), "--models", str(self.hospital.models(party)),
                   "--ahead", "2"]  # fmt: skip
        with (folder / f"{party}.log").open("ab") as log:
            return subprocess.Popen(command, stderr=log)

    def ask(self, number: int) -> None:
        """Until the ward ends: each call ends in time, in a right answer or an error."""
        while not self.ended.is_set():
            start = time.monotonic()
            try:
                with Client("small", self.hospital.client, timeout_seconds=TIMEOUT) as client:
                    self.in_time("to open", start)
                    while not self.ended.is_set():
                        x, start = SAMPLES[number % len(SAMPLES)], time.monotonic()
                        y = client.run({"x": x})["y"]
                        self.in_time("to answer", start)
                        if not np.allclose(y, answer_to(x), atol=0.01):
                            self.wrong.append(f"{y} for {answer_to(x)}")
                        self.answers, number = self.answers + 1, number + 1
                        time.sleep(0.02)
            except VeilgraphError:
                self.in_time("to fail", start)
                self.errors += 1
                time.sleep(0.1)
            except Exception as error:
                self.wrong.append(repr(error))

    def in_time(self, what: str, start: float) -> None:
        if (spent := time.monotonic() - start) > TIMEOUT + self.slack:
            self.wrong.append(f"{spent:.1f} s {what}")

    def back(self) -> float:
        """Seconds until a new client is answered."""
        start = time.monotonic()
        while True:
            try:
                with Client("small", self.hospital.client, timeout_seconds=TIMEOUT) as client:
                    client.run({"x": SAMPLES[0]})
                    return time.monotonic() - start
            except VeilgraphError:
                if time.monotonic() - start > 2 * LONG:
                    return time.monotonic() - start
                time.sleep(0.05)

    def fault(self, kind: str, draws: random.Random) -> None:
        """Begins and ends one."""
        party, spell = draws.choice(self.hospital.parties), draws.uniform(0.05, 2.0)
        process = self.processes[party]
        if kind == "kill":
            process.kill()
            process.wait()
            time.sleep(spell)
            self.processes[party] = self.start(party)
        elif kind == "stop":
            process.send_signal(signal.SIGSTOP)
            time.sleep(spell)
            process.send_signal(signal.SIGCONT)
        elif kind == "vanish":
            self.vanish(draws.randrange(6))
        else:
            # Parties dial those before them: nobody dials the last, whose proxy carries nothing.
            proxy = self.proxies[draws.choice(self.hospital.parties[:-1])]
            (proxy.cut if kind == "cut" else proxy.hold)()
            time.sleep(spell)
            proxy.mend()

    def vanish(self, step: int) -> None:
        """A client goes after it asked `step` parties, or got masks, or sent part of its input."""
        try:
            with Client("small", self.hospital.client, timeout_seconds=TIMEOUT) as client:
                asked = question(client, f"{random.getrandbits(128):032x}")
                links = list(client._links.items())
                for name, link in links[:step]:
                    wire_send(name, link, asked)
                if step > len(links):
                    size = wire.elements_bytes(client.inputs)
                    for name, link in links:
                        wire_receive(name, link, size)
                    for name in client._receive[: step - len(links)]:
                        wire_send(name, client._links[name], {}, bytes(size))
        except VeilgraphError:
            pass  # the service may be away


@contextmanager
def ward(folder: Path, slack: float) -> Iterator[Ward]:
    plan, weights = compiled("rep3")
    hospital = Hospital(folder, members(plan))
    hospital.put("small/1", plan, weights)
    found = Ward(hospital, slack)
    threads = [threading.Thread(target=found.ask, args=(n,)) for n in range(CLIENTS)]
    try:
        assert found.back() < 2 * LONG
        for thread in threads:
            thread.start()
        yield found
    finally:
        found.ended.set()
        for thread in threads:
            if thread.ident:
                thread.join(3 * TIMEOUT)
        for process in found.processes.values():
            process.kill()
            process.wait()
        for proxy in found.proxies.values():
            proxy.close()
    assert not any(thread.is_alive() for thread in threads)


def faults(folder: Path, seed: int, count: int, slack: float, back_seconds: float) -> None:
    draws = random.Random(seed)
    slow = []
    with ward(folder, slack) as found:
        for number in range(count):
            time.sleep(draws.uniform(0.0, 0.5))  # clients are amid their requests again
            kind = FAULTS[number % len(FAULTS)]
            found.fault(kind, draws)
            if (spent := found.back()) > back_seconds:
                slow.append(f"{number}, {kind}: {spent:.1f} s")
            assert all(each.poll() is None for each in found.processes.values()), kind
    print(f"seed {seed}: {found.answers} answers, {found.errors} errors")
    assert not found.wrong
    assert not slow
    assert found.answers


def test_a_fault_of_each_kind(tmp_path: Path) -> None:
    faults(tmp_path, 1, len(FAULTS), LONG, LONG)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_three_hundred_faults(seed: int, tmp_path: Path) -> None:
    faults(tmp_path, seed, 30, SLACK, BACK_SECONDS)
