"""Errors that a user can cause, each with one sentence, a hint and an exit code.

A bug of ours is an assertion or an ordinary exception, never one of these. Sentences quote names
that strangers chose: no character of theirs steers a terminal (harmless.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veilgraph.ir.harmless import harmless


class VeilgraphError(Exception):
    """One clear sentence, and a hint that says what to do about it.

    Args:
        message: what is wrong, one sentence; or lines, the first of them a sentence.
        hint: the nearest way out, one sentence; may be empty.
    """

    exit_code = 1
    is_reported = False  # in the JSON that a verb has printed already

    def __init__(self, message: str | Sequence[str], hint: str = "") -> None:
        lines = [message] if isinstance(message, str) else message
        self.message = "\n".join(map(harmless, lines))
        self.hint = harmless(hint)
        super().__init__(self.message, self.hint)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(VeilgraphError):
    """A call, an option, a file or an input that makes no sense as given (exit code 2)."""

    exit_code = 2


@dataclass(frozen=True)
class Offender:
    """One node of a model that can't be compiled: its name, operator, source and way out."""

    node: str
    operator: str
    source: str
    reason: str
    way_out: str = ""


class UnsupportedError(VeilgraphError):
    """Operators or shapes of a model that can't be compiled, all of them at once (exit code 3)."""

    exit_code = 3

    def __init__(self, offenders: Sequence[Offender], hint: str = "") -> None:
        self.offenders = tuple(offenders)
        count = len(self.offenders)
        lines = [f"{count} node{'s' if count > 1 else ''} of the model can't be compiled:"]
        for o in self.offenders:
            way = f" {o.way_out}" if o.way_out else ""
            lines.append(f"  {o.node}: {o.operator} ({o.source}): {o.reason}{way}")
        super().__init__(lines, hint or "`veilgraph ops` lists what is supported.")

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[tuple[Offender, ...], str]]:
        return type(self), (self.offenders, self.hint)


class AccuracyError(VeilgraphError):
    """A value left its range, or an answer its tolerance (exit code 4)."""

    exit_code = 4


class PeerError(VeilgraphError):
    """A peer that is lost, silent, or can't show who it is (exit code 5)."""

    exit_code = 5


class SupersededError(PeerError):
    """A party that serves another plan or session by now than was asked for; it took nothing."""


class SecurityAbort(VeilgraphError):
    """Parties that disagree on plan, weights or session, or a replay (exit code 6)."""

    exit_code = 6


class ResourceLimitError(VeilgraphError):
    """Not enough memory or disk, said before anything is lost (exit code 7)."""

    exit_code = 7


class DeviceError(VeilgraphError):
    """A device that failed while it computed (exit code 7)."""

    exit_code = 7
