"""Virtual environments made once, for each peer and each source of models, and peers' processes.

Their packages are never installed beside ours: theirs ask for versions of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
DEFAULT_FOLDER = Path("~/.cache/veilgraph-peers").expanduser()
MOST_SECONDS = 1800


def add_option(made: argparse.ArgumentParser) -> None:
    """--environments: where they are."""
    made.add_argument("--environments", type=Path, default=DEFAULT_FOLDER, metavar="FOLDER")


class Unavailable(Exception):
    """A peer that can't be installed or started here; the message is the reason."""


@dataclass(frozen=True)
class Environment:
    """Packages in a folder of their own.

    Attributes:
        name: of the folder.
        packages: that pip installs one after another, each with the options before it.
    """

    name: str
    packages: tuple[tuple[str, ...], ...]

    def interpreter(self, folder: Path) -> Path:
        """The Python of its environment, which is made if it isn't there.

        Raises:
            Unavailable: with the last line that pip or venv said.
        """
        environment = folder / self.name
        python, done = environment / "bin" / "python", environment / "installed"
        wanted = repr(self.packages)
        if done.exists() and done.read_text() == wanted:
            return python
        run([sys.executable, "-m", "venv", "--clear", str(environment)])
        for arguments in self.packages:
            run([str(python), "-m", "pip", "install", "--quiet", *arguments])
        done.write_text(wanted)
        return python


@dataclass(frozen=True)
class Peer(Environment):
    """A system to compare with, whose script in this folder is named as it is.

    Attributes:
        title: its name as people write it.
        parties: processes that compute.
    """

    title: str
    parties: int


def run(command: Sequence[str]) -> None:
    """A command to its end.

    Raises:
        Unavailable: it failed, with the last line that it wrote; or it took too long.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no end after {MOST_SECONDS} s: {' '.join(command)}") from None
    if done.returncode:
        raise Unavailable((done.stderr.strip() or "no message").splitlines()[-1])


class Parties:
    """A peer's processes on one network; they keep what they have shared between runs.

    Each reads one JSON object a line and answers with one: its party's script has the words.
    """

    def __init__(self, peer: Peer, environments: Path, folder: Path, addresses: Sequence[str]):
        python = peer.interpreter(environments)
        script = HERE / f"{peer.name}_party.py"
        self._log = folder / "peer.log"
        self._stack = ExitStack()
        log = self._stack.enter_context(self._log.open("wb"))
        self._processes = [
            subprocess.Popen(
                [str(python), str(script), str(rank), str(folder), *addresses],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            for rank in range(peer.parties)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._stack.close()

    def ask(self, **question: Any) -> list[dict[str, Any]]:
        """Every party's answer.

        Raises:
            Unavailable: a party ended; with the last line it wrote.
        """
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(question) + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                raise self._gone() from None
        return [self._answer(process) for process in self._processes]

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):  # peers also log to standard output
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise self._gone()

    def _gone(self) -> Unavailable:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return Unavailable(lines[-1] if lines else "a party ended without a word")
