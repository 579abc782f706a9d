"""Columns made ready for a model: scaled, normalised, encoded, picked, put together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, numpy_helper

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical.forest import numbers
from veilgraph.frontend.onnx.classical.texts import categories_of, hits, numbers_places
from veilgraph.frontend.onnx.nodes import Steps

NUMBERS = {"int64": TensorProto.INT64, "float": TensorProto.FLOAT}
MOST_WHOLE = 1 << 16  # integers below are computed with as such, larger ones as real numbers
MAKES_TEXT = "It makes text.", "Make numbers of it, and read them."


def scaler(s: Steps) -> list[NodeProto]:
    """Scaler: (x - offset) scale, by column."""
    x = _real(s, s.operand(0))
    offset, scale = numbers(s, "offset"), numbers(s, "scale")
    if offset.any():
        x = s("Sub", x, s.weight(offset, "offset"))
    if (scale != 1).any():
        x = s("Mul", x, s.weight(scale, "scale"))
    return s.finish(x)


def normalizer(s: Steps) -> list[NodeProto]:
    """Normalizer: each row over its largest number, the sum of its sizes, or its length."""
    x = _real(s, s.operand(0))
    kinds = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    size = s.along(kinds[s.attribute("norm", "MAX")], x, -1, keepdims=1)
    return s.finish(s("Div", x, size))


def imputer(s: Steps) -> list[NodeProto]:
    """Imputer: another number in place of the one that means missing.

    Where NaN means missing, inputs have flags; what a node computes is never missing. What takes
    its place was fitted, so it is the owner's; which number means missing everybody learns.
    """
    whole = s.attribute("imputed_value_int64s", [])
    missing = s.attribute(f"replaced_value_{'int64' if whole else 'float'}", 0)
    if np.isnan(missing):
        return _filled(s)
    dtype = np.int64 if whole else np.float32
    values = s.weight(whole or s.attribute("imputed_value_floats", []), "values", whole=bool(whole))
    if whole:
        values = s("Cast", values, to=TensorProto.INT64)
    x = s.operand(0)
    return s.finish(s("Where", s("Equal", x, s.numbers(missing, dtype)), values, x))


def _filled(s: Steps) -> list[NodeProto]:
    """Another number where one is missing."""
    x, flags = s.operand(0), s.facts.missing.flags.get(s.operand(0), "")
    if not flags:
        return s.finish(x)
    values = s.weight([s.attribute("imputed_value_floats", [])], "values")
    if x in s.facts.missing.zeros:
        return s.finish(s("Add", x, s("Mul", flags, values)))
    return s.finish(s("Add", x, s("Mul", flags, s("Sub", values, x))))


def binarizer(s: Steps) -> list[NodeProto]:
    """Binarizer: 1 above the threshold, 0 elsewhere."""
    limit = s.weight([s.attribute("threshold", 0.0)], "threshold")
    return s.finish(_real(s, s("Greater", _real(s, s.operand(0)), limit)))


def one_hot_encoder(s: Steps) -> list[NodeProto]:
    """OneHotEncoder: a column a category."""
    texts = s.attribute("cats_strings", [])
    if texts:
        return s.finish(_text_hits(s))
    x = s("Cast", s.operand(0), to=TensorProto.INT64)
    wide = s.along("Unsqueeze", x, -1)
    categories = s.attribute("cats_int64s", [])
    return s.finish(_real(s, s("Equal", wide, s.numbers(categories, np.int64))))


def label_encoder(s: Steps) -> list[NodeProto]:
    """LabelEncoder: a number in place of another, or of text; the default where it is no key."""
    values = _table(s, "values")
    kind = "int64" if values.dtype == np.int64 else "float"
    rest = np.asarray(s.attribute(f"default_{kind}", -1 if kind == "int64" else 0))
    given = s.attribute("default_tensor", None)
    if given is not None:
        rest = numpy_helper.to_array(given).reshape(())
    if categories_of(s.node) is not None:
        if numbers_places(s, values):
            return s.finish(s("Cast", s.operand(0), to=NUMBERS[kind]))
        return _looked_up(s, _text_hits(s), values, rest)
    keys = _table(s, "keys")
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        raise Unsupported("One of its keys means missing.", "Replace what is missing before it.")
    wide = s.along("Unsqueeze", s.operand(0), -1)
    hits = _real(s, s("Equal", wide, s.numbers(keys, keys.dtype.type)))
    return _looked_up(s, hits, values, rest)


def category_mapper(s: Steps) -> list[NodeProto]:
    """CategoryMapper: the number of a category of text."""
    if s.operand(0) not in s.facts.texts.sources:
        raise Unsupported(*MAKES_TEXT)
    rest = np.asarray(s.attribute("default_int64", -1))
    return _looked_up(s, _text_hits(s), np.asarray(s.attribute("cats_int64s", []), np.int64), rest)


def _text_hits(s: Steps) -> str:
    """Which category of the encoder the text of operand 0 is, [..., categories]."""
    categories = categories_of(s.node)
    if categories is None or s.operand(0) not in s.facts.texts.sources:
        raise Unsupported(
            "It encodes text, and reads no column of text.", "Encode columns as they are given."
        )
    return hits(s, categories)


def _looked_up(s: Steps, hits: str, values: NDArray[Any], rest: NDArray[Any]) -> list[NodeProto]:
    """The values at which `hits` is 1, the rest where it is nowhere."""
    is_whole = values.dtype == np.int64
    whole = is_whole and bool((np.abs([*values, rest]) < MOST_WHOLE).all())
    steps = s.weight((values - rest).astype(np.float32)[:, np.newaxis], "values", whole=whole)
    x = s("Add", s("MatMul", hits, steps), s.weight([[float(rest)]], "default", whole=whole))
    flat = s.along("Squeeze", x, -1)
    return s.finish(s("Cast", flat, to=TensorProto.INT64) if is_whole else flat)


def _table(s: Steps, what: str) -> NDArray[Any]:
    """The keys or values of a LabelEncoder, which are numbers."""
    for kind, dtype in (("int64s", np.int64), ("floats", np.float32)):
        given = s.attribute(f"{what}_{kind}", None)
        if given is not None:
            return np.asarray(given, dtype)
    tensor = s.attribute(f"{what}_tensor", None)
    if tensor is None or tensor.data_type == TensorProto.STRING:
        raise Unsupported(*MAKES_TEXT)
    array: NDArray[Any] = numpy_helper.to_array(tensor).reshape(-1)
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float32)


def feature_vectorizer(s: Steps) -> list[NodeProto]:
    """FeatureVectorizer: the columns of all operands side by side."""
    parts = [_real(s, name) for name in s.node.input]
    return s.finish(s("Concat", *parts, axis=1) if len(parts) > 1 else parts[0])


def array_feature_extractor(s: Steps) -> list[NodeProto]:
    """ArrayFeatureExtractor: columns by their places, or of a known row what is at them.

    A row that the place of a class picks from holds labels, which are public; of labels that are
    text the places go on. All other rows are the owner's, as the answers of the rows that a model
    was fitted on.
    """
    places = s.known(1)
    if places is not None:
        return s.finish(
            s("Gather", s.operand(0), s.integers(*places.reshape(-1).tolist()), axis=-1)
        )
    row, flat = s.known(0), s.reshape(s.operand(1), (-1,))
    if row is None or row.size != row.shape[-1]:
        return s.finish(s("Gather", s.operand(0), flat, axis=-1))
    numbers, flat = row.reshape(-1), s.reshape(s.operand(1), (1, -1))
    is_label, is_text = s.operand(1) in s.facts.classes, numbers.dtype.kind not in "if"
    if is_label and (is_text or np.array_equal(numbers, np.arange(len(numbers)))):
        return s.finish(flat)
    if is_text:
        raise Unsupported("It makes text that is no label.", MAKES_TEXT[1])
    if is_label and (numbers == np.round(numbers)).all():
        kind = np.float32 if numbers.dtype.kind == "f" else np.int64
        return s.finish(s("Gather", s.numbers(numbers, kind), flat, axis=0))
    found = s("Gather", s.weight(numbers, "row"), flat, axis=0)
    if numbers.dtype.kind == "i":  # such as the classes of rows that a model was fitted on
        found = s("Cast", s("Round", found), to=TensorProto.INT64)
    return s.finish(found)


def zip_map(s: Steps) -> list[NodeProto]:
    """ZipMap: the scores themselves, a column a class."""
    return s.finish(s.operand(0))


def _real(s: Steps, x: str) -> str:
    return s("Cast", x, to=TensorProto.FLOAT)
