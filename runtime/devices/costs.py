"""What steps cost on a machine's devices: a table that is measured once and kept.

`veilgraph doctor --tune` writes it, and the device `auto` places steps by it: one JSON object.

    version   FORMAT
    machine   the processor, as it names itself, and how many threads steps were given
    devices   name -> the product's name and what a copy takes: seconds, and bytes a second
    steps     rows of form, kernel, bytes, and seconds by device; `cpu` is always one
    date      of the last measurement

A step's form is what it is apart from addresses, numbers of draws and keys: equal forms take equal
time, so plans share rows. The file lies beside the cache of kernels, is written whole or not at
all, and is no secret: seconds and sizes, nothing of data.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import PartyPlan
from veilgraph.kernels import KERNELS
from veilgraph.kernels.fused.declaration import HEADER, INSTRUCTION
from veilgraph.kernels.fused.instructions import Op
from veilgraph.runtime.devices.names import CPU, machine_name
from veilgraph.runtime.devices.partition import Work
from veilgraph.runtime.store.caches import user_cache

FORMAT = 1
_AGAIN = "Measure again: veilgraph doctor --tune PLAN."


@dataclass(frozen=True)
class Copies:
    """A device, and what moving bytes between it and the host takes, either way."""

    product: str
    seconds: float
    bytes_per_second: float

    def __call__(self, count: int) -> float:
        return self.seconds + count / self.bytes_per_second


@dataclass(frozen=True)
class Step:
    """What one form of a step took."""

    kernel: str
    bytes: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Costs:
    """See above."""

    machine: str
    threads: int
    date: str
    devices: Mapping[str, Copies] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)

    @staticmethod
    def none(threads: int) -> Costs:
        """Of this machine, with nothing measured yet."""
        return Costs(machine_name(), threads, today())

    @staticmethod
    def load(path: Path) -> Costs:
        """The table in a file.

        Raises:
            UsageError: there is none, or it is damaged, of another format or another machine.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"There is no table of costs at {path}.", _AGAIN) from None
        except (OSError, ValueError) as error:
            raise UsageError(
                f"The table of costs {path} can't be read: {error}.", _AGAIN
            ) from error
        version = found.get("version") if isinstance(found, dict) else None
        if version != FORMAT:
            raise UsageError(
                f"The table of costs {path} is of format {version}, and this is {FORMAT}.", _AGAIN
            )
        try:
            costs = _costs(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"The table of costs {path} is damaged: {type(error).__name__} {error}.", _AGAIN
            ) from error
        if costs.machine != machine_name():
            raise UsageError(
                f"The table of costs {path} is of another machine: {costs.machine}.", _AGAIN
            )
        return costs

    def save(self, path: Path) -> None:
        """Writes the file, whole or not at all.

        Raises:
            UsageError: it can't be written.
        """
        content = json.dumps({"version": FORMAT, **asdict(self)}, indent=1, sort_keys=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
                file.write(content + "\n")
            os.replace(file.name, path)
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror}.") from error

    def work(self, program: PartyPlan, device: str) -> list[Work]:
        """What each step takes on the host and on a device, and behind them a reader of outputs.

        Raises:
            UsageError: the device or a step was not measured.
        """
        if device not in self.devices:
            raise UsageError(
                f"The table of costs has nothing of `{device}`.",
                f"Measure it: veilgraph doctor --tune PLAN --device {device}.",
            )
        found = []
        for number, row in enumerate(program.steps):
            if int(row["kernel"]) >= len(KERNELS):
                found.append(Work(0, 0, fixed=True))
                continue
            step = self.steps.get(form_of(program, number))
            if step is None or not {CPU, device} <= step.seconds.keys():
                raise UsageError(
                    f"The table of costs lacks a step of {program.party} in this plan "
                    f"({KERNELS[int(row['kernel'])]}).",
                    f"Measure the plan: veilgraph doctor --tune PLAN --device {device}.",
                )
            found.append(Work(step.seconds[CPU], step.seconds[device]))
        return [*found, Work(0, 0, fixed=True)]


def form_of(program: PartyPlan, number: int) -> str:
    """The digest of what a step computes, apart from where and with which keys."""
    row = program.steps[number]
    buffers, params = program.buffers_of(row).copy(), program.params_of(row).copy()
    buffers["offset"] %= 64  # alignment may matter
    if KERNELS[int(row["kernel"])] == "fused":
        instructions = params[HEADER:].view(INSTRUCTION)
        draws = np.isin(instructions["op"], [op for op in Op if op.draws])
        for name in ("a", "immediate"):
            instructions[name][draws] = 0
    content = (KERNELS[int(row["kernel"])].encode(), buffers.tobytes(), params.tobytes())
    return hashlib.sha256(b"\0".join(content)).hexdigest()[:32]


def costs_file() -> Path:
    """Where this user's table is."""
    return user_cache() / "costs.json"


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def _costs(found: Mapping[str, Any]) -> Costs:
    """A table from JSON, every number looked at."""
    devices = {
        str(name): Copies(
            str(row["product"]), _positive(row["seconds"]), _positive(row["bytes_per_second"])
        )
        for name, row in found["devices"].items()
    }
    steps = {
        str(form): Step(
            KERNELS[KERNELS.index(row["kernel"])],
            int(row["bytes"]),
            {str(name): _positive(spent) for name, spent in row["seconds"].items()},
        )
        for form, row in found["steps"].items()
    }
    threads = int(found["threads"])
    return Costs(str(found["machine"]), threads, str(found["date"]), devices, steps)


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{value} is no time or rate")
    return number
