"""Two pieces of work at once: what both give, and whose error is told."""

import threading

import pytest

from veilgraph.ir.files.beside import together


def _fails(error: Exception) -> None:
    raise error


def test_both_are_done_at_once() -> None:
    met = threading.Barrier(2, timeout=60)
    assert sorted(map(bool, together(met.wait, met.wait))) == [False, True]


def test_the_first_error_is_told() -> None:
    with pytest.raises(KeyError):
        together(lambda: _fails(KeyError()), lambda: _fails(ValueError()))


@pytest.mark.parametrize("first", [True, False])
def test_one_error_is_told(first: bool) -> None:
    work = [lambda: _fails(ValueError("this one")), lambda: None]
    with pytest.raises(ValueError, match="this one"):
        together(*(work if first else reversed(work)))


def test_the_first_is_over_behind_an_error_of_the_second() -> None:
    over = threading.Event()
    failed = threading.Event()

    def first() -> None:
        failed.wait(60)
        over.set()

    def second() -> None:
        failed.set()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        together(first, second)
    assert over.is_set()


def test_who_is_interrupted_does_not_wait() -> None:
    going, over = threading.Event(), threading.Event()

    def first() -> None:
        going.wait(60)
        over.set()

    def second() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together(first, second)
    assert not over.is_set()
    going.set()
    assert over.wait(60)


def test_without_a_thread_work_is_done_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    done: list[int] = []
    together(lambda: done.append(1), lambda: done.append(2))
    assert done == [1, 2]
    with pytest.raises(KeyError):
        together(lambda: _fails(KeyError()), lambda: None)
