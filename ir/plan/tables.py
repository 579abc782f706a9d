"""The plan level: for each party one ordered table of steps, and what people want to know about it.

A party host that runs a plan needs this folder, `runtime/`, `kernels/` and little else; one that
verifies it first reads the party level too (`python/veilgraph/verification/verify.py`). A plan is
untrusted input: `ir/plan/file.py` checks it when it is read, and each kernel's own `check` proves
every step in bounds before anything runs. `plan.py` makes a plan of these tables.

Tables are flat, little-endian and memory-mappable. A step is a kernel call over buffers, or a
round: all messages that a party can send without receiving another; it sends, then receives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.given import PLAIN, Given
from veilgraph.ir.roles import ROLES, Role

FORMAT_VERSION = 7
MAX_RANK = 6
WEIGHTS = "weights"  # stands for all weights among the owners of inputs
PUBLIC = "public"  # in place of a party that owns the weights: they are constants of the plan
STATE = "state"  # in place of a party that owns an input: parties keep it as shares between runs
SHARED = "shared"  # in place of such a party: every party has shares of them in a file of its own
COMMON = "common"  # in place of an owner: all who compute give the same numbers, which are public
EACH = "each"  # in place of an owner: all who compute give numbers, which are parts of the input
# What a disclosure is of that says how many equal questions tell a weight, or that none do.
DERIVATIVES = "derivatives of outputs by hidden units"
NO_DERIVATIVES = "no derivative of an output by a hidden unit"
QUESTIONS = (DERIVATIVES, NO_DERIVATIVES)
CLIPS = "which clips of quantised tensors the samples reach"
REVEAL_AS = "reveal_as"  # an option of the manifest: what goes out in an output's place
TREES = "trees"  # an option of the manifest: whether the structure of trees is public
CATEGORIES = "categories"  # an option of the manifest: whether tables of text are public
LACKS = "lacks"  # an option of the manifest: whether numbers may be missing in some input
ROUND_BYTES = "round_bytes"  # an option of the manifest: what a link carries in a round's time
ROUND_TIME = "round_nanoseconds"  # an option of the manifest: that time
UNSAVED = "unsaved"  # an option of the manifest: states that no file holds, since runs give them
LABELS = "labels"  # an option of the manifest: what classes are called, by output
ONLY_ENTRY = "infer"  # of a plan of one model
AS_REVEALED = " as revealed"  # behind an output's name: the operation that rounds it
AS_KEPT = " as kept"  # behind a state's name: what brings its next value into its encoding
ROUND = 0xFFFF  # in place of a kernel's number: this step is a round
# Of a message, and of what the time of a round is worth: sums stay within 63 bits.
MOST_COUNTED_BYTES = 1 << 40
# A message from here on is large: it has its place in memory while steps still run, it moves
# meanwhile, and links that have one each work on a thread of their own.
LARGE_MESSAGE_BYTES = 1 << 20


class Pace(NamedTuple):
    """What the time of a round is worth, which decides what goes in which; nothing: none waits."""

    bytes: int = 0  # that a link carries in it
    nanoseconds: int = 0  # in which a party multiplies


STEP = np.dtype(
    [
        ("kernel", "<u2"),  # index into veilgraph.kernels.KERNELS, or ROUND
        ("phase", "u1"),  # Phase
        ("entry", "u1"),  # index into Manifest.entries; 0 in setup
        ("layer", "<u4"),  # index into Plan.layers
        ("first_buffer", "<u4"),
        ("buffer_count", "<u4"),
        ("first_param", "<u8"),
        ("param_count", "<u4"),
        (
            "round",
            "<u4",
        ),  # the round's number in its phase, counted from 0; for kernels: the next one
    ]
)

BUFFER = np.dtype(
    [
        ("offset", "<u8"),  # bytes from the start of its region
        ("region", "<u4"),  # Region
        ("kind", "<u4"),  # BufferKind
        ("bits", "<u4"),
        ("rank", "<u4"),
        ("shape", "<i8", (MAX_RANK,)),
        ("strides", "<i8", (MAX_RANK,)),
        ("reserved", "<u8"),
    ]
)

# A piece of a message. What a party sends a peer in a round is one message: its pieces, in order
# of rows. A piece may be sent when `step`, a fused one, has done its first `elements`
# elements, or all of them where that is 0; where `step` is the round itself, not before that. One
# that is received may be put in its place from `step` on: the first before the round, or the round.
MESSAGE = np.dtype(
    [
        ("phase", "u1"),
        ("direction", "u1"),  # Direction
        ("peer", "<u2"),
        ("round", "<u4"),
        ("offset", "<u8"),  # in the arena, a multiple of 8
        ("bytes", "<u8"),
        ("step", "<u4"),  # index into the party's steps
        ("entry", "<u4"),  # index into Manifest.entries; 0 in setup
        ("elements", "<u8"),
    ]
)

# A range of the arena that holds what a phase leaves for the phases after it, an online one for
# the next run: a part of a state.
KEPT = np.dtype(
    [
        ("phase", "u1"),
        ("entry", "u1"),  # index into Manifest.entries, of what an offline phase leaves
        ("reserved", "u1", (6,)),
        ("offset", "<u8"),
        ("bytes", "<u8"),
    ]
)
assert (STEP.itemsize, BUFFER.itemsize, MESSAGE.itemsize) == (32, 128, 40)


class Phase(IntEnum):
    """When a step runs: once a session, once an inference without its input, or with it."""

    SETUP = 0
    OFFLINE = 1
    ONLINE = 2


def rows_of(table: npt.NDArray[np.void], phase: int, entry: int) -> npt.NDArray[np.void]:
    """The steps, messages or kept ranges of a phase of an entry; setup is the same for all."""
    is_own = table["phase"] == phase
    own: npt.NDArray[np.void] = table[is_own & (table["entry"] == (entry if phase else 0))]
    return own


class Region(IntEnum):
    """What a buffer's offset counts from."""

    ARENA = 0
    CONSTANTS = 1


class BufferKind(IntEnum):
    """How a buffer's elements lie in memory; kernels/cpu/abi.h has the layout of each."""

    WORDS32 = 0
    WORDS64 = 1
    PACKED = 2
    PLANES = 3


class Direction(IntEnum):
    """Of a message, seen from the party whose table it is in."""

    SEND = 0
    RECEIVE = 1


@dataclass(frozen=True)
class Tensor:
    """A named input, weight or output of the program, as one party holds it in its arena.

    `shape` in elements; `ring_bits` and `frac_bits` of its encoding; `offset` in bytes; `low` and
    `high` bound the real values that its owner may give (infinite where nothing is declared);
    `entry` counts the plan's entries, and is 0 for weights and states, which are of all. An owner
    divides what it gives by 2^k, k of `column_exponents` by place along the last axis; none if
    empty. The bounds are of what is encoded then. `columns` are the names of the places of what is
    given, where they have some. `given` says how that becomes the numbers of `shape`.
    """

    name: str
    shape: tuple[int, ...]
    ring_bits: int
    frac_bits: int
    owner: str
    offset: int
    low: float = float("-inf")
    high: float = float("inf")
    entry: int = 0
    column_exponents: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    given: Given = PLAIN

    @property
    def given_shape(self) -> tuple[int, ...]:
        """The shape of what its owner gives."""
        return self.given.shape(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def divided(x: npt.NDArray[Any], exponents: Sequence[int]) -> npt.NDArray[Any]:
    """What an owner gives, over 2^k for k of `exponents` by place along the last axis."""
    if not len(exponents):
        return x
    return np.ldexp(np.asarray(x, np.float64), np.negative(exponents))


@dataclass(frozen=True)
class Share(Tensor):
    """Part `part` of `parts` of what no party knows: a weight, from a party's file, or a state.

    The parts' sum in Z_2^ring_bits is the encoded weight or state.
    """

    part: int = 0
    parts: int = 1

    @property
    def key(self) -> str:
        """Its name in the file; of no other share."""
        return f"{self.part}/{self.name}"


@dataclass(frozen=True)
class PartyPlan:
    """What one party executes: its tables, the kernels' parameters and the size of its arena.

    `kept` has a row for each range of memory that setup leaves for the session, or the offline
    phase for the online one, which is all that a store of prepared inferences holds; and for each
    part of a state, which an online phase leaves for the next run.
    """

    party: str
    steps: npt.NDArray[np.void]
    buffers: npt.NDArray[np.void]
    messages: npt.NDArray[np.void]
    params: npt.NDArray[np.int64]
    kept: npt.NDArray[np.void]
    arena_bytes: int
    keys: tuple[tuple[str, ...], ...]  # key number -> names of the parties that know it
    inputs: tuple[Tensor, ...] = ()
    weights: tuple[Tensor, ...] = ()
    shares: tuple[Share, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    states: tuple[Share, ...] = ()

    def buffers_of(self, step: np.void) -> npt.NDArray[np.void]:
        """The rows of the buffer table that a row of the step table names."""
        first, count = int(step["first_buffer"]), int(step["buffer_count"])
        return self.buffers[first : first + count]

    def params_of(self, step: np.void) -> npt.NDArray[np.int64]:
        """Its parameters."""
        first, count = int(step["first_param"]), int(step["param_count"])
        return self.params[first : first + count]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that is named."""
        return (*self.inputs, *self.weights, *self.shares, *self.outputs, *self.states)


@dataclass(frozen=True)
class Layer:
    """One op of the secret level, as `inspect` shows it.

    `name` is the model's own (an ONNX node); counts are of all parties together. `seconds` is not
    here: it depends on the network. What the next best choice of protocols would have taken more is
    of the network that the plan was compiled for. The range is rounded outward, to a power of two
    with both signs: the exact one says more of weights and samples than a party needs
    (`Plan.ranges`).
    """

    name: str
    op: str
    protocol: str = ""
    next_best: str = ""
    next_best_seconds: float = 0.0
    ring_bits: int = 0
    frac_bits: int = 0
    range_low: float = float("-inf")
    range_high: float = float("inf")
    range_source: str = ""  # "proven", "calibrated", "assumed"
    online_bits: int = 0
    offline_bits: int = 0
    multiply_adds: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Magnitudes:
    """How large a layer's values were on the samples.

    shares[i] of 256 of them have a magnitude in [2^(top-i-1), 2^(top-i)); the last of the shares is
    of all that are smaller, zeros too.
    """

    name: str
    top: int
    shares: tuple[int, ...]


@dataclass(frozen=True)
class Disclosure:
    """One thing that a party learns besides its outputs: a shape, a scale, a constant, a range."""

    what: str
    to: str
    why: str = ""


@dataclass(frozen=True)
class Manifest:
    """What the plan says to people; YAML in the file."""

    veilgraph_version: str
    lowering: (
        int  # version of what made the tables of the party-level program: passes/plan/lower.py
    )
    suite: str
    security: str
    parties: tuple[str, ...]
    roles: Mapping[str, str]  # of each party, a name of roles.ROLES
    owners: Mapping[str, str]
    receivers: Mapping[str, tuple[str, ...]]
    network: Mapping[str, object]  # name, bytes_per_second, round_trip_seconds
    ring_bits: int
    encoding: str  # how ranges were found, in a sentence
    states: Mapping[str, str] = field(default_factory=dict)  # to the output that each becomes
    entries: tuple[str, ...] = (ONLY_ENTRY,)
    disclosures: tuple[Disclosure, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    def role(self, party: str) -> Role:
        return ROLES[self.roles[party]]

    def named(self, role: Role) -> tuple[str, ...]:
        """The parties in a role."""
        return tuple(name for name in self.parties if self.role(name) == role)

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """What classes are called, by the output that holds their places, counted from 0."""
        stated = self.options.get(LABELS)
        known = stated if isinstance(stated, Mapping) else {}
        return {str(name): tuple(map(str, texts)) for name, texts in known.items()}

    @property
    def pace(self) -> Pace:
        """What the time of a round is worth, by which messages are put in rounds."""
        stated = (self.options.get(name) for name in (ROUND_BYTES, ROUND_TIME))
        found = (each if isinstance(each, int) else 0 for each in stated)
        return Pace(*(each if 0 <= each <= MOST_COUNTED_BYTES else 0 for each in found))

    @property
    def forms(self) -> dict[str, str]:
        """What is revealed in place of an output: `argmax`, by the output's name."""
        stated = self.options.get(REVEAL_AS)
        return dict(stated) if isinstance(stated, Mapping) else {}

    @property
    def computing(self) -> tuple[str, ...]:
        """The parties that hold parts of secrets."""
        return tuple(name for name in self.parties if self.role(name).computes)
