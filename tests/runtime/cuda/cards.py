"""Whether there is a GPU for the tests that need one."""

from __future__ import annotations

from typing import Any

import pytest

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.cuda.pycuda_driver import load_pycuda


def pycuda_or_skip() -> Any:
    """The module pycuda.driver; skips the test, and says why, where there is no card."""
    try:
        return load_pycuda()
    except UsageError as error:
        pytest.skip(error.message)
