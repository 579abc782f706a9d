"""Where a party's training stands on disk: its last two checkpoints.

A party may be one checkpoint ahead of a peer that was killed, and never two: a step needs all. So
the last two are kept, and all go on from the newest that all have. What is newer is given up then.
Before the first checkpoint there is the beginning.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from veilgraph.ir.errors import SecurityAbort, UsageError
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
    def found(note: bytes) -> Progress | None:
        """What a note says; None for that of something else than training."""
        return Progress(*_PROGRESS.unpack(note)) if len(note) == _PROGRESS.size else None

    @staticmethod
    def unpacked(note: bytes, path: Path) -> Progress:
        """UsageError for a file that something else than training has saved."""
        found = Progress.found(note)
        if found is None:
            raise UsageError(
                f"{path} holds states, and doesn't say after which step.",
                "Give a checkpoint that `train --save` wrote.",
            )
        return found


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
