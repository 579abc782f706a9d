"""Which plans a party has verified, in its `state_dir`: none is verified twice.

A file a plan, `verified-plans/DIGEST`, that names the versions which found it sound. The digest is
over all that the plan says and does, so a plan that differs in anything is another one; so is a
host that verifies with another version.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.ir.plan.plan import Plan
from veilgraph.passes.plan.version import LOWERING_VERSION

FOLDER = "verified-plans"


def require_verified(plan: Plan, state_dir: Path) -> None:
    """Verifies a plan, unless this party did so before; what holds is recorded.

    Raises:
        SecurityAbort: see `verification.verify`.
        UsageError: a `state_dir` that can't be written to.
    """
    if not is_recorded(plan, state_dir):
        from veilgraph.verification.verify import verify  # with all suites: once a plan

        verify(plan)
        record(plan, state_dir)


def is_recorded(plan: Plan, state_dir: Path) -> bool:
    """Whether these versions have verified this plan."""
    try:
        return (state_dir / FOLDER / plan.digest).read_bytes() == _content()
    except OSError:
        return False


def record(plan: Plan, state_dir: Path) -> None:
    """Records a plan that holds; whole or not at all, for this user alone.

    Raises:
        UsageError: a `state_dir` that can't be written to.
    """
    folder = state_dir / FOLDER
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        with placed_whole(folder / plan.digest) as file:
            file.write(_content())
    except OSError as error:
        raise UsageError(
            f"{folder} can't be used: {error.strerror}.",
            "Give this party a `state_dir` that it may write to.",
        ) from error


def _content() -> bytes:
    return f"lowering {LOWERING_VERSION} veilgraph {version('veilgraph')}\n".encode()
