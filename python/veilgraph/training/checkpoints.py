"""Where a party's training stands on disk: its last two checkpoints, and what was revealed so far.

A party may be one checkpoint ahead of a peer that was killed, and never two: a step needs all. So
the last two are kept, and all go on from the newest that all have. What is newer is given up then.
Before the first checkpoint there is the beginning.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError
from veilgraph.ir.files.whole_files import remove_partials
from veilgraph.runtime.session.handshake import MOST_ORIGINS
from veilgraph.runtime.store.state_files import before

GIVEN_UP = ".given-up"
_PROGRESS = struct.Struct("<Q32s")


@dataclass(frozen=True)
class Progress:
    """How far training is: a checkpoint's note.

    Attributes:
        step: how many steps are done.
        began: the id of the session in which the first was done, 32 bytes.
    """

    step: int
    began: bytes

    def packed(self) -> bytes:
        return _PROGRESS.pack(self.step, self.began)

    @staticmethod
    def unpacked(note: bytes, path: Path) -> Progress:
        """UsageError for a file that something else than training has saved."""
        if len(note) != _PROGRESS.size:
            raise UsageError(
                f"{path} holds states, and doesn't say after which step.",
                "Give a checkpoint that `train --save` wrote.",
            )
        return Progress(*_PROGRESS.unpack(note))


@dataclass(frozen=True)
class Checkpoints:
    """The files of one party: the newest at `path`, and the one before it beside that."""

    path: Path

    @property
    def files(self) -> list[Path]:
        """Those that are there, newest first."""
        return [each for each in (self.path, before(self.path)) if each.exists()]

    def require_none(self) -> None:
        """UsageError where training that begins would write over checkpoints of another."""
        for file in self.files:
            raise UsageError(
                f"{file} is a checkpoint already, and training would begin anew.",
                "Go on from it with --resume, or save to another file.",
            )

    def origins(self) -> list[str | Path | None]:
        """From where this party can go on, newest first; None is the beginning."""
        every: list[str | Path | None] = [*self.files, None]
        return every[:MOST_ORIGINS]

    def give_up_newer(self, resumed: Path | None) -> None:
        """Lets the file that all go on from be the newest: a peer lacks what came after it.

        Where all begin anew, what is there stays under another name: the peer may have lost its
        checkpoint by mistake, or named another file.
        """
        remove_partials(self.path)
        if resumed is None:
            for file in self.files:
                file.replace(file.with_name(file.name + GIVEN_UP))
        elif resumed != self.path:
            resumed.replace(self.path)


class Reveals:
    """The file `reveals-PARTY-ID` in a party's `state_dir`: runs that have told somebody something.

    A line is an entry and how many steps were done before it, and stands there when the run begins.
    It is no part of a checkpoint: who goes on from one and reveals again has revealed twice.
    """

    def __init__(self, state_dir: Path, party: str, began: bytes) -> None:
        self.path = state_dir / f"reveals-{party}-{began.hex()[:32]}"

    def add(self, entry: str, step: int, synced: bool) -> None:
        """Counts one more.

        Args:
            synced: whether it must outlive a crash of the host before the run begins.

        Raises:
            ResourceLimitError: no room, so nothing is revealed.
        """
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, f"{entry} {step}\n".encode())
                if synced:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ResourceLimitError(
                f"What is revealed can't be counted in {self.path}: {error.strerror}.",
                "Nothing was revealed; give this party's `state_dir` room.",
            ) from error

    def counts(self) -> dict[str, tuple[int, int]]:
        """Of each entry: runs that were to tell something, and those at a step told before."""
        lines: list[str] = []
        with suppress(FileNotFoundError):
            lines = self.path.read_text().splitlines()
        runs: Counter[str] = Counter(line.split()[0] for line in lines)
        steps = Counter(line.split()[0] for line in set(lines))
        return {entry: (count, count - steps[entry]) for entry, count in runs.items()}


def agreed(own: Progress | None, told: dict[str, bytes]) -> Progress:
    """Where all parties are; a party without states has none of its own, and is told.

    Raises:
        SecurityAbort: a peer that is elsewhere.
    """
    nothing = bytes(_PROGRESS.size)
    found = own
    for peer, content in told.items():
        if content == nothing:
            continue
        theirs = Progress(*_PROGRESS.unpack(content))
        if found is not None and theirs != found:
            raise SecurityAbort(
                f"{peer} goes on after step {theirs.step}, and others after step {found.step}.",
                "Let all parties go on from checkpoints of one training.",
            )
        found = theirs
    assert found is not None, "somebody keeps the parameters"
    return found


def stated(own: Progress | None) -> bytes:
    """What a party tells its peers for `agreed`."""
    return bytes(_PROGRESS.size) if own is None else own.packed()
