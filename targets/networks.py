"""Networks between parties: what a plan's rounds and bytes cost in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from veilgraph.ir.errors import UsageError


@dataclass(frozen=True)
class Network:
    """A link's bandwidth (bytes a second, one way) and round-trip time (seconds)."""

    name: str
    bytes_per_second: float
    round_trip_seconds: float

    def seconds(self, rounds: int, busiest_link_bytes: int) -> float:
        """Time for `rounds` rounds, each one way, in which the busiest link carries so much."""
        return rounds * self.round_trip_seconds / 2 + busiest_link_bytes / self.bytes_per_second

    def delivered(self, messages: npt.NDArray[np.int64]) -> float:
        """Seconds until the last message is there, if nobody computes.

        A party sends what a round has once it has been sent all of the rounds before; a link
        carries one message after another.

        Args:
            messages: rows of round, sender, receiver and bytes, by rounds.
        """
        parties = int(messages[:, 1:3].max(initial=0)) + 1
        ready, free = np.zeros(parties), np.zeros((parties, parties))
        begins = np.flatnonzero(np.diff(messages[:, 0], prepend=-1))
        for _, senders, receivers, sizes in (each.T for each in np.split(messages, begins[1:])):
            ends = np.maximum(free[senders, receivers], ready[senders])
            ends += sizes / self.bytes_per_second
            free[senders, receivers] = ends
            np.maximum.at(ready, receivers, ends + self.round_trip_seconds / 2)
        return float(ready.max())


def network(name: str) -> Network:
    """The preset of this name, or the network that a YAML file of this path describes.

    Raises:
        UsageError: neither, or the file's fields make no sense.
    """
    presets = _presets()
    if name in presets:
        return _checked(name, presets[name])
    path = Path(name)
    if not path.is_file():
        known = ", ".join(presets)
        raise UsageError(
            f"There is no network `{name}`.", f"Use {known}, or a YAML file with your own figures."
        )
    try:
        fields = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(
            f"{path} can't be read as YAML.",
            "It needs two lines, bytes_per_second: 1e9 and round_trip_seconds: 0.001.",
        ) from error
    if isinstance(fields, Mapping) and len(fields) == 1:
        (only,) = fields.values()
        fields = only if isinstance(only, Mapping) else fields
    return _checked(path.stem, fields)


@cache
def _presets() -> Mapping[str, Any]:
    """By name, from the package's own file."""
    found: dict[str, Any] = yaml.safe_load(
        (files("veilgraph.targets") / "networks.yaml").read_text()
    )
    return found


def _checked(name: str, fields: Any) -> Network:
    wanted = ("bytes_per_second", "round_trip_seconds")
    hint = "It needs two positive numbers: " + " and ".join(wanted) + "."
    if not isinstance(fields, Mapping) or set(fields) != set(wanted):
        raise UsageError(f"Network `{name}` has not the fields of a network.", hint)
    try:
        values = [float(fields[field]) for field in wanted]
    except (TypeError, ValueError) as error:
        raise UsageError(f"Network `{name}` has a field that is no number.", hint) from error
    if not (0 < values[0] < float("inf") and 0 <= values[1] < float("inf")):
        raise UsageError(f"Network `{name}` has a field out of range.", hint)
    return Network(name, *values)
