"""The operations of the party level, each declared once with all that passes ask of it.

A pass asks an operation's facts (`node.op.keeps_zero`), or whether it is a certain one
(`node.op is ops.SEND`); it keeps no list of names. `PartyOp` has no defaults, so an operation that
leaves a question open is not made. What an operation computes is in ir/meaning/party.py.

Hosts that verify plans trust this table: a wrong row of `masking` lets a secret through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, partial
from types import MappingProxyType

from veilgraph.ir.party import rules
from veilgraph.ir.party.rules import Fits
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind


class Runs(Enum):
    """How a value comes to be where it is read."""

    LOADED = auto()  # in memory before any step runs
    REMADE = auto()  # element-wise, made again where it is read rather than stored
    FUSED = auto()  # element-wise: an instruction of a fused program
    SENT = auto()  # packed and unpacked by fused programs, moved by a link
    VIEW = auto()  # the memory of its operand, read otherwise
    STEP = auto()  # a step of its own, of a kernel
    READ = auto()  # read from memory when the run is over
    KEPT = auto()  # copied over what was there before, when nothing reads that any more


class Holds(Enum):
    """What a source holds, as a coalition of others sees it."""

    SECRET = auto()
    PUBLIC = auto()
    RANDOM = auto()  # uniform, and known to those who make it


@dataclass(frozen=True, slots=True)
class Masking:
    """How a value is read by what proves that messages and outputs leak nothing.

    Without any fact a value is opaque: a term of its own, which depends on all that its operands
    depend on.

    Attributes:
        holds: of a source alone.
        adds: how often each operand counts where words are read as a sum modulo 2^k.
        xors: how often each operand counts where bits, or words, are read as a sum modulo 2.
        passes: the value is its operand's.
        narrows: it is so where its type has no more bits than its operand's.
        scales: it is a multiple of one operand where the other is a public number.
        moves: its elements are those of its operands, or zeros, at places that are public.
        selects: it moves elements, and has each of its one operand's at most once.
        of_each: it is hidden where each of its operands is.
        of_bits: it consists of bits of its operand, and is hidden where the operand is masked.
        aligned_bits: bits of a mask in an output are no leak beside the same bits of the value.
        roots: it is pseudorandom to whoever lacks one of these two operands, each a draw that is
            read as a root and as nothing else, under a key that is the first operand.
        expands: the second operand is the root of one side, under a key that is the first; these
            operands, as many as there are, are its words, or their sections in order.
    """

    holds: Holds | None = None
    adds: tuple[int, ...] = ()
    xors: tuple[int, ...] = ()
    passes: bool = False
    narrows: bool = False
    scales: bool = False
    moves: bool = False
    selects: bool = False
    of_each: bool = False
    of_bits: bool = False
    aligned_bits: bool = False
    roots: tuple[int, ...] = ()
    expands: tuple[int, ...] = ()


OPAQUE = Masking()
SECRET, PUBLIC, RANDOM = (Masking(holds=each) for each in Holds)
BITS = Masking(of_bits=True, aligned_bits=True)
MOVED = Masking(moves=True, of_each=True)
SELECTED = Masking(moves=True, selects=True, of_each=True)


@dataclass(frozen=True, eq=False)
class PartyOp:
    """One operation of the party level.

    Two are equal if they are the same object. An operation is not its name: comparing it with one
    raises TypeError, as a check that never holds would be silent.

    Attributes:
        operands: how many; None for any number from one on.
        attributes: their names, and whether they are a number, numbers or a text.
        makes: kinds of value that its result may be.
        alike: its operands have its result's type.
        fits: whether operands fit a result; None where being alike, or element-wise, says it all.
            Where all have one shape, that of what may be fused looks at their types alone.
        phase: of a source that is always there in one, and of what is kept from one, whenever its
            operand is made; None for the latest of the operands'.
        runs: how its value comes to be.
        kernel: of the steps that make its value in memory; "" for none.
        early: a step that is scheduled as early as it can be: slow, or an end.
        keeps_zero: it makes a public zero of public zeros, and is then never computed.
        listed: which list of a party's plan has its tensors by name; "" for none.
        masking: how proofs of masking read it.
    """

    name: str
    operands: int | None
    attributes: Mapping[str, type]
    makes: frozenset[Kind]
    alike: bool
    fits: Fits | None
    phase: Phase | None
    runs: Runs
    kernel: str
    early: bool
    keeps_zero: bool
    listed: str
    masking: Masking

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            raise TypeError(f"an operation is compared with its declaration, not with {other!r}")
        return self is other

    def __str__(self) -> str:
        return self.name

    @cached_property
    def is_root(self) -> bool:
        """Whether programs are there for it; for all else, what depends on it decides."""
        return self.runs is Runs.READ or self.runs is Runs.KEPT

    @cached_property
    def is_part(self) -> bool:
        """Whether it is one of several parts of a secret, which lie with parties between runs."""
        return "part" in self.attributes

    @cached_property
    def elementwise(self) -> bool:
        """Whether element i of the result is made of elements i of the operands."""
        return self.runs is Runs.FUSED or self.runs is Runs.REMADE

    @cached_property
    def fusible(self) -> bool:
        """Whether it may be an instruction of a fused program."""
        return self.elementwise or self.runs is Runs.SENT


DECLARED = ("", "reveal")  # what a message may say of itself: nothing, or a part of an output
NONE: Mapping[str, type] = MappingProxyType({})
WORDS, PLANES, BLOCKS = (frozenset((kind,)) for kind in Kind)
NUMBERS = WORDS | PLANES
ANY = NUMBERS | BLOCKS

_unlisted = partial(PartyOp, listed="")

# Sources

_source = partial(PartyOp, operands=0, alike=True, fits=None, keeps_zero=False)
_loaded = partial(_source, makes=WORDS, runs=Runs.LOADED, kernel="")
_named = partial(_loaded, attributes={"name": str}, masking=SECRET)
INPUT = _named("input", phase=Phase.ONLINE, early=True, listed="inputs")
WEIGHT = _named("weight", phase=Phase.SETUP, early=False, listed="weights")
# A part of a weight, dealt before the session.
SHARE = _loaded(
    "share",
    attributes={"name": str, "part": int, "of": int},
    phase=Phase.SETUP,
    early=False,
    listed="shares",
    masking=SECRET,
)
# A part of a state, as the last run left it.
STATE = _loaded(
    "state",
    attributes={"name": str, "part": int, "of": int},
    phase=Phase.ONLINE,
    early=True,
    listed="states",
    masking=SECRET,
)
# A public tensor of the plan, by its number.
CONSTANT = _loaded(
    "constant",
    attributes={"number": int},
    phase=Phase.SETUP,
    early=False,
    listed="",
    masking=PUBLIC,
)
_remade = partial(_source, runs=Runs.REMADE, early=False, listed="")
# One public number for each element.
CONST = _remade(
    "const",
    attributes={"value": int},
    makes=NUMBERS,
    phase=Phase.SETUP,
    kernel="fill",
    masking=PUBLIC,
)
# Uniform randomness of those who hold a key, in the phase of the draw.
DRAW = _remade(
    "draw", attributes={"number": int}, makes=ANY, phase=None, kernel="fused", masking=RANDOM
)

# Element-wise

_fused = partial(_unlisted, phase=None, runs=Runs.FUSED, kernel="fused", early=False)
_alike = partial(_fused, alike=True, fits=None, attributes=NONE)
ADD = _alike("add", operands=2, makes=WORDS, keeps_zero=False, masking=Masking(adds=(1, 1)))
SUB = _alike("sub", operands=2, makes=WORDS, keeps_zero=False, masking=Masking(adds=(1, -1)))
NEG = _alike("neg", operands=1, makes=WORDS, keeps_zero=True, masking=Masking(adds=(-1,)))
MUL = _alike("mul", operands=2, makes=WORDS, keeps_zero=False, masking=Masking(scales=True))
AND = _alike("and", operands=2, makes=NUMBERS, keeps_zero=False, masking=OPAQUE)
XOR = _alike("xor", operands=2, makes=ANY, keeps_zero=False, masking=Masking(xors=(1, 1)))
NOT = _alike(
    "not",
    operands=1,
    makes=NUMBERS,
    keeps_zero=False,
    masking=Masking(of_each=True, of_bits=True, aligned_bits=True),
)
_shift = partial(_fused, operands=1, attributes={"bits": int}, makes=WORDS, alike=True)
SHL = _shift("shl", fits=rules.shift, keeps_zero=True, masking=Masking(aligned_bits=True))
SHR = _shift("shr", fits=rules.shift, keeps_zero=False, masking=BITS)
_other = partial(_fused, alike=False)
# Words of another width: the lower bits, or zeros above.
CAST = _other(
    "cast",
    operands=1,
    attributes=NONE,
    makes=WORDS,
    fits=rules.cast,
    keeps_zero=True,
    masking=Masking(narrows=True, of_bits=True, aligned_bits=True),
)
# The second operand where the first, one plane, is 1; else the third.
SELECT = _other(
    "select",
    operands=3,
    attributes=NONE,
    makes=WORDS,
    fits=rules.select,
    keeps_zero=False,
    masking=OPAQUE,
)
# Of a public vector of 2^j words, the second operand, the element at the first modulo 2^j. Its
# rule follows views, and is with the grammar (ir/party/legality.py).
LOOKUP = _other(
    "lookup",
    operands=2,
    attributes=NONE,
    makes=WORDS,
    fits=None,
    keeps_zero=False,
    masking=OPAQUE,
)
# Bits of words, from `low` on, as planes; and the words whose bits planes are.
PACK = _other(
    "pack",
    operands=1,
    attributes={"low": int},
    makes=PLANES,
    fits=rules.pack,
    keeps_zero=False,
    masking=BITS,
)
UNPACK = _other(
    "unpack",
    operands=1,
    attributes=NONE,
    makes=WORDS,
    fits=rules.unpack,
    keeps_zero=False,
    masking=BITS,
)
# Every `step`-th plane from `start` on; and planes one after another.
SOME_PLANES = _other(
    "planes",
    operands=1,
    attributes={"start": int, "step": int},
    makes=PLANES,
    fits=rules.some_planes,
    keeps_zero=True,
    masking=BITS,
)
STACK = _other(
    "stack",
    operands=None,
    attributes=NONE,
    makes=PLANES,
    fits=rules.stack,
    keeps_zero=False,
    masking=Masking(of_each=True),
)

# Views and layout

_layout = partial(_unlisted, phase=None, alike=True, early=False, keeps_zero=True)
_view = partial(_layout, operands=1, runs=Runs.VIEW, kernel="")
RESHAPE = _view(
    "reshape",
    attributes=NONE,
    makes=ANY,
    fits=rules.reshape,
    masking=Masking(passes=True, moves=True, selects=True, of_each=True),
)
CHUNK = _view(
    "chunk", attributes={"start": int}, makes=WORDS | BLOCKS, fits=rules.chunk, masking=SELECTED
)
# Each plane is padded in memory, so planes are never moved.
_copied = partial(_layout, runs=Runs.STEP, kernel="copy")
JOIN = _copied(
    "join", operands=None, attributes=NONE, makes=WORDS | BLOCKS, fits=rules.join, masking=MOVED
)
_moved = partial(_copied, makes=WORDS)
CONCAT = _moved("concat", operands=None, attributes={"axis": int}, fits=rules.concat, masking=MOVED)
TRANSPOSE = _moved(
    "transpose",
    operands=1,
    attributes={"permutation": tuple},
    fits=rules.transpose,
    masking=SELECTED,
)
# A step of zero has an element more than once: the sums of masks look (passes/party/sums.py).
SLICE = _moved(
    "slice",
    operands=1,
    attributes={"starts": tuple, "steps": tuple},
    fits=rules.take_slice,
    masking=SELECTED,
)
PAD = _moved(
    "pad",
    operands=1,
    attributes={"low": tuple, "high": tuple},
    fits=rules.pad,
    masking=MOVED,
)
BROADCAST = _moved("broadcast", operands=1, attributes=NONE, fits=rules.broadcast, masking=MOVED)

# Sums and products

_heavy = partial(
    PartyOp,
    makes=WORDS,
    alike=True,
    phase=None,
    runs=Runs.STEP,
    early=True,
    listed="",
    masking=OPAQUE,
)
_sum = partial(_heavy, operands=1, keeps_zero=True)
REDUCE_SUM = _sum(
    "reduce_sum", attributes={"axes": tuple}, fits=rules.reduce_sum, kernel="reduce_sum"
)
POOL_SUM = _sum(
    "pool_sum",
    attributes={"kernel": tuple, "strides": tuple, "pads_low": tuple},
    fits=rules.pool_sum,
    kernel="pool_sum",
)
# The sum over pairs of operands.
_product = partial(_heavy, operands=None, keeps_zero=False)
MATMUL = _product(
    "matmul",
    attributes=NONE,
    fits=rules.matmul,
    kernel="matmul",
)
CONV2D = _product(
    "conv2d",
    attributes={"strides": tuple, "pads_low": tuple, "dilations": tuple, "groups": int},
    fits=rules.conv2d,
    kernel="conv2d",
)

# Point functions: a row that is 1 at one place, as two trees of blocks (kernels/point)

# The correction words of each index: of a key that need not be secret, the roots of both parties
# and indices modulo 2^index_bits, for rows in a ring of `ring_bits`.
POINT_WORDS = PartyOp(
    "point_words",
    operands=4,
    attributes={"index_bits": int, "ring_bits": int},
    makes=BLOCKS,
    alike=False,
    fits=rules.point_words,
    phase=None,
    runs=Runs.STEP,
    kernel="point",
    early=True,
    keeps_zero=False,
    listed="",
    masking=Masking(roots=(1, 2)),
)
# The rows of the first party (side 0) or the second (1), of the key, its roots and the words. With
# a fourth operand c the number of place c - j is at place j.
POINT_ROWS = PartyOp(
    "point_rows",
    operands=None,
    attributes={"index_bits": int, "side": int},
    makes=WORDS,
    alike=False,
    fits=rules.point_rows,
    phase=None,
    runs=Runs.STEP,
    kernel="point",
    early=True,
    keeps_zero=False,
    listed="",
    masking=Masking(expands=(2,)),
)

# Comparison functions: payloads below a threshold, as two trees of blocks (kernels/compare)

# The correction words of each threshold: of a key that need not be secret, the roots of both
# parties, thresholds modulo 2^index_bits, and payloads, each in one of the rings.
COMPARE_WORDS = PartyOp(
    "compare_words",
    operands=None,
    attributes={"index_bits": int, "rings": tuple},
    makes=WORDS,
    alike=False,
    fits=rules.compare_words,
    phase=None,
    runs=Runs.STEP,
    kernel="compare",
    early=True,
    keeps_zero=False,
    listed="",
    masking=Masking(roots=(1, 2)),
)
# The parts of the first party (side 0) or the second (1) at public points: of the key, its roots,
# the points, and the sections of the words, that of seeds first, as they lie there.
COMPARE_PARTS = PartyOp(
    "compare_parts",
    operands=None,
    attributes={"index_bits": int, "rings": tuple, "side": int},
    makes=WORDS,
    alike=False,
    fits=rules.compare_parts,
    phase=None,
    runs=Runs.STEP,
    kernel="compare",
    early=True,
    keeps_zero=False,
    listed="",
    masking=Masking(expands=(3, 4, 5, 6)),
)

# Ends

_end = partial(PartyOp, operands=1, early=True, keeps_zero=False)
# What another party has; its node is at the receiver.
SEND = _end(
    "send",
    attributes={"declared": str, "number": int},
    phase=None,
    makes=ANY,
    alike=True,
    fits=rules.same_shape,
    runs=Runs.SENT,
    kernel="fused",
    listed="",
    masking=Masking(passes=True),
)
# A value for the user of its party. A copy makes one of a public tensor.
OUTPUT = _end(
    "output",
    attributes={"name": str, "frac_bits": int},
    phase=None,
    makes=WORDS,
    alike=True,
    fits=rules.same_shape,
    runs=Runs.READ,
    kernel="copy",
    listed="outputs",
    masking=OPAQUE,
)
# A part of a state for the next run, in memory of its own.
KEEP = _end(
    "keep",
    attributes={"name": str, "part": int, "of": int},
    phase=Phase.ONLINE,
    makes=WORDS,
    alike=True,
    fits=rules.same_shape,
    runs=Runs.KEPT,
    kernel="copy",
    listed="states",
    masking=OPAQUE,
)

ALL = tuple(each for each in tuple(vars().values()) if isinstance(each, PartyOp))
BY_NAME: Mapping[str, PartyOp] = MappingProxyType({op.name: op for op in ALL})
