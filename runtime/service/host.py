"""A party's process that serves: links that come up again, plans in sessions, and turns.

All parties do the same in each turn (agenda.py). Between turns a party waits: for a client, for a
peer that has begun the next turn, or for a second, after which it begins one itself. So a peer that
is lost is noticed in an idle service too, and named.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TypeAlias

from veilgraph.ir.errors import PeerError, SecurityAbort, VeilgraphError
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.links.tls import Channel
from veilgraph.runtime.service.agenda import (
    TURN_BYTES,
    Agenda,
    Batch,
    Decisions,
    Item,
    Statement,
)
from veilgraph.runtime.service.requests import Requests
from veilgraph.runtime.service.served import Ahead, Model, Ran, ServedPlan, links_over
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.peer_status import ends, warn_of_ends
from veilgraph.runtime.transcript import PhaseRecord, Transcript

LOG = logging.getLogger("veilgraph.service")
HEARTBEAT_SECONDS = 1.0
TURN_SECONDS = 10.0  # that a peer may be silent in a turn
MOST_PLANS = 255
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # between attempts to connect
_SOON_SECONDS = 1.0
MOST_AHEAD = 10_000
_Assigned: TypeAlias = tuple[ServedPlan, Ahead]
_COUNT = struct.Struct("<HH")  # plans, inferences to have ahead of each
_MODEL = struct.Struct("<32s?")  # a model's key, and whether its weights are others than before


@dataclass
class Counts:
    """What a party did since its process began, for who watches it.

    `answered` and `dropped` are requests by model, of which an `inference` answers several;
    `seconds` those that inferences took by model; `sessions` counts how often links came up.
    """

    answered: Counter[str] = field(default_factory=Counter)
    inferences: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    sent_bytes: Counter[str] = field(default_factory=Counter)
    sessions: int = 0


class Host:
    """Serves until it is told to leave.

    Args:
        config: gives this party's, as it is now; asked whenever links are about to come up.
        connect: gives a channel to each other party, by index; PeerError where one does not come.
        secret: of this party's private key.
        models: what this party has.
        read: gives what it has when `reload` asks.
        ahead: inferences to have prepared of each plan; the least that any party wants counts.
        wait_seconds: how long a request waits for others that share an inference with it; the most
            that any party wants counts.
        ran: hears of each inference that ended.
        traces: whether it hears when each step ran, too.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        connect: Callable[[], Mapping[int, Channel]],
        secret: bytes,
        models: list[Model],
        read: Callable[[], list[Model]],
        ahead: int = 0,
        wait_seconds: float = 0.0,
        ran: Callable[[Ran], None] = lambda _: None,
        *,
        traces: bool = False,
    ) -> None:
        self.requests = Requests(wait_seconds)
        self._now, self._connect, self._secret = config, connect, secret
        self._config = config()
        self._warned = datetime.now(UTC).date()  # of certificates: the config was read just now
        self._models, self._read, self._wanted, self._ran = models, read, ahead, ran
        self._traces = traces
        self._leaves, self._reloads = threading.Event(), threading.Event()
        self._served: tuple[ServedPlan, ...] = ()  # in the order that all parties have
        self.counts = Counts()
        self._ahead = 0

    @property
    def served(self) -> dict[str, ServedPlan]:
        """What is served now, by NAME/VERSION, and by NAME with the highest version."""
        by_version = sorted(self._served, key=lambda each: each.model.version)
        newest = {each.model.name.partition("/")[0]: each for each in by_version}
        return {**newest, **{each.model.name: each for each in by_version}}

    @property
    def certificate_ends(self) -> dict[str, datetime]:
        """When the last certificate of each party ends, as far as it is known here."""
        return ends(self._now())

    def leave(self) -> None:
        """Takes no more requests, ends those that are open, and then this party's part."""
        self._leaves.set()
        self.requests.refuse_new(
            PeerError(f"{self._config.me.name} is about to leave.", "Ask again in a moment.")
        )
        self.requests.wake()

    def reload(self) -> None:
        """Reads what this party has again, then has all parties agree anew on what they serve.

        It returns at once, and serves what it has meanwhile: plans take long to verify.
        """
        threading.Thread(target=self._read_again, name="veilgraph-models", daemon=True).start()

    def _read_again(self) -> None:
        try:
            self._models = self._read()
        except (VeilgraphError, OSError) as error:
            LOG.error("all stays as it is: %s", error)
            return
        self._reloads.set()
        self.requests.wake()

    def run(self) -> None:
        """Serves; whatever breaks a link ends all that is open, and links come up again."""
        pause = _FIRST_PAUSE
        while not self._leaves.is_set():
            start = time.monotonic()
            try:
                self._attempt()
            except (VeilgraphError, OSError) as error:
                # What fails at once may do so for long. But an attempt that waited for others is
                # followed by the next: two parties that pause as long as they look never meet.
                waited = time.monotonic() - start > _SOON_SECONDS
                pause = _FIRST_PAUSE if waited else min(_LONGEST_PAUSE, 2 * pause)
                self._tell(error, pause)

    def _attempt(self) -> None:
        """Connects, and serves until a party leaves or a link breaks."""
        self._config = self._now()
        channels = self._connect()
        try:
            self._serve(channels)
        finally:
            self._end(channels)

    def _tell(self, error: VeilgraphError | OSError, pause: float) -> None:
        message = error.message if isinstance(error, VeilgraphError) else str(error.strerror)
        LOG.warning("%s", message)
        self.requests.close(PeerError(message, "The parties connect again: ask again."))
        self._leaves.wait(pause)

    def _end(self, channels: Mapping[int, Channel]) -> None:
        self.requests.close(PeerError("The parties are not connected.", "Ask again in a moment."))
        served, self._served = self._served, ()
        for channel in channels.values():
            channel.close()
        for each in served:
            each.close()

    # While links are up

    def _serve(self, channels: Mapping[int, Channel]) -> None:
        config = self._config
        patience = min(TURN_SECONDS, config.timeout_seconds), config.least_bytes_per_second
        links = links_over(channels, config.party, config.names, patience)
        self.counts.sessions += 1
        with links:
            while True:
                self._agree(links, channels)
                if self._turns(links, channels):
                    return

    def _agree(self, links: Links, channels: Mapping[int, Channel]) -> None:
        """Opens a session of each plan that all parties have, and closes those of others."""
        self._reloads.clear()
        models = {each.key: each for each in self._models}
        kept = {each.model.key: each for each in self._served}
        fresh = {key for key, old in kept.items() if _is_other(models.get(key), old.model)}
        common, self._ahead = _common(links, {key: key in fresh for key in models}, self._wanted)
        for key in models.keys() - common.keys():
            LOG.warning("%s is not served: not all parties have it", models[key].name)
        by_name = {self._config.names[peer]: each for peer, each in channels.items()}
        plans: list[ServedPlan] = []
        try:
            for key, is_fresh in common.items():
                model, old = models[key], None if is_fresh else kept.pop(key, None)
                plans.append(old or self._opened(model, by_name))
                LOG.info("%s is served", model.name)
        finally:  # whatever was opened is closed with the links, if they break here
            self._served = tuple(plans)
            for each in kept.values():
                each.close()
        if not self._leaves.is_set():
            self.requests.reopen()

    def _opened(self, model: Model, by_name: Mapping[str, Channel]) -> ServedPlan:
        return ServedPlan(model, self._config, by_name, self._secret, traces=self._traces)

    def _turns(self, links: Links, channels: Mapping[int, Channel]) -> bool:
        """Until plans change, or a party leaves: then True."""
        agenda = Agenda(self._asked(), [each.model.rows for each in self._served])
        assigned = dict[bytes, _Assigned]()
        pause = 0.0
        while True:
            self.requests.wait(channels.values(), min(pause, self.requests.wait_left()))
            decided = agenda.decide(self._exchange(links))
            did = self._do(decided, assigned)
            if decided.ends:
                return True
            if decided.changes:
                return False
            # What a peer sent with the end of a round may be read already, and wakes nobody: the
            # first turns after a busy one follow soon.
            pause = 0.001 if did else min(HEARTBEAT_SECONDS, max(0.001, 4 * pause))
            self._warn_daily()

    def _warn_daily(self) -> None:
        today = datetime.now(UTC).date()
        if today != self._warned:
            self._warned = today
            warn_of_ends(self._now())

    def _asked(self) -> list[int]:
        names = self._config.names
        computing = {n for each in self._served for n in each.plan.manifest.computing}
        return [names.index(name) for name in names if name in computing or not computing]

    def _exchange(self, links: Links) -> dict[int, Statement]:
        plans = {each.id: number for number, each in enumerate(self._served)}
        own = Statement(self.requests.items(plans), self._reloads.is_set(), self._leaves.is_set())
        received = {peer: bytearray(TURN_BYTES) for peer in links.sent_bytes}
        links.exchange(dict.fromkeys(received, own.pack()), received, "a turn of the service")
        found = {peer: Statement.unpack(bytes(content)) for peer, content in received.items()}
        return {**found, links.party: own}

    def _do(self, decided: Decisions, assigned: dict[bytes, _Assigned]) -> bool:
        for name in decided.ended:
            served, ahead = assigned.pop(name)
            served.forget(ahead)
        for item in decided.dropped:
            self.counts.dropped[self._plan(item).model.name] += 1
        gone = PeerError("Another party lost this client.", "Ask again.")
        self.requests.refuse(decided.dropped, gone)
        for name, batch in decided.due:
            self._run(batch, *assigned.pop(name))
        for batch in decided.assigned:
            assigned[batch.id] = self._assign(batch)
        for served, ahead in islice(assigned.values(), 1):  # while its clients mask their inputs
            served.complete(ahead)
        prepares = decided.is_idle and self._prepare()
        return bool(decided.dropped or decided.due or decided.assigned or prepares)

    def _assign(self, batch: Batch) -> _Assigned:
        served = self._plan(batch.items[0])
        ahead = served.take()
        masks, is_shared = served.masks(ahead), len(batch.items) > 1
        for item, row in batch.places:
            own = served.of_rows(masks, row, item.rows)
            self.requests.assign(item, ahead.prepared.number, row, own, is_shared=is_shared)
        return served, ahead

    def _run(self, batch: Batch, served: ServedPlan, ahead: Ahead) -> None:
        served.complete(ahead)
        start = time.perf_counter()
        given = ((row, item.rows, self.requests.given(item)) for item, row in batch.places)
        answer, transcript = served.run(ahead, served.put_together(given))
        for item, row in batch.places:
            self.requests.answer(item, served.of_rows(answer, row, item.rows), transcript)
        name, spent = served.model.name, time.perf_counter() - start
        self.counts.answered[name] += len(batch.items)
        self.counts.inferences[name] += 1
        self.counts.seconds[name] += spent
        self.counts.sent_bytes[name] += sum(map(_sent_bytes, transcript.phases.values()))
        _log(served, transcript, len(batch.items))
        if transcript.phases:  # none at a party that only deals
            requests = tuple(item.id for item in batch.items)
            self._ran(Ran(served, ahead.prepared.number, requests, transcript))

    def _plan(self, item: Item) -> ServedPlan:
        if item.plan >= len(self._served):
            raise SecurityAbort("A request is for a plan that is not served.", "")
        served = self._served[item.plan]
        if not 1 <= item.rows <= served.model.rows:
            raise SecurityAbort("A request is for more rows than its plan takes.", "")
        return served

    def _prepare(self) -> bool:
        """One inference of the plan that has the fewest ahead; False if all have enough."""
        lacking = [each for each in self._served if len(each.ahead) < self._ahead]
        if lacking:
            least = min(lacking, key=lambda each: len(each.ahead))
            _log(least, least.prepare())
        return bool(lacking)


def _log(served: ServedPlan, transcript: Transcript, requests: int = 0) -> None:
    """A line a phase that ran, for whatever collects logs."""
    if not LOG.isEnabledFor(logging.DEBUG):
        return
    for phase, record in transcript.phases.items():
        facts = {
            "model": served.model.name, "plan": served.plan.digest, "session": served.id.hex(),
            "phase": phase.name.lower(), "seconds": record.seconds,
            "sent_bytes": _sent_bytes(record), "network_seconds": record.network_seconds,
            "rounds": record.rounds, "requests": requests,
        }  # fmt: skip
        LOG.debug("%s, %s: %.3f s", facts["model"], facts["phase"], record.seconds, extra=facts)


def _sent_bytes(record: PhaseRecord) -> int:
    return sum(record.sent_bytes.values())


def _is_other(model: Model | None, old: Model) -> bool:
    """Whether this party has other weights now for what it serves."""
    return model is not None and model.source != old.source


def _common(links: Links, own: Mapping[bytes, bool], ahead: int) -> tuple[dict[bytes, bool], int]:
    """The models that all parties have, in one order; and how many inferences to have ahead.

    Args:
        own: keys of this party's models, and whether each has other weights than are served; the
            answer says whether one has at any party.
    """
    count = _COUNT.pack(len(own), ahead)
    received = {peer: bytearray(_COUNT.size) for peer in links.sent_bytes}
    links.exchange(dict.fromkeys(received, count), received, "how many plans are served")
    counts = {peer: _COUNT.unpack(content) for peer, content in received.items()}
    if any(plans > MOST_PLANS for plans, _ in counts.values()):
        raise SecurityAbort("A peer says that it serves too many plans.", "")
    stated = b"".join(_MODEL.pack(key, is_fresh) for key, is_fresh in own.items())
    lists = {peer: bytearray(_MODEL.size * plans) for peer, (plans, _) in counts.items()}
    links.exchange(dict.fromkeys(lists, stated), lists, "which plans are served")
    every = [dict(own), *(dict(_MODEL.iter_unpack(content)) for content in lists.values())]
    common = sorted(set.intersection(*(set(each) for each in every)))
    fresh = {key: any(each[key] for each in every) for key in common}
    return fresh, min([ahead, *(their for _, their in counts.values())])
