"""Columns of text: each becomes the place of its category in a public table, at its owner.

    city ["Lima", "Oslo"]   ->  an integer column, 0 or 1
    OneHotEncoder, LabelEncoder, CategoryMapper of text  ->  of places

A column's table has the categories that nodes know of it, in the order of the first one; that of a
column that no node reads has none, and all text is the same there. Text that
is none of them has the place behind the last, if every node that reads the column says what it
makes of such text. What only moves columns moves places.

Where tables are secret, a column becomes the two halves of its text's hash. Encoders compare both
with those of their categories, which are weights:

    OneHotEncoder    [h = h_k] [h' = h'_k]     for each category k
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical.given_columns import Sources, Texts
from veilgraph.frontend.onnx.nodes import Steps, attributes_of, constants
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.table_options import Categories
from veilgraph.ir.plan.given import Given, halves_of

MOVES = (
    *("ArrayFeatureExtractor", "Concat", "Flatten", "Gather", "Identity", "Reshape"),
    *("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
)
ENCODERS = ("CategoryMapper", "LabelEncoder", "OneHotEncoder")
DEFAULTS = ("default_float", "default_int64", "default_tensor")
INT64 = TensorProto.INT64
ROW = 1 << 32  # behind it a source says its row, while it is found what a node moves
NO_ENCODER = Unsupported(
    "It reads text, and nothing encodes that.",
    "Encode it before, by a OneHotEncoder, OrdinalEncoder or TargetEncoder.",
)


def read_texts(
    model: ModelProto, shapes: Mapping[str, Sequence[int]], categories: Categories
) -> Texts:
    """Makes inputs of text ones of places or hashes, in place; names of nodes are unique.

    Args:
        shapes: of inputs that the model leaves open, by name.
        categories: whether tables may be public.

    Raises:
        UsageError: tables are to be secret, and text is given one by one.
    """
    graph, found = model.graph, Texts(categories=categories)
    named = [info for info in graph.input if info.type.tensor_type.elem_type == TensorProto.STRING]
    for info in named:
        width = _columns(info, shapes.get(info.name, ()))
        columns = [found.column(info.name, place) for place in range(width or 1)]
        found.sources[info.name] = np.array([columns] if width else columns)
    for node in graph.node if named else ():
        _read(node, model, found)
    gone = {info.name for info in graph.output} & found.sources.keys()
    told = {column for name in gone for column in found.sources[name].reshape(-1).tolist()}
    for info in named:
        columns = found.sources[info.name].reshape(-1).tolist()
        if not told.isdisjoint(columns):
            continue  # it stays text, and is refused as such
        info.type.tensor_type.elem_type = TensorProto.INT64
        if categories is Categories.SECRET:
            found.given[info.name] = _as_hashes(info, found.sources[info.name])
        else:
            found.given[info.name] = _given([(found.tables[c], found.others[c]) for c in columns])
    kept = [info for info in graph.value_info if info.name not in found.sources]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    return found


def _columns(info: ValueInfoProto, shape: Sequence[int]) -> int:
    """How many columns a table has; 0 of what is no table, whose text has one table."""
    extents = info.type.tensor_type.shape.dim
    widths = [dim.dim_value for dim in extents][1:] if len(extents) == 2 else []
    return max(0, shape[1] if len(shape) == 2 else next(iter(widths), 0))


def _as_hashes(info: ValueInfoProto, columns: Sources) -> Given:
    """The halves of hashes side by side; the input gets twice the columns."""
    if columns.ndim != 2:
        raise UsageError(
            f"Input `{info.name}` is no table, and its categories can't be secret.",
            "Give it two dimensions, [rows, columns], or leave --categories out.",
        )
    extent = info.type.tensor_type.shape.dim[1]
    if extent.dim_value:
        extent.dim_value = 2 * columns.shape[1]
    return Given(is_hashed=True)


def _given(columns: Sequence[tuple[Mapping[str, int], bool]]) -> Given:
    """By column; one table where all are alike."""
    tables = [tuple(table) for table, _ in columns]
    others = [other for _, other in columns]
    if len({*zip(tables, others, strict=True)}) == 1:
        tables, others = tables[:1], others[:1]
    return Given(tuple(tables), tuple(others))


def _read(node: NodeProto, model: ModelProto, found: Texts) -> None:
    """Notes what a node knows of text, or how it moves it."""
    texts = [name for name in node.input if name in found.sources]
    if not texts:
        return
    if node.op_type in ENCODERS:
        _add_categories(node, found)
    elif node.op_type == "Cast" and attributes_of(node).get("to") == TensorProto.STRING:
        node.op_type = "Identity"
        del node.attribute[:]
        found.sources[node.output[0]] = found.sources[texts[0]]
    else:
        places = moved(node, model, found.sources) if node.op_type in MOVES else None
        if places is None:
            found.refused[node.name] = NO_ENCODER
        else:
            found.sources |= places


def _add_categories(node: NodeProto, found: Texts) -> None:
    given = attributes_of(node)
    texts = categories_of(node)
    if texts is None:
        found.refused[node.name] = NO_ENCODER
        return
    says = any(name in given for name in DEFAULTS)
    if node.op_type == "OneHotEncoder":
        says = bool(given.get("zeros", 1))
    for column in set(found.sources[node.input[0]].reshape(-1).tolist()):
        table = found.tables[column]
        for text in texts:
            table.setdefault(text, len(table))
        found.others[column] &= says


def categories_of(node: NodeProto) -> list[str] | None:
    """The text that an encoder knows, in its order; None where it knows numbers."""
    given = attributes_of(node)
    for name in ("cats_strings", "keys_strings"):
        if given.get(name):
            return [_decoded(text) for text in given[name]]
    tensor = given.get("keys_tensor")
    if tensor is None or tensor.data_type != TensorProto.STRING:
        return None
    return [_decoded(text) for text in tensor.string_data]


def _decoded(text: Any) -> str:
    try:
        return text.decode() if isinstance(text, bytes) else str(text)
    except UnicodeDecodeError as error:
        raise UsageError(
            "A category of the model is no text in UTF-8.", "Export it again."
        ) from error


def moved(
    node: NodeProto, model: ModelProto, sources: Mapping[str, Sources]
) -> dict[str, Sources] | None:
    """Where a node puts columns, found by running it on two rows; None where it does not move them.

    Each row has its own mark, so that a node that mixes rows is known too.
    """
    literals = {t.name: t for t in model.graph.initializer} | dict(constants(model.graph))
    read = {name: sources[name] for name in node.input if name in sources}
    rest = [name for name in node.input if name and name not in sources]
    if any(name not in literals for name in rest):
        return None
    feeds = {n: np.concatenate([x, x + ROW]) for n, x in read.items()}
    infos = [helper.make_tensor_value_info(n, TensorProto.INT64, x.shape) for n, x in feeds.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    tensors = []
    for name in rest:
        tensor = TensorProto()
        tensor.CopyFrom(literals[name])
        tensor.name = name
        tensors.append(tensor)
    alone = helper.make_graph([node], "alone", infos, outputs, tensors)
    try:
        proto = helper.make_model(alone, opset_imports=model.opset_import)
        results = ReferenceEvaluator(proto).run(None, feeds)
    except Exception:  # whatever an operator raises on what it does not take
        return None
    found = {}
    for name, array in zip(node.output, results, strict=True):
        marks = np.asarray(array)
        if marks.dtype != np.int64 or not marks.ndim or len(marks) != 2:
            return None
        known = {int(each) for x in read.values() for each in x.reshape(-1)}
        if set(marks[0].reshape(-1).tolist()) - known or (marks[1] - marks[0] != ROW).any():
            return None
        found[name] = marks[:1]
    return found


def numbers_places(s: Steps, values: NDArray[Any]) -> bool:
    """Whether an encoder's numbers are the places that owners write, of text that it knows.

    That is public then: an OrdinalEncoder says no more than the table.
    """
    texts, known = s.facts.texts, categories_of(s.node)
    is_secret = texts.categories is Categories.SECRET
    if (
        is_secret
        or s.operand(0) not in texts.sources
        or not np.array_equal(values, np.arange(len(values)))
    ):
        return False
    columns = set(texts.sources[s.operand(0)].reshape(-1).tolist())
    return all(list(texts.tables[c]) == known and not texts.others[c] for c in columns)


def hits(s: Steps, categories: Sequence[str]) -> str:
    """1 where operand 0 of an encoder is a category, [..., categories]; integers of 0 and 1.

    Of one table it is the one-hot row of a place, which has a protocol of its own.
    """
    texts = s.facts.texts
    if texts.categories is Categories.SECRET:
        return _hits_of_hashes(s, categories)
    columns = texts.sources[s.operand(0)][0]
    tables = [texts.tables[column] for column in columns.reshape(-1).tolist()]
    wide = s.along("Unsqueeze", s.operand(0), -1)
    places = np.array([[table[text] for text in categories] for table in tables], np.int64)
    if (places != places[0]).any() or len({len(table) for table in tables}) > 1:
        known = places.reshape((1, *columns.shape, len(categories)))
        return s("Cast", s("Equal", wide, s.numbers(known, np.int64)), to=TensorProto.FLOAT)
    every = s.numbers(np.arange(len(tables[0])), np.int64)
    row = s("Cast", s("Equal", wide, every), to=TensorProto.FLOAT)
    if np.array_equal(places[0], np.arange(len(tables[0]))):
        return row
    return s("Gather", row, s.integers(*places[0].tolist()), axis=-1)


def _hits_of_hashes(s: Steps, categories: Sequence[str]) -> str:
    """As `hits`, by comparison with hashes, which are weights."""
    known = halves_of(categories)
    if "" in categories:
        raise Unsupported(
            "The empty text is one of its categories, and text is hashed.",
            "Name it, or leave --categories out.",
        )
    if len(set(zip(*map(np.ndarray.tolist, known), strict=True))) < len(set(categories)):
        raise Unsupported("Two of its categories have the same hash.", "Leave --categories out.")
    found: list[str] = []
    for half, hashes in zip(_halves(s), known, strict=True):
        weight = s("Cast", s.weight(hashes, f"hashes.{len(found)}", whole=True), to=INT64)
        found.append(s("Equal", s.along("Unsqueeze", half, -1), weight))
    return s("Cast", s("And", *found), to=TensorProto.FLOAT)


def _halves(s: Steps) -> Iterator[str]:
    """The first and the second halves of operand 0's hashes, from the inputs that they are of."""
    texts = s.facts.texts
    columns = texts.sources[s.operand(0)][0]
    places = [texts.places[column] for column in columns.reshape(-1).tolist()]
    widths = {name: texts.sources[name].shape[1] for name, _ in places}
    ends = np.cumsum([2 * width for width in widths.values()]).tolist()
    starts = dict(zip(widths, [0, *ends], strict=False))
    table = s("Concat", *widths, axis=1) if len(widths) > 1 else next(iter(widths))
    for half in (0, 1):
        at = [starts[name] + half * widths[name] + place for name, place in places]
        picked = s("Gather", table, s.integers(*at), axis=1)
        yield s.reshape(picked, (-1, *columns.shape))
