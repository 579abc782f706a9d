"""Requests at one party: how long one waits for others, and who hears of what became of it."""

from __future__ import annotations

import threading
import time

import pytest

from veilgraph.runtime.service.agenda import Item, Stage
from veilgraph.runtime.service.requests import MOST_WAITS, Request, Requests
from veilgraph.runtime.transcript import Transcript

SESSION, OTHERS = b"s" * 16, b"o" * 16
WAIT = 1.0


class Clock:
    """Seconds that go by when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("veilgraph.runtime.service.requests.time", found)
    return found


def opened() -> Requests:
    found = Requests(WAIT)
    found.reopen()
    return found


def added(requests: Requests, number: int, now: float, session: bytes = SESSION) -> Request:
    found = Request(bytes([number]) * 16, session, {"patient": f"p{number}"}, since=now)
    requests.add(found)
    return found


def stages(requests: Requests) -> list[Stage]:
    return [item.stage for item in requests.items({SESSION: 0, OTHERS: 1})]


def test_a_request_waits_anew_when_another_comes(clock: Clock) -> None:
    requests = opened()
    added(requests, 1, clock.now)
    clock.now += 0.9 * WAIT
    added(requests, 2, clock.now)
    clock.now += 0.9 * WAIT
    added(requests, 3, clock.now, OTHERS)  # of another plan: it makes nobody else wait
    assert stages(requests) == [Stage.KNOWN] * 3
    assert requests.wait_left() == pytest.approx(0.1 * WAIT)
    clock.now += 0.2 * WAIT
    assert stages(requests) == [Stage.WAITED, Stage.WAITED, Stage.KNOWN]


def test_requests_that_come_all_the_time_hold_up_nobody(clock: Clock) -> None:
    requests = opened()
    first = clock.now
    added(requests, 1, first)
    for number in range(2, 40):
        clock.now += 0.3 * WAIT
        added(requests, number, clock.now)
        if stages(requests)[0] == Stage.WAITED:
            break
    assert clock.now - first == pytest.approx(MOST_WAITS * WAIT, abs=0.31 * WAIT)


def test_a_request_waits_anew_when_an_inference_ends(clock: Clock) -> None:
    requests = opened()
    first = added(requests, 1, clock.now)
    clock.now += 0.5 * WAIT
    added(requests, 2, clock.now)
    clock.now += 0.9 * WAIT
    requests.answer(Item(first.id, Stage.READY, 0), {}, Transcript())
    clock.now += 0.9 * WAIT
    assert stages(requests) == [Stage.KNOWN]
    clock.now += 0.2 * WAIT
    assert stages(requests) == [Stage.WAITED]


def test_an_answer_wakes_who_waits_for_it_alone() -> None:
    requests = opened()
    asked = [added(requests, number, time.monotonic()) for number in (1, 2)]
    looks, answers = [0, 0], list[object]()

    def wait(place: int) -> None:
        def is_there() -> bool:
            looks[place] += 1
            return True

        answers.append(requests.wait_for_answer(asked[place], 5.0, is_there))

    threads = [threading.Thread(target=wait, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    while not all(looks):
        time.sleep(0.001)
    before = looks[1]
    requests.answer(Item(asked[0].id, Stage.READY, 0), {"patient": {}}, Transcript())
    threads[0].join(5.0)
    assert not threads[0].is_alive()
    assert looks[1] - before <= 1  # but by its own timeout
    requests.answer(Item(asked[1].id, Stage.READY, 0), {"patient": {}}, Transcript())
    threads[1].join(5.0)
    assert answers == [{"patient": {}}] * 2
