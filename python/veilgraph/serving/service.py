"""A party that serves plans to clients for as long as its process lives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from veilgraph.ir.errors import UsageError, VeilgraphError
from veilgraph.measuring.lateness import Lateness
from veilgraph.runtime.client.wire import ENROL, MAGIC
from veilgraph.runtime.links.tls import Channel
from veilgraph.runtime.service.audit import audit_of
from veilgraph.runtime.service.desk import Desk
from veilgraph.runtime.service.enrolled import Enrolled
from veilgraph.runtime.service.host import MOST_AHEAD, MOST_PLANS, Host
from veilgraph.runtime.service.requests import Request
from veilgraph.runtime.service.seat import members_of
from veilgraph.runtime.service.served import Model, Ran, ServedPlan
from veilgraph.runtime.service.watched import Watched
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.connect import connect, listen
from veilgraph.runtime.session.port import Port
from veilgraph.runtime.session.private_keys import load_private_key, secret_of
from veilgraph.runtime.session.setup import config_of
from veilgraph.runtime.transcript import Transcript
from veilgraph.serving.models import Weights, load_model, tls_transport
from veilgraph.serving.traces import Traces
from veilgraph.verification.receipts import receipt_of, signed

LOG = logging.getLogger("veilgraph.service")
PLAN, WEIGHTS = "model.plan", "model.weights"
WAIT_SECONDS, MOST_WAIT_SECONDS = 0.01, 10.0
_CONNECT_SECONDS = 5.0  # an attempt to reach all parties; so soon a party that is told to leaves


@dataclass(frozen=True)
class ModelFolder:
    """A model's version: `models/NAME/VERSION/`, with what `compile -o model.plan` wrote there."""

    name: str
    path: Path

    @property
    def plan(self) -> Path:
        return self.path / PLAN

    @property
    def changed(self) -> tuple[int, ...]:
        """Another when a file of the folder is."""
        stats = (file.stat() for file in sorted(self.path.iterdir()))
        return tuple(n for stat in stats for n in (stat.st_ino, stat.st_mtime_ns, stat.st_size))


def model_folders(models: Path) -> list[ModelFolder]:
    """Those of a folder of models, by name and version.

    Raises:
        UsageError: no such folder, or nothing in it.
    """
    if not models.is_dir():
        raise UsageError(f"There is no folder {models}.", "Give one with NAME/VERSION/model.plan.")
    plans = sorted(models.glob(f"*/*/{PLAN}"))
    found = [p for p in plans if p.parent.name.isdigit()]
    if not found:
        raise UsageError(
            f"{models} holds no model.",
            f"Put what `compile -o {PLAN}` wrote into {models}/NAME/1/.",
        )
    return [ModelFolder(f"{p.parent.parent.name}/{p.parent.name}", p.parent) for p in found]


def _enrolled(config: Config) -> Enrolled:
    """Who may ask; UsageError for a folder that can't be read."""
    found = Enrolled(config.clients, config.certificate, config.key)
    found.context()
    return found


class Service:
    """One party of a service; `run` serves until `leave`.

    Args:
        party: this party's name.
        config: path of its parties.yaml, whose `me.clients` names a folder of certificates that may
            ask.
        models: a folder with NAME/VERSION/model.plan, and beside each plan its owner's
            model.weights or this party's model.PARTY.shares.
        ahead: inferences of each plan to have prepared; the least that any party wants counts.
        wait_seconds: how long a request of fewer rows than its plan takes waits for others to share
            an inference with; the most that any party wants counts.
        device: where to compute; parties.yaml's if None.
        threads: that kernels may use.
        trust_author: don't verify plans before this party takes part.
        watch_port: of this host's loopback, where metrics, health and readiness are told; nowhere
            if None.
        traces: a folder for traces of the latest inferences; see `Traces`.

    Raises:
        UsageError: a file, a name or an option that makes no sense, a plan that can't be served, or
            a port that can't be had.
        SecurityAbort: a plan that does not do what it says, or that this party's configuration does
            not consent to.
    """

    def __init__(
        self,
        party: str,
        config: str | Path,
        models: str | Path,
        *,
        ahead: int = 2,
        wait_seconds: float = WAIT_SECONDS,
        device: str | None = None,
        threads: int = 1,
        trust_author: bool = False,
        watch_port: int | None = None,
        traces: str | Path | None = None,
    ) -> None:
        self._path, self._config = Path(config), config_of(config, party)
        self._device = device or self._config.device
        if not 0 <= ahead <= MOST_AHEAD:
            raise UsageError(
                f"{ahead} inferences can't be had ahead.", f"Give a number up to {MOST_AHEAD}."
            )
        if not 0 <= wait_seconds <= MOST_WAIT_SECONDS:
            raise UsageError(
                f"Requests can't wait {wait_seconds:g} s for others.",
                f"Give seconds up to {MOST_WAIT_SECONDS:g}.",
            )
        self._threads, self._trusts = threads, trust_author
        self._folder = Path(models)
        self._known: dict[tuple[str, tuple[int, ...]], Model] = {}
        self._transport = tls_transport()
        me = self._config
        self._secret = secret_of(me.key)
        self._late = Lateness()
        self._traces = None if traces is None else Traces(Path(traces), party)
        self._host = Host(
            lambda: self._config,
            self._connect,
            self._secret,
            self._models(),
            self._read_again,
            ahead,
            wait_seconds,
            self._ran,
            traces=traces is not None,
        )
        requests, self._audit = self._host.requests, audit_of(me)
        self._key = load_private_key(me.key)
        self._desk = Desk(
            party,
            _enrolled(me),
            requests,
            lambda: self._host.served,
            self._audit,
            receipt=self._receipt,
        )
        self._watched = None if watch_port is None else Watched(self._host, watch_port)
        self._port = Port(listen(me), {MAGIC: self._desk.take, ENROL: self._desk.enrol})

    def _receipt(self, served: ServedPlan, request: Request, began: datetime) -> str:
        """This party's word of an inference, for the client that it answered."""
        members, times = members_of(served.plan), (began, datetime.now(UTC))
        receipt = receipt_of(
            *(self._config.me.name, members, served.plan.digest, served.id, times),
            *(Transcript(), [request.record], request.id.hex()),
        )
        return signed(receipt, self._key).decode()

    def _ran(self, ran: Ran) -> None:
        self._late.ran(ran.served.model.name, ran.served.plan, ran.transcript)
        if self._traces is not None:
            self._traces.keep(ran)

    def _connect(self) -> Mapping[int, Channel]:
        seconds = min(_CONNECT_SECONDS, self._config.timeout_seconds)
        channels: Mapping[int, Channel] = connect(
            self._config, seconds, self._transport, port=self._port
        )
        return channels

    def _read_again(self) -> list[Model]:
        """The models of the folder, by what parties.yaml says now; without either, all as before.

        Raises:
            UsageError: what can't be read, or what a process keeps for as long as it lives.
        """
        before, known = self._config, self._known
        self._config = config_of(self._path, before.me.name)
        try:
            self._require_same(before)
            if (self._config.authors, self._config.consent) != (before.authors, before.consent):
                self._known = {}  # what was accepted is asked about again
            models, enrolled = self._models(), _enrolled(self._config)
        except (VeilgraphError, OSError):
            self._config, self._known = before, known
            raise
        self._desk.admit(enrolled, self._config.rows_a_day)
        return models

    def _require_same(self, before: Config) -> None:
        now = self._config
        kept = {
            "the names of parties": now.names != before.names,
            "me.state_dir": now.state_dir != before.state_dir,
            "me.listen": now.listen != before.listen,
            "this party's port": now.me.port != before.me.port,
            "me.device": (now.device, now.cubins) != (before.device, before.cubins),
            "this party's key": secret_of(now.key) != self._secret,
        }
        if changed := [what for what, is_other in kept.items() if is_other]:
            raise UsageError(
                f"{self._path} has another value for {' and '.join(changed)}.",
                "A running party keeps it: start it again.",
            )

    def _models(self) -> list[Model]:
        """What the folder holds now; what it held before is not read again."""
        found = {}
        for folder in model_folders(self._folder):
            key = folder.name, folder.changed
            found[key] = self._known.get(key) or self._opened(folder)
        models = list(found.values())
        if len(models) > MOST_PLANS or len({each.plan.manifest.computing for each in models}) > 1:
            raise UsageError(
                f"{self._folder} holds over {MOST_PLANS} models, or some that other parties "
                "compute than the rest.",
                "Give them to another service, with a port and a folder of its own.",
            )
        self._known = found
        return models

    def _opened(self, folder: ModelFolder) -> Model:
        weights = Weights(
            folder.path / WEIGHTS, folder.path / f"model.{self._config.me.name}.shares"
        )
        return load_model(
            folder.name, folder.plan, self._config, weights,
            device=self._device, threads=self._threads, trust_author=self._trusts,
        )  # fmt: skip

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return f"{self._config.listen}:{self._config.me.port}"

    def run(self) -> None:
        """Serves until another thread calls `leave`: a signal handler could wait for itself."""
        self._host.run()

    @property
    def served(self) -> tuple[str, ...]:
        """The models that are served now, as NAME/VERSION; none while a party is away."""
        return tuple(name for name in self._host.served if "/" in name)

    def leave(self) -> None:
        """Ends what is open, then this party's part."""
        self._host.leave()

    def reload(self) -> None:
        """Reads parties.yaml and the folder of models again; all parties do before models change.

        Certificates count for links that come up from then on, clients and all else at once.
        """
        self._host.reload()

    def close(self) -> None:
        """Lets go of the port, after `run` has ended."""
        self._port.close()
        self._audit.close()
        if self._watched is not None:
            self._watched.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
