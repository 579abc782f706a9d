"""What the tests of links share."""

from __future__ import annotations

import pytest
from three_parties import KINDS, Connect


@pytest.fixture(params=list(KINDS))
def connect(request: pytest.FixtureRequest) -> Connect:
    """Each kind of links, and parties of both kinds together."""
    return KINDS[request.param]
