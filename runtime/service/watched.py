"""What a party of a service tells who watches it: numbers, never a value; on loopback alone.

/metrics is for Prometheus; /health answers 200 while the process lives, and /ready while links are
up and a plan is served, 503 else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.client.loopback import LoopbackServer
from veilgraph.runtime.service.host import Host

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Watched:
    """Answers until it is closed.

    Raises:
        UsageError: a port that can't be had, or no `prometheus_client` here.
    """

    def __init__(self, host: Host, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, generate_latest
        except ImportError as error:
            raise UsageError(
                "Watching a party needs the package prometheus_client, and it is not here.",
                "Install veilgraph[service], or leave out --watch-port.",
            ) from error
        registry = CollectorRegistry()
        registry.register(_Numbers(host))

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_ready = bool(host.served)
                content, code = {
                    "/metrics": (generate_latest(registry), 200),
                    "/health": (b"alive\n", 200),
                    "/ready": (
                        b"ready\n" if is_ready else b"not ready\n",
                        200 if is_ready else 503,
                    ),
                }.get(self.path, (b"no such page\n", 404))
                self.send_response(code)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: who watches asks every few seconds."""

        self._server = LoopbackServer(port, Answers, "--watch-port")
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Numbers:
    """The host's counts in Prometheus's form."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts = self._host.counts
        for name, says, by_model in (
            ("requests_answered", "Requests that were answered.", counts.answered),
            ("inferences", "Inferences that were run for them.", counts.inferences),
            ("requests_dropped", "Requests whose client was gone at a party.", counts.dropped),
            ("inference_seconds", "Seconds that inferences took.", counts.seconds),
            ("sent_bytes", "Bytes of the plan that this party sent online.", counts.sent_bytes),
        ):
            family = CounterMetricFamily(f"veilgraph_{name}", says, labels=["model"])
            _add(family, by_model)
            yield family
        yield CounterMetricFamily(
            "veilgraph_sessions", "Times that links came up.", counts.sessions
        )
        served = {name: each for name, each in self._host.served.items() if "/" in name}
        ahead = GaugeMetricFamily(
            "veilgraph_inferences_ahead", "Inferences that are prepared.", labels=["model"]
        )
        _add(ahead, {name: len(each.ahead) for name, each in served.items()})
        yield ahead
        until = GaugeMetricFamily(
            "veilgraph_certificate_end_seconds",
            "When the last certificate of a party ends, in seconds since 1970.",
            labels=["party"],
        )
        _add(until, {name: end.timestamp() for name, end in self._host.certificate_ends.items()})
        yield until
        yield GaugeMetricFamily("veilgraph_models", "Models that are served now.", len(served))


def _add(family: Metric, by_label: Mapping[str, float]) -> None:
    for label, value in dict(by_label).items():
        family.add_metric([label], value)  # type: ignore[attr-defined]
