"""A program's nodes as columns, a row a node, for passes that go through all of them.

A BERT-base has 230,000 nodes. Made and looked at one by one they take microseconds each, in every
pass; as columns a pass of NumPy or of native code takes nanoseconds. What repeats is a number in a
column and stands once in a list beside it: places, tensors (a shape with its type) and attributes.

    %7 = draw {number = 3} : words<32>[4] @bob offline 2
    op draw, place (1, OFFLINE, 0), tensor ((4,), words<32>), attributes (number), number 3, layer 2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import _native, ops
from veilgraph.ir.party._native import Alike
from veilgraph.ir.party.node import Node, Shape, stage_of
from veilgraph.ir.party.ops import PartyOp, Runs
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Type

Flags = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Place = tuple[int, Phase, int]  # a party, and a phase of an entry
Pairs = tuple[tuple[str, Any], ...]  # attributes by name

NUMBERS = {op: number for number, op in enumerate(ops.ALL)}
_VIEWS = np.array([op.runs is Runs.VIEW for op in ops.ALL])
_DRAW = NUMBERS[ops.DRAW]
_PHASES = tuple(Phase)
COUNTED = "number"  # the attribute that differs from node to node, and has a column of its own


@dataclass(frozen=True, eq=False)
class Columns:
    """The nodes of a program.

    Attributes:
        op: index into `ops.ALL`.
        place: index into `places`.
        tensor: index into `tensors`.
        attributes: index into `pairs`, where `number` is None.
        number: the value of attribute `number`; -1 for nodes without.
        layer: index into the program's layers.
        first: of each node where its operands begin in `args`, and the end of all.
        args: operands, by their nodes' rows.
    """

    op: npt.NDArray[np.uint8]
    place: Int32s
    tensor: Int32s
    attributes: Int32s
    number: Int64s
    layer: Int32s
    first: Int64s
    args: Int32s
    places: Sequence[Place]
    tensors: Sequence[tuple[Shape, Type]]
    pairs: Sequence[Pairs]

    @staticmethod
    def of(nodes: Sequence[Node]) -> Columns:
        """Of nodes that have been made one by one."""
        return Rows.of(nodes).columns()

    def __len__(self) -> int:
        return len(self.op)

    def node(self, row: int) -> Node:
        """The node of a row, made anew."""
        return self._maker.node(row)

    @cached_property
    def _maker(self) -> _native.NodeMaker:
        return _native.NodeMaker(
            Node,
            tuple(ops.ALL),
            tuple(self.places),
            tuple(self.tensors),
            tuple(self.pairs),
            COUNTED,
            self.op,
            self.place,
            self.tensor,
            self.attributes,
            self.number,
            self.layer,
            self.first,
            self.args,
        )

    def rows_of(self, *kinds: PartyOp) -> Int64s:
        """The rows of some operations, in order."""
        order, first = self._by_op
        numbers = sorted({NUMBERS[op] for op in kinds})
        found = [order[first[number] : first[number + 1]] for number in numbers]
        return np.sort(np.concatenate([np.zeros(0, np.int64), *found]))

    @cached_property
    def _by_op(self) -> tuple[Int64s, Int64s]:
        """Rows operation by operation, those of one in order; where each begins, and the end."""
        order = np.argsort(self.op, kind="stable")
        return order, np.searchsorted(self.op[order], np.arange(len(ops.ALL) + 1))

    def behind_views(self, rows: Int64s | Int32s) -> tuple[Int64s, Int64s]:
        """The nodes in whose memory nodes lie, and at which of its words."""
        base, at = self._behind_views
        return base[rows], at[rows]

    @cached_property
    def _behind_views(self) -> tuple[Int64s, Int64s]:
        starts = self.integers("start").reshape(-1)
        per_element = np.array([type.per_element for _, type in self.tensors], np.int64)
        views = np.flatnonzero(_VIEWS[self.op])
        base, at = np.arange(len(self), dtype=np.int64), np.zeros(len(self), np.int64)
        is_chunk = self.op[views] == NUMBERS[ops.CHUNK]
        at[views] = is_chunk * starts[self.attributes[views]] * per_element[self.tensor[views]]
        base[views] = self.args[self.first[views]]
        # Twice as far each time: a stranger's chain of views may be as long as the program.
        while not np.array_equal(further := base[base], base):
            base, at = further, at + at[base]
        return base, at

    @cached_property
    def party(self) -> Int32s:
        return self._of_place([party for party, _, _ in self.places])

    @cached_property
    def phase(self) -> Int32s:
        return self._of_place([phase for _, phase, _ in self.places])

    @cached_property
    def entry(self) -> Int32s:
        return self._of_place([entry for _, _, entry in self.places])

    @cached_property
    def stage(self) -> Int32s:
        """As `Node.stage`."""
        return self._of_place([stage_of(phase, entry) for _, phase, entry in self.places])

    def _of_place(self, values: Sequence[int]) -> Int32s:
        return np.array(values, np.int32).take(self.place) if len(self) else np.zeros(0, np.int32)

    @cached_property
    def kind(self) -> Int32s:
        """Of each node a number for the kind and the bits of its type."""
        numbers: dict[tuple[Any, ...], int] = {}
        kinds = [numbers.setdefault((t.kind, t.bits), len(numbers)) for _, t in self.tensors]
        return np.array(kinds, np.int32).take(self.tensor)

    @cached_property
    def steps(self) -> Int64s:
        """Of each node its elements as kernels count them: of blocks words of 64 bits."""
        each = [prod(shape) * type.per_element for shape, type in self.tensors]
        return np.array(each, np.int64).take(self.tensor)

    @cached_property
    def stored_bytes(self) -> Int64s:
        """Of each node in memory."""
        each = [type.stored_bytes(prod(shape)) for shape, type in self.tensors]
        return np.array(each, np.int64).take(self.tensor)

    @cached_property
    def message_bytes(self) -> Int64s:
        """Of each node on the wire."""
        each = [type.message_bytes(prod(shape)) for shape, type in self.tensors]
        return np.array(each, np.int64).take(self.tensor)

    def integers(self, *names: str) -> Int64s:
        """A row of each element of `pairs`: attributes of these names as signed words of 64 bits, 0
        for what is no number.
        """
        found = np.zeros((len(self.pairs), len(names)), np.int64)
        places = {name: place for place, name in enumerate(names)}
        for row, pairs in enumerate(self.pairs):
            for name, value in pairs:
                if name in places:
                    found[row, places[name]] = _word(value)
        return found

    def having(self, name: str, value: object) -> npt.NDArray[np.bool_]:
        """Of each node, whether its attribute of this name is that."""
        are = [dict(pairs).get(name) == value for pairs in self.pairs]
        return np.array(are, bool)[self.attributes]

    @cached_property
    def elements(self) -> Int64s:
        """Of each node."""
        return np.array([prod(shape) for shape, _ in self.tensors], np.int64).take(self.tensor)


def _word(value: object) -> int:
    """A number modulo 2^64, as a signed word; 0 for anything else."""
    if not isinstance(value, int):
        return 0
    found = value % (1 << 64)
    return found - (1 << 64) if found >> 63 else found


def counted(pairs: Pairs, number: int) -> Pairs:
    """Attributes with their `number`, where they have one."""
    if number < 0:
        return pairs
    return tuple([(name, number if name == COUNTED else value) for name, value in pairs])


def uncounted(attrs: Pairs) -> tuple[Pairs, int]:
    """Attributes without their `number`, and that; -1 where they have none."""
    for name, value in attrs:
        if name == COUNTED and type(value) is int and value >= 0:
            return tuple([(k, None if k == COUNTED else v) for k, v in attrs]), value
    return attrs, -1


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows, to be added again and again; columns as in `Columns`, but for these.

    Attributes:
        number: of draws and sends, as they are counted from the block's begin; -1 for others.
        ends: of each row where its operands end in `args`.
        args: operands, by their places in a table that is given for each addition.
    """

    op: npt.NDArray[np.uint8]
    place: Int32s
    tensor: Int32s
    attributes: Int32s
    number: Int64s
    ends: Int64s
    args: Int64s

    @property
    def columns(self) -> tuple[Any, ...]:
        """As native code has them."""
        numbers = self.number, self.ends, self.args
        return (self.op, self.place, self.tensor, self.attributes, *numbers)


class Rows(_native.Rows):
    """The nodes of a program that is being made: columns, and by what nodes are known (native).

    A large program has two million. As objects, each with a key of its own to find it by, they took
    twice as much memory.

    Attributes:
        constants: the public integers that rows are at every element.
    """

    def __init__(self) -> None:
        super().__init__()
        self.constants: dict[int, int] = {}
        self._pairs: list[Pairs] = []
        self._tensors: list[tuple[Shape, Type]] = []
        self._alike: dict[tuple[Any, ...], Alike] = {}
        self._of_type: dict[tuple[Any, ...], int] = {}
        self._of_pairs: dict[Pairs, int] = {}

    @staticmethod
    def of(nodes: Iterable[Node]) -> Rows:
        """Of nodes that have been made one by one, to be gone on with."""
        rows = Rows()
        for node in nodes:
            pairs, number = uncounted(node.attrs)
            alike = rows.alike(node.op, pairs, node.shape, node.type)
            rows.add(alike, node.party, node.args, node.phase, node.entry, node.layer, number)
            if node.op is ops.CONST:
                rows.constants[len(rows) - 1] = node["value"]
        return rows

    def alike(self, op: PartyOp, pairs: Pairs, shape: Shape, type: Type) -> Alike:
        """What nodes of these have in common, `number` being None; one is to be made next."""
        key = (op, pairs, shape, type.kind, type.bits)
        found = self._alike.get(key)
        if found is None:
            tensor = self._of_type.setdefault(key[2:], len(self._tensors))
            if tensor == len(self._tensors):
                self._tensors.append((shape, type))
            attributes = self._of_pairs.setdefault(pairs, len(self._pairs))
            if attributes == len(self._pairs):
                self._pairs.append(pairs)
            self._alike[key] = found = Alike(NUMBERS[op], tensor, attributes)
        return found

    def phases(self, first: int) -> Int32s:
        """Of the rows from `first` on."""
        of_places = np.array([phase for _, phase, _ in self.places()], np.int32)
        found: Int32s = of_places[self.arrays(first)[1]]
        return found

    def block(self, first: int, is_taken: npt.NDArray[np.bool_]) -> RowBlock:
        """Of the rows from `first` on those that are taken; operands are rows, numbers as here."""
        op, place, tensor, attributes, number, _, begins, args = self.arrays(first)
        lengths = np.diff(begins)
        return RowBlock(
            op[is_taken],
            place[is_taken],
            tensor[is_taken],
            attributes[is_taken],
            number[is_taken],
            np.cumsum(lengths[is_taken]),
            args[np.repeat(is_taken, lengths)].astype(np.int64),
        )

    def extend(self, block: RowBlock, at: Int64s, draws: int, sends: int, layer: int) -> None:
        """Adds a block's rows.

        Args:
            at: the rows of its operands, by their places.
            draws, sends: the numbers that its own begin with.
        """
        self.add_block(block.columns, at, _DRAW, draws, sends, layer)

    def columns(self) -> Columns:
        """A copy of what is there."""
        places = [(party, Phase(phase), entry) for party, phase, entry in self.places()]
        return Columns(*self.arrays(0), places, [*self._tensors], [*self._pairs])

    def node(self, row: int) -> Node:
        """The node of a row, made anew."""
        (op, tensor, attributes, number, layer), (party, phase, entry), args = self.row(row)
        shape, type = self._tensors[tensor]
        attrs = counted(self._pairs[attributes], number)
        kind = ops.ALL[op]
        return Node(row, kind, party, args, attrs, shape, type, _PHASES[phase], layer, entry)


class Nodes(MutableSequence[Node]):
    """The nodes of columns or of rows, each made when it is first looked at.

    They may be changed, as those of any program; columns are made again then.

    Attributes:
        growing: the rows that nodes are added to; None where none are.
    """

    def __init__(self, source: Columns | Rows) -> None:
        self._columns = source if isinstance(source, Columns) else None
        self.growing = source if isinstance(source, Rows) else None
        self._made: list[Node | None] = [None] * len(source)

    @property
    def columns(self) -> Columns:
        if self._columns is None or len(self._columns) < len(self):
            self._columns = Columns.of(self) if self.growing is None else self.growing.columns()
        return self._columns

    @property
    def rows(self) -> Rows:
        """To add to: columns are made again then."""
        if self.growing is None:
            self.growing = Rows.of(self)
        return self.growing

    def __len__(self) -> int:
        return len(self._made if self.growing is None else self.growing)

    @overload
    def __getitem__(self, at: int) -> Node: ...
    @overload
    def __getitem__(self, at: slice) -> MutableSequence[Node]: ...
    def __getitem__(self, at: Any) -> Any:
        if self.growing is not None:
            self._made += [None] * (len(self.growing) - len(self._made))
        node = self._made[at]
        return node if type(node) is Node else self._new(at)

    def _new(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        source = self._columns if self.growing is None else self.growing
        assert source is not None, "all nodes are made before any is changed"
        row = at if at >= 0 else at + len(self)
        self._made[row] = node = source.node(row)
        return node

    def __iter__(self) -> Iterator[Node]:
        if self.growing is not None:  # all at once: one by one each is looked for first
            new = self.growing.node
            self._made += [None] * (len(self.growing) - len(self._made))
            self._made = [node or new(row) for row, node in enumerate(self._made)]
        return (self[i] for i in range(len(self)))

    def _changed(self) -> list[Node | None]:
        """All nodes, made, to be changed."""
        self._made = [*self]
        self._columns = self.growing = None
        return self._made

    @overload
    def __setitem__(self, at: int, new: Node) -> None: ...
    @overload
    def __setitem__(self, at: slice, new: Iterable[Node]) -> None: ...
    def __setitem__(self, at: Any, new: Any) -> None:
        self._changed()[at] = new

    def __delitem__(self, at: int | slice) -> None:
        del self._changed()[at]

    def insert(self, at: int, new: Node) -> None:
        self._changed().insert(at, new)


def columns_of(nodes: Sequence[Node]) -> Columns:
    """Of a program's nodes; those of a text are columns already."""
    return nodes.columns if isinstance(nodes, Nodes) else Columns.of(nodes)


def nodes_of(nodes: Sequence[Node], *kinds: PartyOp) -> Iterator[Node]:
    """Those of some operations, in order."""
    if isinstance(nodes, Nodes):
        return (nodes[row] for row in nodes.columns.rows_of(*kinds).tolist())
    wanted = frozenset(kinds)
    return (node for node in nodes if node.op in wanted)
