"""Seconds that messages take between parties, by their links alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from veilgraph.targets.networks import Network

LINK = Network("a test's", bytes_per_second=100.0, round_trip_seconds=2.0)


def sent(rounds: list[dict[tuple[int, int], int]]) -> npt.NDArray[np.int64]:
    rows = [(n, *link, size) for n, each in enumerate(rounds) for link, size in each.items()]
    return np.array(rows, np.int64).reshape(-1, 4)


@pytest.mark.parametrize(
    ("rounds", "seconds"),
    [
        ([], 0.0),
        ([{(0, 1): 100}], 2.0),
        ([{(0, 1): 0}], 1.0),
        ([{(0, 1): 100, (1, 0): 300}], 4.0),
        # bob answers when he has been asked; carol's message is there before
        ([{(0, 1): 100}, {(1, 0): 100, (2, 0): 100}], 4.0),
        # what alice sends carol next waits for what the link still carries
        ([{(0, 2): 1000, (1, 0): 100}, {(0, 2): 100}], 12.0),
        # nobody waits for whom they hear nothing of
        ([{(0, 1): 900}, {(2, 0): 100}], 10.0),
    ],
)
def test_messages_are_delivered(rounds: list[dict[tuple[int, int], int]], seconds: float) -> None:
    assert LINK.delivered(sent(rounds)) == pytest.approx(seconds)


def test_two_parties_in_turn_take_half_a_round_trip_each() -> None:
    turns = [{(i % 2, 1 - i % 2): 50} for i in range(10)]
    assert LINK.delivered(sent(turns)) == pytest.approx(10 * (1 + 0.5))
