"""Types of the native module; passes/native/bindings.cpp is its source."""

import numpy as np
import numpy.typing as npt

Facts = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.uint8]
Float32s = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

ROOT: int
EARLY: int
SEND: int
KEPT: int
VIEW: int
LOADED: int
REMADE: int
ELEMENTWISE: int
FUSIBLE: int
RESHAPE: int
CONST: int
DRAW: int
LOOKUP: int
CAST: int
SOME_PLANES: int
STACK: int

def live(facts: Facts, first: Int64s, args: Int32s) -> Flags:
    """Whether each node is a root, or one needs it.

    Raises:
        ValueError: columns that are not those of a program.
    """

def align_messages(
    facts: Facts,
    stages: Int32s,
    layers: Int32s,
    kinds: Int32s,
    parties: Int32s,
    bytes: Int64s,
    round_bytes: int,
    work: Int64s,
    before: Flags,
    first: Int64s,
    args: Int32s,
) -> tuple[Int64s, Flags]:
    """Of each send the place that it is not at before, as `batch_rounds` says places; and what
    goes before each node, of what may. `work` is what a link carries while a product is made.

    Raises:
        ValueError: columns that are not those of a program, or a round of no bytes.
    """

def batch_rounds(
    facts: Facts,
    parties: Int32s,
    stages: Int32s,
    wanted: Int64s,
    before: Flags,
    first: Int64s,
    args: Int32s,
) -> tuple[Flags, Int64s, Int64s]:
    """Whether each node is live; where it runs, a stage times 2^32 and the rounds of it that are
    over; and the rounds of each stage. A send is not there before the place that is wanted of it.
    `before` says of each node what goes before it: what its party sends meanwhile (1), and messages
    made of it no sooner than they are needed (2).

    Raises:
        ValueError: columns that are not those of a program.
        RuntimeError: a node that nothing needs in its stage.
    """

def fuse_local(
    facts: Facts,
    parties: Int32s,
    stages: Int32s,
    elements: Int64s,
    live: Flags,
    at: Int64s,
    first: Int64s,
    args: Int32s,
) -> tuple[Int32s, Int64s, Flags, Int64s, Int32s, Int64s, Int32s, Int32s, Int32s]:
    """The actions of all parties by party and place: party, place, and whether it is fused; its
    nodes and the nodes whose memory it reads, each as where lists begin and the lists one behind
    another. Then the nodes that lie in memory, and those of them that are read there as words.

    Raises:
        ValueError: columns that are not those of a program.
    """

def allocate(first: Int64s, last: Int64s, bytes: Int64s) -> tuple[Int64s, int]:
    """Offsets of blocks in one arena, which are given by their first time and there until their
    last, and the arena's bytes. The smallest free range that fits is taken.

    Raises:
        ValueError: blocks out of order, or larger than any arena.
    """

def forms_of(
    facts: Facts,
    parties: Int32s,
    stages: Int32s,
    elements: Int64s,
    ops: Int32s,
    kinds: Int32s,
    attributes: Int32s,
    tensors: Int32s,
    stored: Flags,
    unpacked: Flags,
    first: Int64s,
    args: Int32s,
    party: Int32s,
    at: Int64s,
    begins: Int64s,
    nodes: Int32s,
) -> tuple[Int32s, Int64s, Int32s, list[bytes]]:
    """The form of each fused action, by a number, and its nodes in the order in which the form
    meets them, as where lists begin and the lists one behind another. Of each form all that it
    says, which is the same for another program where kinds, attributes and tensors have the same
    numbers there.

    Args:
        kinds: of each node a number for kind and bits of its type.
        party: of each action, as are the three behind it; its nodes are nodes[begins[i] : ...].

    Raises:
        ValueError: columns that are not those of a program.
    """

def fused_code(
    facts: Facts,
    parties: Int32s,
    stages: Int32s,
    elements: Int64s,
    ops: Flags,
    tensors: Int32s,
    attributes: Int32s,
    numbers: Int64s,
    keys: Int32s,
    stored: Flags,
    unpacked: Flags,
    first: Int64s,
    args: Int32s,
    opcodes: Int64s,
    types: Int64s,
    attributed: Int64s,
    repeats: Int64s,
    party: Int32s,
    at: Int64s,
    begins: Int64s,
    nodes: Int32s,
) -> list[tuple[Int64s, Int32s, Flags, Int64s, Int32s]]:
    """The fused program of each action: parameters, the nodes of its streams, whether these are
    messages, the instructions that draw, and the nodes that they make.

    Args:
        keys: of each node that draws the number of its key at its party.
        opcodes: by operation: on words, with a constant, on bits; 0 where there is none.
        types: by tensor: whether planes, bits, those stored, those of a word, words an element.
        attributed: by attributes: value, bits, low, start, step.
        repeats: a tensor, that as which it is read, repetition and period, in order.
        party: of each action, as are the three behind it; its nodes are nodes[begins[i] : ...].

    Raises:
        ValueError: columns that are not those of a program, what no instruction does, or more
            registers than a kernel has.
    """

def reached(start: Flags, closed: Flags, first: Int64s, args: Int32s) -> Flags:
    """The nodes that are computed from those of `start`, these too, through none of `closed`.

    Raises:
        ValueError: columns that are not those of a program.
    """

class Dependencies:
    """Of each node the set of sources that it is computed from.

    Args:
        source: of each node the number of what it is itself, less than `size`; -1 for none.
        most_words: of 64 sources, that all sets together may take.

    Raises:
        ValueError: columns that are not those of a program, or sets that take more words.
        IndexError: of the methods: there is no such node.
    """

    def __init__(
        self, source: Int32s, size: int, first: Int64s, args: Int32s, most_words: int
    ) -> None: ...
    def has(self, node: int, source: int) -> bool: ...
    def is_empty(self, node: int) -> bool: ...
    def words(self, node: int) -> npt.NDArray[np.uint64]:
        """The set of a node: bit i of word j is source 64 j + i."""

    def have_order(self, nodes: Int32s, first: Int64s, witnesses: Int32s) -> bool:
        """Whether these nodes have an order in which each has a witness, one of its own sources,
        that is in none before it. Those of node i are witnesses[first[i] : first[i + 1]]. False
        too where that would take long to find out.
        """

class Sums:
    """The values of a program as sums: passes/party/sums.py.

    Args:
        is_same: of each node whether it is its operand, passed on or reduced to fewer bits.
        same, same_here: the first nodes behind those, through messages or not.
        signs: by operation: how often two operands are added, and XORed, and whether it scales.
        types: by tensor: a number for its type, one for its kind, whether words, or planes; bits.
        values: by attributes: of constants, as signed words.
        most: looks at nodes for a sum; what is deeper is a term as it is.

    Raises:
        ValueError: columns that are not those of a program.
        IndexError: of the methods: there is no such node.
    """

    def __init__(
        self,
        facts: Facts,
        ops: Flags,
        tensors: Int32s,
        attributes: Int32s,
        numbers: Int64s,
        elements: Int64s,
        is_same: Flags,
        same: Int32s,
        same_here: Int32s,
        first: Int64s,
        args: Int32s,
        signs: Int64s,
        types: Int64s,
        values: Int64s,
        most: int,
    ) -> None: ...
    def of(self, start: int, behind_messages: bool) -> tuple[dict[int, int], bool]:
        """Terms and how often each is added, modulo 2^64, and whether by XOR. A draw goes by minus
        its number, minus one; all else by its node.
        """

    def scaled(self, row: int) -> tuple[int, int] | None:
        """What a node is a public multiple of, and how often."""

ROOTS: int
PUBLIC: int
OF_EACH: int
PHASES: int

class View:
    """What a coalition sees: passes/party/verify_masking.py.

    Args:
        is_hidden: of each draw whether the coalition does not know it.
        bits: of each draw its number among the sources of `depends`.
        makers: of each draw a node that makes it; -1 where none does.
        phases: of each node.
        selected: of each node the first one behind sections.
        passed, whole, masked: of each node the first one behind what passes a value on; behind
            sections and bits too; behind bits and what passes a value on.
        hides: of each operation the sum of ROOTS, if its result is words of trees, PUBLIC, and
            OF_EACH, if it is hidden where each of its operands is.

    Raises:
        ValueError: columns that are not those of the program of the sums.
    """

    def __init__(
        self,
        sums: Sums,
        depends: Dependencies,
        is_hidden: Flags,
        bits: Int32s,
        makers: Int32s,
        phases: Int32s,
        selected: Int32s,
        passed: Int32s,
        whole: Int32s,
        masked: Int32s,
        hides: Flags,
    ) -> None: ...
    def claims(
        self, messages: Int64s, keys: Int64s, first: Int64s, draws: Int32s
    ) -> tuple[Int32s, Int32s, Int64s, Int32s]:
        """What messages carry, each thing once: the first message that does, the node whose value
        it is, and the numbers of hidden draws that such a value has an odd number of times, whole,
        and in no other term of its sum: those of thing i from the third array's element i on.

        Args:
            keys: PHASES times a row that is words of trees, and a phase, in ascending order.
            first, draws: hidden roots of those, as of words that are sent in that phase.

        Raises:
            ValueError: there is no such node or draw.
        """

def extremes(values: Float32s) -> tuple[float, float]:
    """The least and the largest; infinity and -infinity of none. One of them is no number if a
    value is none.
    """

def magnitudes(values: Float32s) -> tuple[tuple[float, float], Int64s]:
    """The `extremes`, and how many have each biased exponent [256], zeros left out."""

class Paths:
    """The longest path of a graph whose ops have options: passes/secret/protocols/problem.py.

    Args:
        first: op i reads the ops before[first[i] : first[i + 1]], which come before it.
        first_option: where the options of each op begin, and their number.
        waits: of each option parties x parties rounds, one behind another: from what party i has of
            its operands to what party j has of its result, row i and column j.

    Raises:
        ValueError: columns that are those of no such graph; of the methods, options that an op does
            not have.
    """

    def __init__(
        self, first: Int64s, before: Int32s, parties: int, first_option: Int64s, waits: Int64s
    ) -> None: ...
    def rounds(self, choices: Int64s) -> Int64s:
        """Of the longest path, for each row of choices, one behind another."""

    def changed(self, choice: Int64s, first: Int64s, ops: Int32s, numbers: Int64s) -> Int64s:
        """Of the longest path after each change of one choice: change i gives each of the ops
        ops[first[i] : first[i + 1]], one or more in ascending order, its option of `numbers`.
        """
