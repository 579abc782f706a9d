"""What tests share. Being here puts this folder on the path: `from models import light_model`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files with what is found"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether a test rewrites its golden file before it compares."""
    return bool(request.config.getoption("--update-golden"))
