"""`veilgraph doctor --config`: measures links to live peers, and writes a network's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import permutations
from pathlib import Path
from typing import Any

from veilgraph.commands.files import check_destination, replacing
from veilgraph.ir.errors import UsageError
from veilgraph.reports.tables import Table, progress, remark, show, show_json
from veilgraph.reports.units import seconds, size
from veilgraph.runtime.links.measuring import Found, measure_links
from veilgraph.runtime.session.config import Config
from veilgraph.targets.networks import Network, network


@dataclass(frozen=True)
class Asked:
    """What the command line says; `peers` are all other parties if none is named."""

    config_file: Path
    peers: tuple[str, ...]
    network_file: Path | None
    timeout_seconds: float | None


def measure_and_write(asked: Asked, as_json: bool) -> None:
    """Measures, shows every link, and writes the slowest figures to the file that was named.

    Raises:
        UsageError: a name or a file that makes no sense, before any peer is waited for.
        PeerError, SecurityAbort: as `measure_links`.
        ResourceLimitError: the disk is full.
    """
    config = Config.load(asked.config_file).waiting(asked.timeout_seconds)
    peers = _peers(config, asked.peers)
    if asked.network_file is not None:
        _check_network_file(asked.network_file, asked.config_file)
    listed, me = " and ".join(peers), config.me.name
    named = f" --peer {me}" if asked.peers else ""
    remark(f"Waiting for {listed}, who run `veilgraph doctor --config FILE{named}` meanwhile.")
    with progress(f"measuring with {listed}"):
        found = measure_links(config.linked_with(peers))
    slowest = _slowest(asked.network_file, found)
    if asked.network_file is not None:
        with replacing(asked.network_file) as file:
            file.write(_text(slowest, found).encode())
    if as_json:
        show_json(_values(found, slowest, asked.network_file))
        return
    show(_table(found))
    for pair in _unmeasured([me, *peers], found):
        remark(f"The link between {' and '.join(pair)} was not measured.")
    if asked.network_file is not None:
        remark(
            f"{asked.network_file} has the longest round trip and the least rate: give it to "
            "`compile --network`."
        )


def _peers(config: Config, names: Sequence[str]) -> list[str]:
    """The parties to measure with, in the list's order; UsageError for one that there is not."""
    others = [name for name in config.names if name != config.me.name]
    for name in names:
        if name == config.me.name:
            raise UsageError(f"{name} is this party itself.", f"Name {' or '.join(others)}.")
        if name not in others:
            near = get_close_matches(name, others)
            told = f" Did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(
                f"--peer names `{name}`, whom parties.yaml does not list.{told}",
                f"It can name: {', '.join(others)}.",
            )
    return [name for name in others if name in names or not names]


def _check_network_file(path: Path, config_file: Path) -> None:
    """UsageError unless the file can be written, and takes no other's place than a network's."""
    check_destination(path, config_file)
    if not path.exists():
        return
    try:
        network(str(path))
    except UsageError as error:
        raise UsageError(
            f"{path} is there already, and describes no network.", "Choose another name."
        ) from error


def _slowest(path: Path | None, found: Found) -> Network:
    """The network whose every link is as slow as the slowest: three digits of what was measured."""
    rate = min(rates.bytes_per_second for rates in found.values())
    round_trip = max(rates.round_trip_seconds for rates in found.values())
    name = path.stem if path is not None else "measured"
    return Network(name, float(f"{rate:.3g}"), float(f"{round_trip:.3g}"))


def _text(slowest: Network, found: Found) -> str:
    """The YAML file, with every link as a comment."""
    links = [
        f"#   {sender} -> {receiver}: {rates.bytes_per_second:.3g}, {rates.round_trip_seconds:.3g}"
        for (sender, receiver), rates in found.items()
    ]
    return "\n".join(
        [
            "# Links as `veilgraph doctor` measured them, one at a time: bytes per second, seconds",
            "# there and back. Below are the least rate and the longest round trip of all.",
            *links,
            f"bytes_per_second: {slowest.bytes_per_second:.0f}",
            f"round_trip_seconds: {slowest.round_trip_seconds:.9f}",
            "",
        ]
    )


def _values(found: Found, slowest: Network, path: Path | None) -> dict[str, Any]:
    links = {f"{sender}->{receiver}": vars(rates) for (sender, receiver), rates in found.items()}
    return {
        "links": links,
        "bytes_per_second": slowest.bytes_per_second,
        "round_trip_seconds": slowest.round_trip_seconds,
        "network": None if path is None else str(path),
    }


def _table(found: Found) -> Table:
    rows = [
        [
            f"{sender} -> {receiver}",
            seconds(rates.round_trip_seconds),
            _rate(rates.bytes_per_second),
        ]
        for (sender, receiver), rates in found.items()
    ]
    return Table.of("link|#round trip|#one way", rows)


def _rate(bytes_per_second: float) -> str:
    return f"{size(bytes_per_second)}/s"


def _unmeasured(names: Sequence[str], found: Found) -> list[tuple[str, str]]:
    """Pairs of these parties of whose link nothing is known."""
    pairs = [pair for pair in permutations(names, 2) if pair[0] < pair[1]]
    return [(a, b) for a, b in pairs if (a, b) not in found and (b, a) not in found]
