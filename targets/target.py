"""What a program is compiled for: a suite, its parties by name, and who owns and receives what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from veilgraph.ir.errors import UsageError
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import PUBLIC, SHARED, WEIGHTS
from veilgraph.ir.roles import (
    CLIENT,
    COMPUTING,
    DEALER,
    NAME_RULE,
    ROLES,
    Collusion,
    Role,
    is_name,
)
from veilgraph.targets.networks import Network, network
from veilgraph.targets.parties import Member, Parties
from veilgraph.targets.suite import Suite
from veilgraph.targets.suites import SUITES
from veilgraph.targets.variants import Choosing, Variant

DEFAULT_PARTIES = ("alice", "bob", "carol")
MOST_CLIENTS = 4  # coalitions double with each


@dataclass(frozen=True)
class Party:
    """One of a target's parties: a name, and what it does."""

    name: str
    role: Role


@dataclass(frozen=True)
class Target:
    """A checked target; `target()` makes one from what a user writes."""

    suite: Suite
    members: tuple[Party, ...]  # in the order of `roles.ROLES`
    network: Network
    owners: Mapping[str, str] = field(default_factory=dict)  # by input name, and "weights"
    receivers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by output name
    protocols: Mapping[str, Variant] = field(default_factory=dict)  # chosen by hand

    @property
    def everyone(self) -> tuple[str, ...]:
        """The plan's parties: those that compute, clients, then who prepares."""
        return tuple(party.name for party in self.members)

    @property
    def parties(self) -> tuple[str, ...]:
        """Those that compute."""
        return tuple(party.name for party in self.members if party.role.computes)

    def numbered(self, collusion: Collusion) -> list[int]:
        """The parties, by their numbers in the plan, that collude so."""
        return [i for i, party in enumerate(self.members) if party.role.collusion is collusion]

    def member(self, name: str) -> Member:
        """The source of an input, or the receiver of an output, of this name."""
        return Member(self.everyone.index(name))

    def placed(self, program: Program) -> Parties:
        """The parties in their roles in a program; its parties are `everyone`."""
        provider = self.suite.security.provider
        hosts = [i for i, party in enumerate(self.members) if party.role == provider]
        order = range(len(self.parties))
        return Parties(program, tuple(order), Member(hosts[0]) if hosts else None)

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

    def numbers_receiving(self, names: Iterable[str]) -> dict[str, list[int]]:
        """The parties, by their numbers in the plan, that each of these outputs goes to."""
        return {name: [self.member(who).party for who in self.receiver(name)] for name in names}

    def variants(self, name: str) -> tuple[Variant, ...]:
        """Those of an op or building block that may be taken, the suite's first one first.

        What promises less of roundings than the first is taken by hand alone.
        """
        if name in self.protocols:
            return (self.protocols[name],)
        offered = self.suite.protocols[name]
        first, *others = offered
        kept = (v for v in others if v.rounding <= first.rounding and not self.lacks(v))
        return (first, *kept)

    def lacks(self, variant: Variant) -> str:
        """Why the parties can't run a variant; empty where they can."""
        return variant.needs.lacking(len(self.parties), self.suite.security.provider is not None)

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


class Hosts(TypedDict, total=False):
    """Where a program runs, as keywords: what `target` takes besides owners and receivers."""

    suite: str
    parties: Sequence[str] | None
    network: str
    dealer: str | None
    clients: Sequence[str]
    protocols: Mapping[str, str] | None


class Around(Hosts, Choosing, total=False):
    """Where a program runs, and by what its protocols are chosen."""


def target_at(
    hosts: Hosts,
    owners: Mapping[str, str] | None,
    receivers: Mapping[str, Sequence[str]] | None,
) -> Target:
    """The target of these hosts; raises what `target` does."""
    return target(
        hosts.get("suite", "rep3"),
        hosts.get("parties"),
        hosts.get("network", "lan"),
        owners,
        receivers,
        hosts.get("dealer"),
        hosts.get("clients", ()),
        hosts.get("protocols"),
    )


def target(
    suite: str = "rep3",
    parties: Sequence[str] | None = None,
    network_name: str = "lan",
    owners: Mapping[str, str] | None = None,
    receivers: Mapping[str, Sequence[str]] | None = None,
    dealer: str | None = None,
    clients: Sequence[str] = (),
    protocols: Mapping[str, str] | None = None,
) -> Target:
    """The target that a user asked for.

    Raises:
        UsageError: no such suite or variant of a protocol, the wrong number of parties, a party in
            two roles or in none, or a name that is no party.
    """
    chosen = _suite(suite)
    names = tuple(parties) if parties is not None else DEFAULT_PARTIES[: chosen.security.parties[0]]
    found = _checked(chosen, names, tuple(clients), dealer, network_name, owners, receivers)
    # Not of plans: earlier versions took other names for clients, which serve without files.
    for name in (*names, *clients, *filter(None, [dealer])):
        if not is_name(name):
            raise UsageError(f"{name!r} can't be a party's name.", NAME_RULE)
    return _with_protocols(found, protocols or {})


def target_of_roles(
    suite: str,
    roles: Mapping[str, str],
    owners: Mapping[str, str],
    receivers: Mapping[str, Sequence[str]],
) -> Target:
    """The target of a plan whose manifest names a role for each party.

    Raises:
        UsageError: as `target`; or more of a role than there can be.
    """
    named = {r: [name for name, role in roles.items() if role == r] for r in ROLES}
    hosts = named[DEALER.name]
    if len(hosts) > 1:
        raise UsageError(f"{' and '.join(hosts)} are both named as the dealer.", "Name one.")
    host = hosts[0] if hosts else None
    clients = tuple(named[CLIENT.name])
    parties = tuple(named[COMPUTING.name])
    return _checked(_suite(suite), parties, clients, host, "lan", owners, receivers)


def _suite(name: str) -> Suite:
    if name not in SUITES:
        raise UsageError(f"There is no suite `{name}`.", f"Use one of {', '.join(SUITES)}.")
    return SUITES[name]


def _checked(
    suite: Suite,
    names: tuple[str, ...],
    clients: tuple[str, ...],
    dealer: str | None,
    network_name: str,
    owners: Mapping[str, str] | None,
    receivers: Mapping[str, Sequence[str]] | None,
) -> Target:
    fewest, most = suite.security.parties
    if not fewest <= len(names) <= most:
        raise _wrong_count(suite, len(names))
    _check_dealer(suite, names, dealer)
    _check_names(names)
    _check_clients(clients, names, dealer)
    owners, receivers = dict(owners or {}), dict(receivers or {})
    members = (
        *(Party(name, COMPUTING) for name in names),
        *(Party(name, CLIENT) for name in clients),
        *(Party(name, DEALER) for name in (dealer,) if name is not None),
    )
    giving = [party.name for party in members if party.role.owns]
    for what, who in owners.items():
        if not (what == WEIGHTS and who in (PUBLIC, SHARED)) and who not in giving:
            raise _no_party(f"{who} owns `{what}`", who, giving, dealer)
    for what, given in receivers.items():
        for who in given:
            if who not in giving:
                raise _no_party(f"{who} receives `{what}`", who, giving, dealer)
    named = {*owners.values(), *(who for given in receivers.values() for who in given)}
    for client in clients:
        if client not in named:
            raise UsageError(
                f"Client {client} gives nothing and receives nothing.",
                f"Say what it does, as --owner NAME={client} or --reveal NAME={client}, or leave "
                "it out.",
            )
    given_to = {name: tuple(who) for name, who in receivers.items()}
    return Target(suite, members, network(network_name), owners, given_to)


def _with_protocols(target: Target, named: Mapping[str, str]) -> Target:
    """The target with variants of protocols that were chosen by hand."""
    if not isinstance(named, Mapping):
        raise UsageError(
            f"`protocols` is {named!r}, and not a variant for each op.",
            'Give {"step": "compare=merges"}; `goal` says by what all others are chosen.',
        )
    suite = target.suite
    found = {op: _variant(suite, op, variant) for op, variant in named.items()}
    for op, variant in found.items():
        if reason := target.lacks(variant):
            raise UsageError(f"{op}={variant.name} can't be taken: {reason}.", _others(suite, op))
    return replace(target, protocols=found)


def _variant(suite: Suite, op: str, name: str) -> Variant:
    """The variant of this name; UsageError if there is none."""
    if op not in suite.protocols:
        several = [op for op, found in suite.protocols.items() if len(found) > 1]
        raise UsageError(
            f"Suite {suite.name} has no protocol for `{op}`.",
            f"It has several for {', '.join(several)}."
            if several
            else "It has one protocol for each op: leave out --protocol.",
        )
    for variant in suite.protocols[op]:
        if variant.name == name:
            return variant
    having = [
        other.name
        for other in SUITES.values()
        if name in [variant.name for variant in other.protocols.get(op, ())]
    ]
    hint = f"Suite {' and '.join(having)} has it. " if having else ""
    raise UsageError(
        f"Suite {suite.name} has no variant `{name}` of `{op}`.", hint + _others(suite, op)
    )


def _others(suite: Suite, op: str) -> str:
    return f"Here `{op}` is one of {', '.join(v.name for v in suite.protocols[op])}."


def _wrong_count(suite: Suite, named: int) -> UsageError:
    fewest, most = suite.security.parties
    count = str(most) if fewest == most else f"{fewest} to {most}"
    parties, names = ("party", "name") if most == 1 else ("parties", "different names")
    return UsageError(
        f"Suite {suite.name} has {count} {parties}, and {named} {'was' if named == 1 else 'were'} "
        "named.",
        f"Give {count} {names} with --parties.",
    )


def _no_party(act: str, who: str, names: Sequence[str], dealer: str | None) -> UsageError:
    """`act` is what `who` was to do, who may not: "eve owns `x`"."""
    if who == dealer:
        return UsageError(
            f"{act}, and the dealer owns and receives nothing.", f"Name one of {', '.join(names)}."
        )
    return UsageError(
        f"{act}, and is no party.", f"Name one of {', '.join(names)}; or a client, with --client."
    )


def _check_names(names: Sequence[str]) -> None:
    plain = all(n and n.isidentifier() and n not in (PUBLIC, SHARED) for n in names)
    if len(set(names)) != len(names) or not plain:
        raise UsageError(
            f"Parties are named {', '.join(names)}.",
            f"Names must be different plain words, and none of them `{PUBLIC}` or `{SHARED}`.",
        )


def _check_clients(clients: Sequence[str], parties: Sequence[str], dealer: str | None) -> None:
    """That clients are others than those that compute or deal, and no more than are checked."""
    _check_names(clients)
    for name in clients:
        if name in parties:
            raise UsageError(
                f"{name} can't be a client and compute.",
                "Leave it out of --client: a party that computes may own and receive anything.",
            )
        if name == dealer:
            raise UsageError(
                f"{name} can't be a client and the dealer: it would know every mask of its output.",
                "Name another host with --client or --dealer.",
            )
    if len(clients) > MOST_CLIENTS:
        raise UsageError(
            f"{len(clients)} clients are named, and a plan has at most {MOST_CLIENTS}.",
            "Masks are checked against every coalition with any clients: take fewer in one plan.",
        )


def _check_dealer(suite: Suite, parties: Sequence[str], dealer: str | None) -> None:
    """One where the suite needs one, and none elsewhere; never one that is there by default."""
    if suite.security.provider is None:
        if dealer is not None:
            raise UsageError(f"Suite {suite.name} has no dealer.", "Leave out --dealer.")
        return
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
