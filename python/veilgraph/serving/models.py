"""What a party that serves clients reads of a plan, and how it is linked with the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilgraph.ir.errors import UsageError
from veilgraph.plans import Plan
from veilgraph.runtime._native import OpenSsl
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.links.openssl import openssl
from veilgraph.runtime.links.tls import NativeTransport, PythonTransport
from veilgraph.runtime.service.seat import Seat
from veilgraph.runtime.service.served import Model, clients_of
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.store.share_files import load_shares
from veilgraph.runtime.store.weights import load_weights
from veilgraph.verification.consent import require_accepted
from veilgraph.verification.signatures import signature_file


@dataclass(frozen=True)
class Weights:
    """Where a party's weights lie: whole at their owner's, or its shares where nobody has them."""

    whole: Path | None
    shares: Path | None


def load_model(
    name: str,
    plan_file: Path,
    config: Config,
    weights: Weights,
    *,
    device: str,
    threads: int,
    trust_author: bool,
) -> Model:
    """A plan that this party has verified, and what it brings to it.

    Raises:
        UsageError: a plan that can't be served, other parties than config lists, or a file that is
            missing or makes no sense.
        SecurityAbort: a plan that is refused, or files of another plan.
    """
    plan, me = Plan.load(plan_file), config.me.name
    clients = clients_of(plan)
    config.for_parties([n for n in plan.manifest.parties if n not in clients])
    found = require_accepted(plan, config, signature_file(plan_file), trust_author=trust_author)
    rows = found.rows if found is not None else 1
    program = plan.party(me)
    place = ready(device, plan, me, threads=threads)
    stood_for = clients if plan.manifest.role(me).computes else ()
    seats = {role: Seat(plan, role, me) for role in stood_for}
    if program.shares:
        dealt = load_shares(_given(weights.shares, me), plan, me, config.key)
        return Model(name, plan, place, seats, dealt=dealt, rows=rows)
    own = load_weights(_given(weights.whole, me), plan.digest) if program.weights else {}
    return Model(name, plan, place, seats, own, rows=rows)


def _given(file: Path | None, party: str) -> Path:
    if file is None:
        raise UsageError(
            f"{party} brings weights to this plan, and none were given.",
            "Give the file that `compile` wrote beside the plan with --weights.",
        )
    return file


def tls_transport() -> Any:
    """TLS by OpenSSL's own functions where they can be had, else by Python's."""
    found = openssl()
    return NativeTransport(found) if isinstance(found, OpenSsl) else PythonTransport()
