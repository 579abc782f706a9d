"""Each operation of the graph and the secret level is asked each question that passes ask.

A class that is new and forgets an answer fails here, with the operation and the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from torch_mlir import ir

from veilgraph.ir.graph import ops as graph_ops
from veilgraph.ir.graph.facts import Arithmetic, Derivative, Facts
from veilgraph.ir.meaning import graph, onnx_runtime, secret
from veilgraph.ir.secret import function_forms
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.dialect import SecretOp
from veilgraph.ir.secret.facts import FACTS, Compares
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.secret.ops import COUNTERPARTS
from veilgraph.passes.encode import integer_parts
from veilgraph.passes.encode import rules as fixed_point_ops
from veilgraph.passes.graph import approximate
from veilgraph.passes.graph.derivatives.maxima import TREES
from veilgraph.passes.graph.derivatives.rules import RULES
from veilgraph.passes.ranges import value_ranges as reachable
from veilgraph.targets.functions import catalogue
from veilgraph.targets.suites import SUITES

Kind = type[ir.OpView]
OWN_SCALE = (Arithmetic.FUNCTION, Arithmetic.ROW_FUNCTION)  # several secret operations each
FUNCTIONS = {name.split()[0] for name in (*catalogue.FUNCTIONS, *catalogue.TURNING)}


def name_of(kind: Kind) -> str:
    return str(kind.OPERATION_NAME)


def own_facts(kind: Kind) -> object:
    """Of a class itself, or of the group that it belongs to; never those of another operation."""
    if kind is graph_ops.Concat:
        return graph_ops.CONCAT
    for base in kind.__mro__:
        if base is not kind and "OPERATION_NAME" in vars(base):
            return None
        if "facts" in vars(base):
            return vars(base)["facts"]
    return None


def is_encoded_how(kind: Kind) -> bool:
    arithmetic = graph_ops.facts_of_kind(kind).arithmetic
    return kind in fixed_point_ops.RULES or arithmetic in fixed_point_ops.RULES_BY_ARITHMETIC


# Of operations of these facts, in order: a question whose answer the next ones need comes first.
GRAPH: list[tuple[str, Callable[[Kind], bool], Callable[[Facts, Kind], bool]]] = [
    ("what does it compute (ir/meaning/graph.py)?", lambda k: k in graph.MEANING,
     lambda f, k: True),
    ("what is written in its place (passes/graph/approximate.py)?",
     lambda k: k in approximate.REWRITES,
     lambda f, k: f.arithmetic is Arithmetic.REWRITTEN and k is not graph_ops.BatchNorm),
    ("what is its derivative (passes/graph/derivatives)?", lambda k: k in RULES,
     lambda f, k: f.derivative is Derivative.RULE),
    ("which tree of maxima is it (passes/graph/derivatives/maxima.py)?", lambda k: k in TREES,
     lambda f, k: f.derivative is Derivative.MAXIMA),
    ("which ONNX node is it (onnx, or ir/meaning/onnx_runtime.py)?",
     lambda k: k in onnx_runtime.ROWS, lambda f, k: f.is_encoded),
    ("where can its result lie (passes/ranges/value_ranges.py)?", lambda k: k in reachable.RULES,
     lambda f, k: f.is_encoded),
    ("how is it encoded (passes/encode/rules.py)?", is_encoded_how,
     lambda f, k: f.is_encoded),
    ("which secret operation is it (ir/secret/ops.py)?", lambda k: k in COUNTERPARTS,
     lambda f, k: f.is_encoded and f.arithmetic not in OWN_SCALE
     and not issubclass(k, graph_ops.IntegerPart)),
    ("which steps is it (passes/encode/integer_parts.py)?",
     lambda k: k in integer_parts.INTEGER_PARTS,
     lambda f, k: issubclass(k, graph_ops.IntegerPart)),
    ("which real function is it (targets/functions/catalogue.py)?",
     lambda k: name_of(k).partition(".")[2] in FUNCTIONS,
     lambda f, k: f.arithmetic is Arithmetic.FUNCTION),
]  # fmt: skip


def unanswered(kind: Kind) -> Iterator[str]:
    """Sentences for the questions that an operation of the graph level has no answer to."""
    facts = own_facts(kind)
    if not isinstance(facts, Facts):
        yield f"{name_of(kind)} does not answer: what are its facts (ir/graph/ops.py)?"
        return
    for question, answers, is_asked in GRAPH:
        if is_asked(facts, kind) and not answers(kind):
            yield f"{name_of(kind)} does not answer: {question}"


def protocols_of(kind: type[SecretOp]) -> set[str]:
    """Its own, or those of the building blocks that real functions have."""
    if kind is secret_ops.Function:
        return set(function_forms.FUNCTION_FORMS)
    if kind is secret_ops.ClippedFunction:
        return {FourierSeries.block}
    if kind is secret_ops.RowSums:
        return set(function_forms.ROW_FORMS)
    return set() if kind is secret_ops.Constant else {name_of(kind).partition(".")[2]}


def unanswered_secret(kind: type[SecretOp]) -> Iterator[str]:
    name = name_of(kind).partition(".")[2]
    if name not in FACTS:
        yield f"{name_of(kind)} does not answer: what are its facts (ir/secret/facts.py)?"
        return
    if kind not in secret.MEANING:
        yield f"{name_of(kind)} does not answer: what does it compute (ir/meaning/secret.py)?"
    fields = {field for base in kind.__mro__ for field in vars(base).get("__annotations__", ())}
    compares = FACTS[name].compares is not Compares.NOTHING
    if compares != ({"window_bits", "dropped_bits"} <= fields):
        yield f"{name_of(kind)} does not answer: what does it compare (ir/secret/facts.py)?"
    if not protocols_of(kind) <= set(SUITES["cleartext"].protocols):
        yield f"{name_of(kind)} does not answer: which protocol is it (suites/cleartext.py)?"


@pytest.mark.parametrize("kind", graph_ops.OPERATIONS, ids=name_of)
def test_a_graph_operation_answers_each_question(kind: Kind) -> None:
    assert list(unanswered(kind)) == []


@pytest.mark.parametrize("kind", secret_ops.OPERATIONS, ids=name_of)
def test_a_secret_operation_answers_each_question(kind: type[SecretOp]) -> None:
    assert list(unanswered_secret(kind)) == []


def test_a_derivative_is_stated_once() -> None:
    """An operation without a derivative has no rule that nobody would call."""
    stated = {kind: graph_ops.facts_of_kind(kind).derivative for kind in graph_ops.OPERATIONS}
    assert set(RULES) == {kind for kind, fact in stated.items() if fact is Derivative.RULE}
    assert set(TREES) == {kind for kind, fact in stated.items() if fact is Derivative.MAXIMA}


def test_no_facts_are_of_nothing() -> None:
    assert {f"secret.{name}" for name in FACTS} == {name_of(k) for k in secret_ops.OPERATIONS}


def test_a_counterpart_compares_where_the_operation_does() -> None:
    for kind, counterpart in COUNTERPARTS.items():
        compares = counterpart.facts.compares is not Compares.NOTHING
        assert compares == graph_ops.facts_of_kind(kind).selects, name_of(kind)


class Forgotten:
    OPERATION_NAME = "graph.forgotten"


class Compared(Forgotten):
    OPERATION_NAME = "graph.compared"
    facts = graph_ops.Maximum.facts


class Inherited(Compared):
    OPERATION_NAME = "graph.inherited"


class Secret:
    OPERATION_NAME = "secret.forgotten"


def test_what_a_new_class_forgets_is_named() -> None:
    asked = [question.partition(" (")[0] for question, *_ in GRAPH]
    (sentence,) = unanswered(Forgotten)
    assert sentence == "graph.forgotten does not answer: what are its facts (ir/graph/ops.py)?"
    (sentence,) = unanswered(Inherited)
    assert sentence == "graph.inherited does not answer: what are its facts (ir/graph/ops.py)?"
    found = [sentence.removeprefix("graph.compared does not answer: ").partition(" (")[0]
             for sentence in unanswered(Compared)]  # fmt: skip
    needed = ("what does it compute", "what is its derivative", "which ONNX node is it",
              "where can its result lie", "which secret operation is it")  # fmt: skip
    assert found == [question for question in asked if question in needed]
    (sentence,) = unanswered_secret(Secret)
    assert "secret.forgotten does not answer: what are its facts" in sentence


def test_a_secret_operation_without_facts_is_no_class() -> None:
    with pytest.raises(AssertionError, match=r"secret\.forgotten has no row in ir/secret/facts"):
        type("Forgotten", (secret_ops.Unary,), {}, name="forgotten")
