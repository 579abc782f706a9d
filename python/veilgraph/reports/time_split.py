"""Where the seconds of an inference went at one party: kernels, encryption, waiting, the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.transcript import Transcript


@dataclass(frozen=True)
class TimeSplit:
    """The seconds of one inference, offline and online, at one party.

    Attributes:
        seconds: all of them.
        kernels: in each kernel, by name.
        encryption: in TLS itself; None where links don't tell it from the rest of their time. Links
            that work at the same time count together, and some do while kernels run: the parts may
            be more than the whole.
        waiting: in links otherwise: in the system, and for what others had not sent yet.
    """

    seconds: float
    kernels: Mapping[str, float]
    encryption: float | None
    waiting: float

    @staticmethod
    def of(transcript: Transcript) -> TimeSplit:
        records = transcript.phases.values()
        kernels: dict[str, float] = {}
        for record in records:
            for name, (_, nanoseconds) in record.kernels.items():
                kernels[name] = kernels.get(name, 0.0) + nanoseconds / 1e9
        told = [r.encryption_seconds for r in records if r.encryption_seconds is not None]
        encryption = sum(told) if told else None
        in_links = sum(record.network_seconds for record in records)
        waiting = max(0.0, in_links - (encryption or 0.0))
        return TimeSplit(sum(record.seconds for record in records), kernels, encryption, waiting)

    @property
    def other(self) -> float:
        """Encoding inputs, decoding outputs, and between steps."""
        known = sum(self.kernels.values()) + (self.encryption or 0.0) + self.waiting
        return max(0.0, self.seconds - known)

    def rows(self) -> dict[str, float]:
        """All parts by name, the kernels first."""
        split = dict(self.kernels)
        if self.encryption is not None:
            split["encryption"] = self.encryption
        return {**split, "waiting": self.waiting, "other": self.other}


def table(splits: Mapping[str, TimeSplit]) -> Table:
    """A column a party, a row a part, and each part's share of all parties' seconds."""
    by_party = {party: split.rows() for party, split in splits.items()}
    names = dict.fromkeys(name for rows in by_party.values() for name in rows)
    ends = [name for name in ("encryption", "waiting", "other") if name in names]
    spent = {name: sum(rows.get(name, 0.0) for rows in by_party.values()) for name in names}
    kernels = sorted(names.keys() - set(ends), key=lambda name: -spent[name])
    whole = sum(spent.values()) or 1.0
    rows = [
        [
            name,
            *(units.seconds(rows.get(name, 0.0)) for rows in by_party.values()),
            units.percent(spent[name] / whole),
        ]
        for name in [*kernels, *ends]
    ]
    headings = "|".join(["time in, median run", *(f"#{party}" for party in splits), "#share"])
    return Table.of(headings, rows)
