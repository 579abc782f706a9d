"""The OpenSSL that native links call."""

from __future__ import annotations

import _ssl

from veilgraph.runtime._native import OpenSsl


def openssl() -> OpenSsl | str:
    """The OpenSSL that Python's `ssl` is linked with, or the reason why it can't be called."""
    path = getattr(_ssl, "__file__", None)
    if path is None:
        return "Python's OpenSSL is built into the interpreter"
    try:
        return OpenSsl(path)
    except RuntimeError as error:
        return str(error)
