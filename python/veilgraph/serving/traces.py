"""Traces of the latest inferences of a service: a file each, in a folder that does not grow."""

from __future__ import annotations

import json
import logging
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.plans import Plan
from veilgraph.reports.tracing import FACTS, party_trace
from veilgraph.runtime.service.served import Ran

LOG = logging.getLogger("veilgraph.service")
MOST_TRACES, MOST_BYTES = 64, 1 << 28
_NAME = re.compile(r"trace-.+-[0-9a-f]{8}-[0-9]+\.json")


class Traces:
    """Keeps what `run --trace` writes of an inference, of MOST_TRACES and MOST_BYTES at most.

    A file has the same name at every party, `trace-MODEL-VERSION-SESSION-NUMBER.json`, and names
    the requests that the inference answered as receipts do. It has steps, seconds and bytes, and no
    value. An offline phase that ran ahead of the request is not in it.

    Args:
        folder: made (mode 0700) if it is not there; other files in it are left alone.
            Parties of one host need one each.
        party: this one.

    Raises:
        UsageError: a folder that can't be made or read.
    """

    def __init__(self, folder: Path, party: str) -> None:
        self._folder, self._party = folder, party
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._shorten()
        except OSError as error:
            raise UsageError(
                f"{folder} is no folder for traces: {error.strerror}.",
                "Give one that this party may write to.",
            ) from error

    def keep(self, ran: Ran) -> None:
        """Writes an inference's file, and takes the oldest away; a disk that is full is logged."""
        served, plan = ran.served, Plan.of(ran.served.plan)
        trace = party_trace(plan, self._party, served.id, ran.number, ran.transcript)
        trace[FACTS] |= {"requests": [each.hex() for each in ran.requests]}
        model = served.model.name.replace("/", "-")
        name = f"trace-{model}-{served.id.hex()[:8]}-{ran.number}.json"
        try:
            with placed_whole(self._folder / name) as file:
                file.write(json.dumps(trace).encode())
            self._shorten()
        except OSError as error:
            LOG.warning("a trace can't be written to %s: %s", self._folder, error.strerror)

    def _shorten(self) -> None:
        found = sorted(self._files(), reverse=True)
        total = 0
        for number, (_, size, file) in enumerate(found):
            total += size
            if number >= MOST_TRACES or total > MOST_BYTES:
                file.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """When each trace was written, and its size."""
        for file in self._folder.iterdir():
            if _NAME.fullmatch(file.name):
                with suppress(FileNotFoundError):  # it was taken out just now
                    status = file.lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield status.st_mtime_ns, status.st_size, file
