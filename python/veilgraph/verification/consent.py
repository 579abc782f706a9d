"""A plan that a party takes part in holds, and its configuration consents to what it reveals.

The one door for whoever lets a party take part: nothing is sent, and nobody listens, before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.consent import Consent
from veilgraph.verification.findings import OUTPUT, Verified
from veilgraph.verification.signatures import signer_of
from veilgraph.verification.verified_plans import require_verified

_WIDTH = 10_000  # columns of YAML, so that no line is folded


def require_accepted(
    plan: Plan, config: Config, signature: Path | None = None, *, trust_author: bool = False
) -> Verified | None:
    """Verifies a plan, once, and holds what it reveals against the configuration's `consent`.

    Gives what was found; None where the author is trusted.

    Args:
        signature: the file of the plan's signature, if it has one; read where `consent` asks.
        trust_author: the caller was asked to leave all of this out.

    Raises:
        SecurityAbort: a plan that does not hold, that reveals more than was consented to, or whose
            signature does not fit.
        UsageError: consent, and trust in the author; a `state_dir` that can't be written to.
    """
    if trust_author:
        _require_no_consent(config)
        return None
    found = require_verified(plan, config.state_dir)
    require_consent(plan, found, config, signature)
    return found


def require_consent(plan: Plan, found: Verified, config: Config, signature: Path | None) -> None:
    """The second half: raises SecurityAbort unless an entry of `consent` covers what was found."""
    if config.consent is None:
        return
    signed_by = None if signature is None else signer_of(plan, signature)
    entries = [entry for entry in config.consent if _is_for(entry, plan, config, signed_by)]
    missing = [list(_missing(entry, plan, found)) for entry in entries]
    if entries and not all(missing):
        return
    names = ", ".join(config.authors) or "none"
    unnamed = f"no entry is for its digest, or for an author who signed it (listed: {names})"
    lacking = "; ".join(sorted(missing, key=len)[0]) if missing else unnamed
    raise SecurityAbort(
        [
            f"This party's configuration does not consent to the plan: {lacking}.",
            *(f"  {line}" for line in accepting_lines(plan, found)),
        ],
        "Ask its author; or put these lines into parties.yaml, if you agree to what they say.",
    )


def accepting_lines(plan: Plan, found: Verified) -> list[str]:
    """The lines of a parties.yaml that accept this plan, and no other.

    Where it has a list `consent`, the lines behind the first go to it.
    """
    reveal: dict[str, list[str]] = {}
    openings = []
    for each in found.revealed:
        if each.kind == OUTPUT:
            reveal[each.output] = sorted({*reveal.get(each.output, ()), *each.to})
        else:
            openings.append(each.kind)
    entry: dict[str, Any] = {"plan": plan.digest, "reveal": reveal, "openings": openings}
    error = _stated_error(plan)
    if error is not None and error <= 1:
        entry["max_error"] = error
    entry["rings"] = list(found.rings)
    text = yaml.safe_dump(
        {"consent": [entry]}, sort_keys=False, default_flow_style=None, width=_WIDTH
    )
    return text.splitlines()


def _require_no_consent(config: Config) -> None:
    if config.consent is not None:
        raise UsageError(
            "This party's configuration says which plans it consents to, and --trust-author would "
            "take any.",
            "Leave out --trust-author, or `consent:` in parties.yaml.",
        )


def _is_for(entry: Consent, plan: Plan, config: Config, signed_by: bytes | None) -> bool:
    if entry.author is not None:
        return signed_by is not None and config.authors[entry.author] == signed_by
    return entry.digest == plan.digest


def _missing(entry: Consent, plan: Plan, found: Verified) -> Iterator[str]:
    """What a plan does beyond what an entry accepts."""
    for each in found.revealed:
        if each.kind != OUTPUT:
            if each.kind not in entry.openings:
                yield f"opening `{each.kind}` ({each.what})"
            continue
        to = [name for name in each.to if name not in entry.reveal.get(each.output, ())]
        if to:
            yield f"output {each.output} to {' and '.join(to)}"
    if entry.max_error is not None:
        error = _stated_error(plan)
        if error is None:
            yield f"it states no error, and {entry.max_error:g} is accepted at most"
        elif error > entry.max_error:
            yield f"an error of {error:g}, and {entry.max_error:g} is accepted at most"
    if entry.rings is not None and not entry.rings.issuperset(found.rings):
        others = [bits for bits in found.rings if bits not in entry.rings]
        yield f"rings of {' and '.join(map(str, others))} bits"


def _stated_error(plan: Plan) -> float | None:
    """The largest error that the plan's author says it was compiled for."""
    stated = plan.manifest.options.get("max_error")
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated)
