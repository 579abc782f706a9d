"""An HTTP server of this host alone, a thread a caller."""

from __future__ import annotations

import logging
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from veilgraph.ir.errors import UsageError

LOG = logging.getLogger("veilgraph.loopback")
LOOPBACK = "127.0.0.1"


class LoopbackServer(ThreadingHTTPServer):
    """Listens once it is made; answers in `serve_forever`, until `shutdown`.

    Args:
        port: of loopback; 0 for any that is free.
        answers: one conversation.
        option: of the command line, which names the port.

    Raises:
        UsageError: a port that can't be had.
    """

    daemon_threads = True

    def __init__(self, port: int, answers: type[BaseHTTPRequestHandler], option: str) -> None:
        try:
            super().__init__((LOOPBACK, port), answers)
        except OSError as error:
            raise UsageError(
                f"Port {port} of loopback can't be had: {error.strerror}.",
                f"Free it, or name another with {option}.",
            ) from error

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that left before its answer ends its own conversation, without a traceback."""
        error = sys.exception()
        if not isinstance(error, OSError):
            LOG.exception("a request could not be answered")
            return
        LOG.info("%s left before its answer: %s", client_address, error.strerror)
