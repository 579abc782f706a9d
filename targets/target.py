"""What a program is compiled for: a suite, its parties by name, and who owns and receives what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan import PUBLIC, SHARED, WEIGHTS
from veilgraph.targets.networks import Network, network
from veilgraph.targets.suite import Suite
from veilgraph.targets.suites import SUITES

DEFAULT_PARTIES = ("alice", "bob", "carol")


@dataclass(frozen=True)
class Target:
    """A checked target; `target()` makes one from what a user writes."""

    suite: Suite
    parties: tuple[str, ...]  # that compute
    network: Network
    owners: Mapping[str, str] = field(default_factory=dict)  # by input name, and "weights"
    receivers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by output name
    dealer: str = ""

    @property
    def everyone(self) -> tuple[str, ...]:
        """The computing parties, then the dealer if there is one: the plan's parties."""
        return (*self.parties, *((self.dealer,) if self.dealer else ()))

    @property
    def coalition(self) -> int:
        """So many computing parties learn nothing together; one more may."""
        size = self.suite.security.coalition
        return size if size >= 0 else len(self.parties) + size

    @property
    def default_owner(self) -> str:
        """Of inputs, and the receiver of outputs, that nobody was named for."""
        return self.parties[0]

    @property
    def weights_owner(self) -> str:
        """A party, PUBLIC or SHARED."""
        return self.owners.get(WEIGHTS, self.parties[min(1, len(self.parties) - 1)])

    def owner(self, name: str) -> str:
        return self.owners.get(name, self.default_owner)

    def receiver(self, name: str) -> tuple[str, ...]:
        return self.receivers.get(name, (self.default_owner,))

    def check_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Raises UsageError for an owner or receiver of what the model does not have."""
        for name in self.owners:
            if name != WEIGHTS and name not in inputs:
                raise UsageError(
                    f"The model has no input `{name}`.",
                    f"Its inputs are {', '.join(inputs)}; `weights` names all weights.",
                )
        for name in self.receivers:
            if name not in outputs:
                raise UsageError(
                    f"The model has no output `{name}`.", f"Its outputs are {', '.join(outputs)}."
                )


def target(
    suite: str = "rep3",
    parties: Sequence[str] | None = None,
    network_name: str = "lan",
    owners: Mapping[str, str] | None = None,
    receivers: Mapping[str, Sequence[str]] | None = None,
    dealer: str | None = None,
) -> Target:
    """The target that a user asked for.

    Raises:
        UsageError: no such suite, the wrong number of parties, or a name that is no party.
    """
    if suite not in SUITES:
        raise UsageError(f"There is no suite `{suite}`.", f"Use one of {', '.join(SUITES)}.")
    chosen = SUITES[suite]
    fewest, most = chosen.security.parties
    names = tuple(parties) if parties is not None else DEFAULT_PARTIES[:fewest]
    if not fewest <= len(names) <= most:
        raise _wrong_count(chosen, len(names))
    dealt_by = _dealer(chosen, names, dealer)
    plain = all(n and n.isidentifier() and n not in (PUBLIC, SHARED) for n in names)
    if len(set(names)) != len(names) or not plain:
        raise UsageError(
            f"Parties are named {', '.join(names)}.",
            f"Names must be different plain words, and none of them `{PUBLIC}` or `{SHARED}`.",
        )
    owners, receivers = dict(owners or {}), dict(receivers or {})
    for what, who in owners.items():
        if what == WEIGHTS and who in (PUBLIC, SHARED):
            continue
        if who not in names:
            raise _no_party(f"{who} owns `{what}`", who, names, dealt_by)
    for what, given in receivers.items():
        for who in given:
            if who not in names:
                raise _no_party(f"{who} receives `{what}`", who, names, dealt_by)
    return Target(
        chosen,
        names,
        network(network_name),
        owners,
        {name: tuple(who) for name, who in receivers.items()},
        dealt_by,
    )


def _wrong_count(suite: Suite, named: int) -> UsageError:
    fewest, most = suite.security.parties
    count = str(most) if fewest == most else f"{fewest} to {most}"
    parties, names = ("party", "name") if most == 1 else ("parties", "different names")
    return UsageError(
        f"Suite {suite.name} has {count} {parties}, and {named} {'was' if named == 1 else 'were'} "
        "named.",
        f"Give {count} {names} with --parties.",
    )


def _no_party(act: str, who: str, names: Sequence[str], dealer: str) -> UsageError:
    """`act` is what `who` was to do, who does not compute: "eve owns `x`"."""
    if who == dealer:
        return UsageError(
            f"{act}, and the dealer owns and receives nothing.", f"Name one of {', '.join(names)}."
        )
    return UsageError(f"{act}, and is no party.", f"Name one of {', '.join(names)}.")


def _dealer(suite: Suite, parties: Sequence[str], dealer: str | None) -> str:
    """The dealer's name, empty for a suite that has none; never one that is there by default."""
    if not suite.security.dealer:
        if dealer is not None:
            raise UsageError(f"Suite {suite.name} has no dealer.", "Leave out --dealer.")
        return ""
    if dealer is None:
        raise UsageError(
            f"Suite {suite.name} needs a dealer, a host of its own that colludes with nobody.",
            "Name one with --dealer.",
        )
    if not dealer.isidentifier():
        raise UsageError(f"The dealer is named {dealer!r}.", "A name must be a plain word.")
    if dealer in parties:
        raise UsageError(
            f"{dealer} can't be the dealer and compute: it would know every mask.",
            "Name a host of its own with --dealer.",
        )
    return dealer
