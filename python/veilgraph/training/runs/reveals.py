"""How often runs of a model that is trained have told somebody something, whoever ran them.

A session that goes on from a checkpoint counts them, also one of `veilgraph run`, or of another
plan that takes the states.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from veilgraph.ir.errors import ResourceLimitError
from veilgraph.ir.training import STEP, TRAINING, Recipe
from veilgraph.plans import Plan
from veilgraph.training.checkpoints import Progress


class Reveals:
    """The file `reveals-PARTY-ID` in a party's `state_dir`: runs that have told somebody something.

    ID is of the session in which the first step was done.

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


def count_run(entry: str, note: bytes, state_dir: Path, party: str) -> None:
    """Counts a run of an entry that is `telling`, before it begins, if it is of training.

    Args:
        note: what goes with the states that it reads, as a checkpoint has it.

    Raises:
        ResourceLimitError: as `Reveals.add`.
    """
    progress = Progress.found(note)
    if progress is not None:
        Reveals(state_dir, party, progress.began).add(entry, progress.step, synced=entry != STEP)


def telling(plan: Plan) -> set[str]:
    """Entries in which some party receives more than a step's public inputs."""
    options = plan.manifest.options
    public = Recipe.of(options).announced if TRAINING in options else ()
    return {
        plan.manifest.entries[tensor.entry]
        for program in plan.programs.values()
        for tensor in program.outputs
        if tensor.name not in public
    }
