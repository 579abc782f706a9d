"""What native links say OpenSSL's functions and numbers are, held against its own headers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DECLARED = ROOT / "runtime" / "native" / "links" / "openssl.h"
NUMBERS = {
    "kPem": "SSL_FILETYPE_PEM",
    "kVerifyPeer": "SSL_VERIFY_PEER",
    "kFailWithoutCertificate": "SSL_VERIFY_FAIL_IF_NO_PEER_CERT",
    "kSetMode": "SSL_CTRL_MODE",
    "kSetReadAhead": "SSL_CTRL_SET_READ_AHEAD",
    "kSetLeastVersion": "SSL_CTRL_SET_MIN_PROTO_VERSION",
    "kPartialWrites": "SSL_MODE_ENABLE_PARTIAL_WRITE",
    "kMovingBuffers": "SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER",
    "kTls13": "TLS1_3_VERSION",
    "kWantRead": "SSL_ERROR_WANT_READ",
    "kWantWrite": "SSL_ERROR_WANT_WRITE",
    "kClosed": "SSL_ERROR_ZERO_RETURN",
    "kUpdateMine": "SSL_KEY_UPDATE_NOT_REQUESTED",
    "kFlush": "BIO_CTRL_FLUSH",
    "kSourceSink": "BIO_TYPE_SOURCE_SINK",
    "kRetryRead": "(BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)",
    "kRetryWrite": "(BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY)",
    "kRetryAny": "(BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY)",
    "kPartialChain": "X509_V_FLAG_PARTIAL_CHAIN",
}
# Opaque types differ in name: of two pointers nothing more is asked.
CHECKS = """
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <type_traits>
#include "runtime/native/links/openssl.h"

template <class A, class B>
constexpr bool alike = std::is_same_v<A, B> || (std::is_pointer_v<A> && std::is_pointer_v<B>);
template <class A, class B>
constexpr bool fits = false;
template <class R, class... A, class S, class... B>
constexpr bool fits<veil::Symbol<R(A...)>, S(B...)> = [] {
  if constexpr (sizeof...(A) != sizeof...(B)) return false;
  else return alike<R, S> && (alike<A, B> && ...);
}();
"""


def test_declarations_are_those_of_the_headers(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    text = DECLARED.read_text()
    symbols = re.findall(r"(\w+)\{\s*find\(\"(\w+)\"\)\}", text)
    assert len(symbols) == text.count('find("') > 40
    assert set(re.findall(r"\bk[A-Z]\w+", text)) == NUMBERS.keys()
    lines = [
        *(
            f"static_assert(fits<std::remove_const_t<decltype(veil::OpenSsl::{ours})>, "
            f'decltype({theirs})>, "{theirs}");'
            for ours, theirs in symbols
        ),
        *(
            f'static_assert(veil::OpenSsl::{ours} == {theirs}, "{ours}");'
            for ours, theirs in NUMBERS.items()
        ),
    ]
    source = tmp_path / "checks.cpp"
    source.write_text("#include <openssl/ssl.h>\n")
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT}", str(source)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no headers of OpenSSL")
    source.write_text("\n".join([CHECKS, *lines]))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
