"""Clients that ask a service, each on a thread, and hold every answer against the model's own.

A request ends in a right answer, or in one of Veilgraph's errors within the client's timeout. No
two answers may be rows of one inference that are the same: that would be an inference used twice.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from veilgraph.ir.errors import VeilgraphError
from veilgraph.serving.client import Client

Array = npt.NDArray[np.float32]
PAUSE_SECONDS = 0.02  # of a client after an answer or an error
RELATIVE, ABSOLUTE = 0.05, 0.05  # a wrong answer of shares is off by much more


@dataclass(frozen=True)
class Question:
    """A model that is served, what is asked about it, and what ONNX Runtime answers, row by row."""

    model: str
    input: str
    output: str
    rows: Array
    answers: Array

    @staticmethod
    def of(model: str, network: Any, rows: Array, most: int) -> Question:
        """Of an ONNX file or its bytes, which takes `most` rows at once."""
        session = onnxruntime.InferenceSession(network)
        (given,), (told,) = session.get_inputs(), session.get_outputs()
        pieces = [rows[i : i + most] for i in range(0, len(rows) - most + 1, most)]
        answers = [session.run(None, {given.name: piece})[0] for piece in pieces]
        whole = np.concatenate(answers).astype(np.float32)
        return Question(model, given.name, told.name, rows[: len(whole)], whole)

    def is_answer(self, found: Array, first: int) -> bool:
        wanted = self.answers[first : first + len(found)]
        return np.allclose(found, wanted, RELATIVE, ABSOLUTE * float(np.abs(wanted).max()))


class _Client(Client):
    """One that knows which inference answered it."""

    place = ("", 0, 0)

    def _added(self, tensors: Any) -> Any:
        found = super()._added(tensors)
        head = next(iter(found[1].values()))
        self.place = (self._session, head["number"], head["row"])
        return found


@dataclass
class Found:
    """What clients found so far; `wrong` and `late` are to be empty, and `twice` 0."""

    answers: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    twice: int = 0
    seconds: list[float] = field(default_factory=list)


class Asking:
    """Asks until it is ended; a thread a client.

    Args:
        configs: of the clients.
        questions: of which each request takes one.
        most_seconds: that a request may take, its client's timeout and some slack.
        limit: requests that are answered in all; any number if None.
    """

    def __init__(
        self,
        configs: Sequence[Path],
        questions: Sequence[Question],
        most_seconds: float,
        seed: int,
        limit: int | None = None,
    ) -> None:
        self.found = Found()
        self._questions, self._most, self._limit = questions, most_seconds, limit
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._places: set[tuple[str, int, int]] = set()
        self._threads = [
            threading.Thread(target=self._ask, args=(config, random.Random(f"{seed} {number}")))
            for number, config in enumerate(configs)
        ]

    @contextmanager
    def going_on(self) -> Iterator[Found]:
        for thread in self._threads:
            thread.start()
        try:
            yield self.found
        finally:
            self._ended.set()
            self.wait()

    def wait(self) -> None:
        """Until all threads have ended, or hang."""
        for thread in self._threads:
            thread.join(3 * self._most)
        if any(thread.is_alive() for thread in self._threads):
            self.found.late.append("a client hangs")

    @property
    def count(self) -> int:
        return self.found.answers.total()

    def is_over(self) -> bool:
        return self._ended.is_set() or (self._limit is not None and self.count >= self._limit)

    def _ask(self, config: Path, draws: random.Random) -> None:
        while not self.is_over():
            question = draws.choice(self._questions)
            start = time.monotonic()
            try:
                with _Client(question.model, config) as client:
                    self._in_time("to open", start)
                    for _ in range(draws.randint(1, 8)):
                        start = time.monotonic()
                        self._once(client, question, draws)
                        self._in_time("to answer", start)
                        if self.is_over():
                            return
            except VeilgraphError as error:
                self._in_time("to fail", start)
                with self._lock:
                    self.found.errors[type(error).__name__] += 1
                time.sleep(5 * PAUSE_SECONDS)
            except Exception as error:
                self.found.wrong.append(repr(error))
                time.sleep(5 * PAUSE_SECONDS)

    def _once(self, client: _Client, question: Question, draws: random.Random) -> None:
        rows = draws.randint(1, min(client.rows, 4))
        first = draws.randrange(len(question.rows) - rows + 1)
        start = time.monotonic()
        found = client.run({question.input: question.rows[first : first + rows]})
        spent = time.monotonic() - start
        with self._lock:
            self.found.answers[question.model] += 1
            self.found.seconds.append(spent)
            self.found.twice += client.place in self._places
            self._places.add(client.place)
            if not question.is_answer(found[question.output], first):
                self.found.wrong.append(f"{question.model}: {found}")
        time.sleep(PAUSE_SECONDS * draws.random())

    def _in_time(self, what: str, start: float) -> None:
        if (spent := time.monotonic() - start) > self._most:
            self.found.late.append(f"{spent:.1f} s {what}")


def back(config: Path, question: Question, most_seconds: float) -> float:
    """Seconds until a new client is answered; more than `most_seconds` if it is not by then."""
    start = time.monotonic()
    while (spent := time.monotonic() - start) <= most_seconds:
        try:
            with Client(question.model, config) as client:
                client.run({question.input: question.rows[:1]})
                return time.monotonic() - start
        except VeilgraphError:
            time.sleep(0.05)
    return spent
