"""What the tests of links and devices share."""

from __future__ import annotations

from pathlib import Path

import pytest
from three_parties import KINDS, Connect


@pytest.fixture(params=list(KINDS))
def connect(request: pytest.FixtureRequest) -> Connect:
    """Each kind of links, and parties of both kinds together."""
    return KINDS[request.param]


@pytest.fixture
def emulator_cache(emulator_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's cache for one test, but for the compiled kernels, which are everyone's."""
    cache = tmp_path / "cache" / "veilgraph"
    cache.mkdir(parents=True)
    (cache / "host-emulator").symlink_to(emulator_folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
