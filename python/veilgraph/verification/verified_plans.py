"""Which plans a party has verified, in its `state_dir`, and what was found: none is verified twice.

A file a plan, `verified-plans/DIGEST`: a line that names the versions which found it sound, and a
line of what they found. The digest is over all that the plan says and does, so a plan that differs
in anything is another one; so is a host that verifies with another version.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.ir.plan.plan import Plan
from veilgraph.passes.plan.version import LOWERING_VERSION
from veilgraph.verification.findings import Verified

FOLDER = "verified-plans"


def require_verified(plan: Plan, state_dir: Path) -> Verified:
    """Verifies a plan, unless this party did so before; what holds is recorded.

    Raises:
        SecurityAbort: see `verification.verify`.
        UsageError: a `state_dir` that can't be written to.
    """
    found = recorded(plan, state_dir)
    if found is None:
        from veilgraph.verification.verify import verify  # with all suites: once a plan

        found = verify(plan)
        record(found, state_dir)
    return found


def recorded(plan: Plan, state_dir: Path) -> Verified | None:
    """What these versions found of this plan; None where they have not verified it."""
    try:
        content = (state_dir / FOLDER / plan.digest).read_text()
    except (OSError, UnicodeDecodeError):
        return None
    versions, _, found = content.partition("\n")
    return Verified.from_json(found) if versions == _versions() else None


def record(found: Verified, state_dir: Path) -> None:
    """Records a plan that holds; whole or not at all, for this user alone.

    Raises:
        UsageError: a `state_dir` that can't be written to.
    """
    folder = state_dir / FOLDER
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        with placed_whole(folder / found.digest) as file:
            file.write(f"{_versions()}\n{found.to_json()}\n".encode())
    except OSError as error:
        raise UsageError(
            f"{folder} can't be used: {error.strerror}.",
            "Give this party a `state_dir` that it may write to.",
        ) from error


def _versions() -> str:
    return f"lowering {LOWERING_VERSION} veilgraph {version('veilgraph')}"
