"""What the tests of links and devices share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from three_parties import KINDS, Connect


@pytest.fixture(params=list(KINDS))
def connect(request: pytest.FixtureRequest) -> Connect:
    """Each kind of links, and parties of both kinds together."""
    return KINDS[request.param]


@pytest.fixture(scope="session")
def emulator_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kernels compiled for the host are kept while the tests run, for all their processes."""
    own = tmp_path_factory.getbasetemp()
    folder = (
        own.parent / "host-emulator"
        if "PYTEST_XDIST_WORKER" in os.environ
        else own / "host-emulator"
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
