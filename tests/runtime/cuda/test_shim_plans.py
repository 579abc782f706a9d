"""Whole plans on the shim, alone and beside the CPU: the wire does not tell devices apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from small_plans import W, X, small_plan
from whole_plans import check_devices, check_digits, check_prepared

SHIM, CPU = "host-shim", "cpu"


@pytest.fixture(autouse=True)
def cache(shim_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels are kept where all tests of this run find them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shim_folder))


@pytest.mark.parametrize("devices", [(SHIM,) * 3, (SHIM, SHIM, CPU), (CPU, CPU, SHIM)])
@pytest.mark.parametrize("ring_bits", [32, 40])
def test_a_layer(ring_bits: int, devices: Sequence[str]) -> None:
    """In words of 32 and of 64 bits; two inferences, so that run numbers change."""
    check_devices(small_plan(ring_bits), [{"x": X}, {"x": -X}], {"w": W}, devices)


def test_a_layer_from_a_store() -> None:
    check_prepared(small_plan(), [{"x": X}, {"x": -X}], {"w": W}, (SHIM, SHIM, CPU))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "devices"), [("rep3", (CPU, SHIM, SHIM)), ("additive", (SHIM, CPU, SHIM))]
)
def test_a_lenet(suite: str, devices: Sequence[str]) -> None:
    check_digits(suite, devices)
