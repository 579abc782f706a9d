"""Types of the native module; runtime/native/bindings.cpp is its source."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# Contiguous memory of any kind.
Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]

class Interpreter:
    """A party's memory and its table of steps, every step checked before anything runs.

    Args:
        library: path of a kernel library (`veilgraph.kernels.native.library`).
        steps: STEP records of veilgraph.ir.plan.tables; copied, as are the next four.
        buffers: BUFFER records.
        params: int64 parameters of the kernels.
        constants: the plan's public constants; read-only for kernels.
        arena_bytes: size of the party's memory, zeroed at first.
        keys: AES-128 keys, 16 bytes each.
        threads: that kernels may use, the caller's included.
        max_arena_bytes: larger arenas are refused.

    Raises:
        ValueError: a table, a buffer or a step is wrong; the message names it and says why.
        RuntimeError: `library` is no kernel library.
        MemoryError: the system does not have the memory.
    """

    def __init__(
        self,
        library: str,
        steps: Bytes,
        buffers: Bytes,
        params: Bytes,
        constants: Bytes,
        arena_bytes: int,
        keys: Bytes,
        threads: int = 1,
        *,
        max_arena_bytes: int = ...,
    ) -> None: ...
    def run(self, first: int, last: int, run: int) -> None:
        """Run the kernel steps [first, last) as inference number `run`, without Python's lock.

        Raises:
            ValueError: the steps do not exist, or one of them is a round.
            RuntimeError: a step failed (named with its kernel), or the interpreter is running.
        """

    def rekey(self, keys: Bytes) -> None:
        """Draw under these keys from here on; as many as the interpreter was made with.

        Raises:
            ValueError: another number of bytes.
            RuntimeError: the interpreter is running.
        """

    def wipe(self) -> None:
        """Overwrite the arena and all scratch memory with zeros."""

    def reset_profile(self) -> None: ...
    def trace(self) -> None:
        """From here on keep when each step ran."""

    def note(self, step: int, start: int, end: int) -> None:
        """A step that ran elsewhere, such as a round."""

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """Step, start and end (nanoseconds of `time.perf_counter_ns`) of each since `trace`."""

    def __len__(self) -> int:
        """The number of steps, rounds included."""

    @property
    def arena(self) -> npt.NDArray[np.uint8]:
        """The party's memory, writable; the view keeps the interpreter alive."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the library's kernels, in the order of their numbers."""

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        """Calls and nanoseconds by kernel, since the start or `reset_profile`."""

def check_program(
    library: str,
    steps: Bytes,
    buffers: Bytes,
    params: Bytes,
    arena_bytes: int,
    constants_bytes: int,
    keys: int,
) -> None:
    """The proof that `Interpreter` makes of every step, for memory of these sizes and these keys.

    Nothing of these sizes is allocated.

    Raises:
        ValueError, RuntimeError, MemoryError: as `Interpreter`.
    """

class OpenSsl:
    """The OpenSSL 3 that a shared library is linked with, such as Python's `_ssl`.

    Raises:
        RuntimeError: there is none, or another version.
    """

    def __init__(self, module: str) -> None: ...
    @property
    def version(self) -> str: ...

class TlsError(OSError):
    """One side can't prove who it is, or bytes are not those sent; the text is OpenSSL's reason."""

class TlsTerms:
    """TLS with who has the certificate `pinned` (DER); `certificate` and `key` are PEM files.

    Made once for all connections with a peer: to read a key takes longer than to begin with it.

    Args:
        dialed: the other side dials, so this one is TLS's server.

    Raises:
        TlsError: these are no certificate and key.
    """

    def __init__(
        self, openssl: OpenSsl, pinned: bytes, certificate: str, key: str, dialed: bool
    ) -> None: ...

class Stream:
    """A connected socket, which is its own from then on, with TLS 1.3 on it or without."""

    @staticmethod
    def plain(socket: int) -> Stream: ...
    @staticmethod
    def secured(terms: TlsTerms, socket: int, seconds: float, records_per_key: int) -> Stream:
        """With TLS: `shake_hands` comes next; a read that waits may take `seconds`."""

    def shake_hands(self) -> int:
        """Goes on with TLS's handshake without waiting.

        Returns:
            0 when it is done; else what the socket must be ready for: selectors.EVENT_READ or
            EVENT_WRITE.

        Raises:
            TlsError: one side can't prove who it is.
            OSError: the connection broke, or brought more than a handshake has.
        """

    def recv_now(self, count: int, /) -> bytes | None:
        """At most `count` bytes, none at the connection's end; None where nothing is there yet."""

    def sendall(self, content: bytes, /) -> None:
        """A few bytes, which must fit the socket's buffer."""

    def close(self) -> None: ...
    def fileno(self) -> int:
        """Of its socket, to wait for bytes with others; -1 once it is closed."""

    @property
    def protocol(self) -> str:
        """The version of TLS, or nothing."""

    @property
    def cipher(self) -> str:
        """TLS's name of the cipher suite, or nothing."""

def forward(near: int, far: int, delay_seconds: float, bytes_per_second: float) -> None:
    """Hands on what comes from a socket to another, later and slower, and the other way at once.

    Without Python's lock, until both have ended and all has arrived; owns both.
    """

class FaultKind(Enum):
    SILENT = ...
    LATE = ...
    CLOSED = ...
    BROKEN = ...
    CHANGED = ...
    STOPPED = ...
    UNEXPECTED = ...

class Fault:
    """Why a round came to no end.

    `peer` is on whose link it showed, `blamed` the party that was the reason, `reason` the system's
    or OpenSSL's words. Of an unexpected frame: its number and length, and those that were due.
    """

    kind: FaultKind
    peer: int
    blamed: int
    reason: str
    number: int
    bytes: int
    due_number: int
    due_bytes: int

class Links:
    """Rounds of messages over streams by peer, in a plan of so many parties.

    Links work in parallel where a message has `large_bytes`.
    """

    def __init__(self, streams: dict[int, Stream], parties: int, large_bytes: int) -> None: ...
    def exchange(
        self,
        sends: dict[int, Any],
        receives: dict[int, Any],
        patience: float,
        least_bytes_per_second: float,
    ) -> Fault | None:
        """One round, without Python's lock; what ended it early.

        A peer may be silent for `patience` seconds, and takes no longer for the round than that and
        its bytes at the least rate. Signals are seen to while it waits.
        """

    def stop(self, reason: int) -> None:
        """Closes, and tells each peer which party was the reason."""

    def close(self) -> None: ...
    def reset_counters(self) -> None: ...
    @property
    def sent_bytes(self) -> dict[int, int]: ...
    @property
    def received_bytes(self) -> dict[int, int]: ...
    @property
    def times(self) -> tuple[int, int, int]:
        """Nanoseconds of all links: waiting for bytes, handing them to the system, encrypting."""

class LongRound:
    """A round over links that begins before all is there that it sends, made once.

    Of a message, parts go in order, each once `release` was called with its number or more. After
    `begin` comes `finish` or `abandon`. All work without Python's lock.
    """

    def __init__(
        self, links: Links, sends: dict[int, list[tuple[Any, int]]], receives: dict[int, Any]
    ) -> None: ...
    def begin(self, patience: float, least_bytes_per_second: float) -> Fault | None:
        """Returns at once; peers have the time of `exchange` from the first wait on."""

    def release(self, due: int) -> bool:
        """False if the round has failed; `finish` says why."""

    def wait_for(self, peer: int, bytes: int) -> bool:
        """Until so many bytes of a peer's message are there; False if the round has failed."""

    def finish(self) -> Fault | None:
        """Until all is sent and received; what ended it early."""

    def abandon(self) -> None:
        """Ends it where it stands: the links are of no use afterwards."""

class Phase:
    """Ranges of kernel steps on an interpreter, with a round over links after each.

    Raises:
        ValueError: steps or messages that the interpreter or the links don't have.
    """

    def __init__(self, interpreter: Interpreter, links: Links) -> None: ...
    def add(
        self,
        first: int,
        last: int,
        sends: Sequence[tuple[int, int, int, int, int]],
        receives: Sequence[tuple[int, int, int, int, int]],
    ) -> None:
        """Kernel steps [first, last), then a round of messages, in pieces: see ir.plan.MESSAGE.

        Args:
            sends, receives: lists of peer, offset and length in the arena, step, elements.
        """

    def run(
        self, run: int, patience: float, least_bytes_per_second: float
    ) -> tuple[Fault | None, int, int, int]:
        """Run all, without Python's lock, as inference number `run`.

        Returns:
            What ended it early, the range it came to, rounds, and nanoseconds in links.
        """
