"""The guide of two hospitals and a vendor: each host a network namespace, each party its own user.

It needs root, and rights to make namespaces; elsewhere it is skipped, with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from documents import ROOT, Block, Command, Workplace, blocks

GUIDE = ROOT / "docs" / "hospitals.md"
HOSTS = {"vendor": 1, "north": 2, "south": 3, "doctor": 4}  # the last byte of each address
PARTIES = ("north", "south", "vendor")
FIRST_USER = 61000  # ids that no user of a system has
SECONDS, PEER_LOST = 120, 5
SCP = """\
#!/bin/sh
# Stands in for scp: `scp FILE HOST:`; whose file it is then, the test sees to after the block.
umask 0
cp "$1" "$POST/${2%%:}/"
"""


def ip(*words: str) -> None:
    """Skips the test where the system refuses."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"ip {' '.join(words)}: {done.stderr.strip()}")


def user(host: str) -> int:
    return FIRST_USER + HOSTS[host]


def as_user(host: str) -> list[str]:
    number = str(user(host))
    return ["setpriv", "--reuid", number, "--regid", number, "--clear-groups", "--"]


@pytest.fixture
def network() -> Iterator[str]:
    """A namespace a host, of names that begin so, all at one bridge."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("network namespaces and users of their own take root on Linux")
    for tool in ("ip", "setpriv"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    begin = f"vg{os.getpid()}"
    made = list[str]()
    try:
        for name in ("switch", *HOSTS):
            ip("netns", "add", f"{begin}-{name}")
            made.append(f"{begin}-{name}")
        switch = f"{begin}-switch"
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for name, number in HOSTS.items():
            own, port = f"{begin}-{name}", f"port{number}"
            ip("link", "add", "eth0", "netns", own, "type", "veth", "peer", port, "netns", switch)
            ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", own, "addr", "add", f"10.0.0.{number}/24", "dev", "eth0")
            ip("-n", own, "link", "set", "eth0", "up")
            ip("-n", own, "link", "set", "lo", "up")
        yield begin
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def shown_python(stage: Path) -> str:
    """Shell that shows this Python to all users where it lies in a folder that is closed to them.

    It runs in a host's own namespace of mounts. Of that folder nothing else is there then.
    """
    base = Path(sys.base_prefix).resolve()
    above = [each for each in reversed(base.parents) if not each.stat().st_mode & stat.S_IXOTH]
    if not above:
        return ""
    place = stage / base.relative_to(above[0])
    place.mkdir(parents=True)
    return f"mount --bind {base} {place}; mount --rbind {stage} {above[0]}; "


class Hosts(Workplace):
    """Every host's folder is its user's alone, and its commands run there, by that user."""

    def __init__(self, folder: Path, network: str) -> None:
        super().__init__(folder)
        self._network = network
        self._prelude = shown_python(folder / ".python")
        self._tokens: dict[str, str] = {}
        self.served: dict[str, subprocess.Popen[bytes]] = {}
        (folder / ".tools" / "scp").write_text(SCP)
        for host in HOSTS:
            place = self.host(host)
            os.chown(place, user(host), user(host))
            place.chmod(stat.S_IRWXU)
            post = folder / ".post" / host
            post.mkdir(parents=True)
            post.chmod(0o777)
        self.environment |= {"POST": str(folder / ".post"), "OMP_NUM_THREADS": "1"}

    def run_console(self, block: Block) -> list[Command]:
        found = super().run_console(block)
        for host in HOSTS:
            for file in (self.folder / ".post" / host).iterdir():
                placed = Path(shutil.move(file, self.host(host) / file.name))
                os.chown(placed, user(host), user(host))
        for command in found:
            said = re.findall(r"--token (\w+)=(\w{32})", "\n".join(command.printed))
            self._tokens.update(said)
        return found

    def write(self, name: str, text: str) -> None:
        host, _, rest = name.rpartition("/")
        file = self.host(host) / rest
        file.write_text(text)
        os.chown(file, user(host), user(host))

    def words(self, host: str, script: str) -> dict[str, Any]:
        """What `subprocess` is given for a script of a host."""
        inside = ["ip", "netns", "exec", f"{self._network}-{host}"]
        begin = ["sh", "-e", "-c", f'{self._prelude}exec "$@"', "sh", *as_user(host)]
        return {
            "args": [*inside, *begin, "bash", "-e", "-o", "pipefail", "-c", script],
            "cwd": self.host(host),
            "env": {**self.environment, "HOME": str(self.host(host))},
        }

    def _run_on(self, host: str, own: list[Command]) -> None:
        for command in own:
            text = re.sub(r"(--token \w+=)\.\.\.", self._with_token, command.text)
            if text.endswith("&"):
                log = (self.folder / f".{host}.log").open("wb")
                words = self.words(host, f"exec {text.removesuffix('&')}")
                self.served[host] = subprocess.Popen(**words, stderr=log)
                continue
            end = time.monotonic() + SECONDS
            while True:
                options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
                done = subprocess.run(**self.words(host, text), **options, timeout=SECONDS)
                if done.returncode != PEER_LOST or time.monotonic() > end:
                    break  # else parties are about to look for each other
                time.sleep(0.5)
            assert done.returncode == 0, f"{host}$ {text}: {done.returncode}\n{done.stdout}"
            command.printed = done.stdout.splitlines()

    def _with_token(self, found: re.Match[str]) -> str:
        party = found[1].removeprefix("--token ").removesuffix("=")
        return f"{found[1]}{self._tokens[party]}"

    def end(self) -> dict[str, int]:
        """All who serve leave; their exit codes."""
        for process in self.served.values():
            process.send_signal(signal.SIGTERM)
        return {host: process.wait(60) for host, process in self.served.items()}


@pytest.fixture
def hosts(network: str) -> Iterator[Hosts]:
    folder = Path(f"/tmp/{network}")  # pytest's own folders are closed to other users
    folder.mkdir(mode=0o755)
    try:
        made = Hosts(folder, network)
        words = made.words("doctor", "python -c 'import veilgraph.cli' && test -r examples/digits")
        done = subprocess.run(**words, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"other users can't run this Python: {done.stderr.strip()[-200:]}")
        yield made
        for process in made.served.values():
            process.kill()
    finally:
        shutil.rmtree(folder)


def test_the_guide(hosts: Hosts) -> None:
    for block in blocks(GUIDE):
        if block.language == "yaml":
            hosts.write("doctor/doctor.yaml", block.text)
        elif block.language == "console":
            hosts.run_console(block)
    require_own_users(hosts)
    require_own_files(hosts)
    assert hosts.end() == dict.fromkeys(hosts.served, 0)
    image = np.load(hosts.host("doctor") / "image.npy")
    session = onnxruntime.InferenceSession(ROOT / "examples" / "digits" / "digits.onnx")
    (expected,) = session.run(["logits"], {"image": image})
    np.testing.assert_allclose(np.load(hosts.host("doctor") / "logits.npy"), expected, atol=0.05)


def require_own_users(hosts: Hosts) -> None:
    """Each party is a process of its own user, with no capability, in a network of its own."""
    assert set(hosts.served) == set(PARTIES)
    networks = set()
    for host, process in hosts.served.items():
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert facts["Uid"].split() == [str(user(host))] * 4
        assert facts["Groups"].strip() == ""
        assert int(facts["CapEff"], 16) == 0
        networks.add(os.readlink(f"/proc/{process.pid}/ns/net"))
    assert len(networks) == len(PARTIES)


def require_own_files(hosts: Hosts) -> None:
    """Nobody reads or lists another's folder; weights and image are where they belong."""
    for host in HOSTS:
        place = hosts.host(host)
        owners = {file.lstat().st_uid for file in place.rglob("*") if not file.is_symlink()}
        assert owners == {user(host)}
        for other in HOSTS.keys() - {host}:
            looked = subprocess.run([*as_user(other), "ls", place], capture_output=True, text=True)
            assert "Permission denied" in looked.stderr
    for name, own in (("*.weights", "vendor"), ("image.npy", "doctor"), ("doctor.key", "doctor")):
        found = [file for file in hosts.folder.rglob(name) if "examples" not in file.parts]
        assert [file.relative_to(hosts.folder).parts[0] for file in found] == [own], name
