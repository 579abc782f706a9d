"""Ensembles of decision trees as tensor operators: all trees at once, a level after another.

    answers     u = [x_f <= t]               each question once, whoever asks it
    level d     p_true = p b, p_false = p - p_true        1 where a row passes a node
    leaves      y = p W                                   one product for all trees

Where picking shared answers would take large public matrices, trees are completed: all have the
depth of the deepest, and each level stands in the order of the children of the one above.

Thresholds and leaves' weights are the model owner's. The structure everybody learns: which column
each node asks about, which nodes ask the same question, and where the leaves are. Where that is to
be secret (`Trees.SECRET`), trees are completed, and a matrix of the owner's picks columns:

    answers     u = [x S <= t]               S [columns, nodes], a single 1 in each column of it

A leaf above the last level stands in each place below itself, under nodes whose answer says
nothing. So the plan has the number of trees and the depth of the deepest, and no more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical.forest import (
    AGGREGATES,
    Forest,
    Integers,
    Question,
    completed,
    levels_below,
    numbers,
    read_named,
    read_numbered,
)
from veilgraph.frontend.onnx.classical.scores import (
    TRANSFORMS,
    OneScore,
    classified,
    transformed,
)
from veilgraph.frontend.onnx.nodes import Steps
from veilgraph.ir.graph.table_options import Trees

PUBLIC_STRUCTURE = (
    "the column that each node asks about, which nodes ask the same, and where leaves are"
)
# A question's kind, column, numbers, and whether it is answered yes where a number is missing.
Asked = tuple[int, int, tuple[float, ...], float]
UNLIKE = "Runtimes make different things of its scores."
MOST_HIDDEN = 1 << 20  # nodes above the leaves of trees whose structure is secret
FIRST_OF_AT_MOST = 12  # the default opset that has LessOrEqual
FIRST_OF_AXES = 18  # the one in which axes of extremes become an input


def classifier(s: Steps) -> list[NodeProto]:
    """TreeEnsembleClassifier: labels, and scores by class.

    What is accepted is what runtimes agree on and converters write: all classes scored, or class 0
    alone, whose score is the second of two classes'. Of two classes whose scores are opposite, as
    CatBoost writes them, the second says all.
    """
    classes = s.attribute("classlabels_int64s", []) or s.attribute("classlabels_strings", [])
    weights, base = numbers(s, "class_weights"), numbers(s, "base_values")
    if len(classes) == 2:
        opposite = _opposite(s, base)
        if opposite is not None:
            return classified(s, _aggregated(s, opposite, base, "SUM"), OneScore(0.0, shares=False))
        if set(s.attribute("class_ids", [])) != {0} or len(base) > 1:
            raise Unsupported(UNLIKE, "Convert it with one score for the two classes.")
        scores = _aggregated(s, read_named(s, "class", 1), base, "SUM")
        shares = bool((weights >= 0).all())
        if s.attribute("post_transform", "NONE") == "SOFTMAX":
            raise Unsupported(UNLIKE, "Convert it with LOGISTIC.")
        return classified(s, scores, OneScore(0.5 if shares else 0.0, shares))
    forest = read_named(s, "class", len(classes))
    if (weights < 0).any() and not len(base) and not _all_scored(s, len(classes)):
        raise Unsupported("Some rows get no score for a class, and scores may be negative.", "")
    return classified(s, _aggregated(s, forest, base, "SUM"))


def _opposite(s: Steps, base: NDArray[np.float32]) -> Forest | None:
    """The trees of the second of two classes, where the first one's score is minus that."""
    is_logistic = s.attribute("post_transform", "NONE") == "LOGISTIC"
    if set(s.attribute("class_ids", [])) != {0, 1} or len(base) or not is_logistic:
        return None
    forest = read_named(s, "class", 2)
    first, second = forest.weights.T
    return replace(forest, weights=forest.weights[:, 1:]) if (first == -second).all() else None


def _all_scored(s: Steps, classes: int) -> bool:
    """Whether each class has a tree whose leaves all add to it."""
    trees = s.attribute("nodes_treeids", [])
    modes = s.attribute("nodes_modes", [])
    leaves = Counter(tree for tree, mode in zip(trees, modes, strict=True) if mode == "LEAF")
    names = (s.attribute(f"class_{field}", []) for field in ("treeids", "nodeids", "ids"))
    added = Counter((tree, label) for tree, _, label in set(zip(*names, strict=True)))
    return {label for (tree, label), count in added.items() if count == leaves[tree]} == set(
        range(classes)
    )


def regressor(s: Steps) -> list[NodeProto]:
    """TreeEnsembleRegressor: sums, means or extremes of what the trees say."""
    targets, transform = s.attribute("n_targets", 1), s.attribute("post_transform", "NONE")
    if targets == 1 and transform != "NONE":
        raise Unsupported(UNLIKE, "Convert it with raw scores, and transform these.")
    forest = read_named(s, "target", targets)
    aggregate = s.attribute("aggregate_function", "SUM")
    scores = _aggregated(s, forest, numbers(s, "base_values"), aggregate)
    return s.finish(transformed(s, scores, transform))


def ensemble(s: Steps) -> list[NodeProto]:
    """TreeEnsemble, of version 5 on."""
    aggregate = AGGREGATES[s.attribute("aggregate_function", 1)]
    scores = _aggregated(s, read_numbered(s), np.zeros(0, np.float32), aggregate)
    return s.finish(transformed(s, scores, TRANSFORMS[s.attribute("post_transform", 0)]))


def _aggregated(s: Steps, forest: Forest, base: NDArray[np.float32], aggregate: str) -> str:
    """Scores, [rows, targets], before they are transformed."""
    trees = len(forest.roots)
    targets = forest.weights.shape[1]
    if len(base) not in (0, 1, targets):
        raise Unsupported(f"It has {len(base)} base values for {targets} targets.", "")
    if aggregate in ("MIN", "MAX"):
        return _extreme(s, forest, base, aggregate)
    weights, start = forest.weights, np.zeros(targets, np.float32)
    if aggregate == "AVERAGE":
        weights = (weights / np.float32(trees)).astype(np.float32)
    hides = s.facts.trees is Trees.SECRET
    columns, leaves = _hidden(s, forest) if hides else _reached(s, forest)
    for root in forest.roots:
        if root < 0 and not (hides and columns):  # else its leaf is among those of the others
            start += weights[~root]
    start += base if len(base) else 0
    if not columns:
        zeros = s("Mul", s.slice(s.operand(0), 1, 0, 1), s.numbers(0.0))
        return s("Add", zeros, s.weight(start[np.newaxis], "base"))
    reached = s("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]
    scores = s("MatMul", reached, s.weight(weights[np.concatenate(leaves)], "leaves"))
    return s("Add", scores, s.weight(start[np.newaxis], "base")) if start.any() else scores


def _hidden(s: Steps, forest: Forest) -> tuple[list[str], list[Integers]]:
    """As `_reached`, by nodes that tell nothing of the structure but the trees' greatest depth.

    Raises:
        Unsupported: trees that are too deep to be completed, or whose nodes ask unlike questions;
            or nobody knows how many columns there are.
    """
    if len(set(forest.questions)) > 1 or forest.sets:
        raise Unsupported("Its nodes ask unlike questions, and their structure is secret.", "")
    levels = levels_below(forest, forest.roots, MOST_HIDDEN)
    if levels is None:
        raise Unsupported(
            f"Its {len(forest.roots)} trees are too deep to hide their structure: completed, they "
            f"have more than {MOST_HIDDEN} nodes.",
            "Train it with a smaller depth, or leave --trees out.",
        )
    columns = s.facts.shapes.get(s.operand(0), (-1, 0))[-1]
    if columns <= forest.features.max(initial=-1):
        raise Unsupported(
            "How many columns its trees may ask about is not known, and which they do is secret.",
            "Give the model's input its number of columns.",
        )
    depth = len(levels) - 1
    trees = f"{len(forest.roots)} trees, the deepest of depth {depth}"
    s.facts.structures[s.node.name] = f"there are {trees}; their structure is secret"
    return _of_complete(s, forest, levels, columns) if depth else ([], [])


def _extreme(s: Steps, forest: Forest, base: NDArray[np.float32], aggregate: str) -> str:
    """The least or the largest of what trees say of one target, [rows, 1]."""
    if s.facts.trees is Trees.SECRET:
        raise Unsupported(
            f"It takes the {aggregate} over trees, and their structure is secret.",
            "Train it with sums or means, or leave --trees out.",
        )
    entries = s.attribute("target_treeids", None)
    if forest.weights.shape[1] > 1 or (entries and len(entries) != len(forest.weights)):
        raise Unsupported(
            f"It takes the {aggregate} over trees, and not all leaves have a weight for all "
            "targets.",
            "Train it with sums or means.",
        )
    columns, leaves = _reached(s, forest)
    said = np.zeros((len(forest.weights), len(forest.roots)), np.float32)
    for tree, root in enumerate(forest.roots):
        own = _leaves_below(forest, int(root))
        said[own, tree] = forest.weights[own, 0]
    single = [~root for root in forest.roots if root < 0]
    alone = said[single].sum(axis=0)[np.newaxis]
    if not columns:
        raise Unsupported("All of its trees are single leaves.", "Leave it out of the model.")
    reached = s("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]
    scores = s("MatMul", reached, s.weight(said[np.concatenate(leaves)], "leaves"))
    if alone.any():
        scores = s("Add", scores, s.weight(alone, "alone"))
    best = f"Reduce{aggregate.title()}"
    if s.facts.opset >= FIRST_OF_AXES:
        scores = s(best, scores, s.integers(1), keepdims=1)
    else:
        scores = s(best, scores, axes=[1], keepdims=1)
    return s("Add", scores, s.weight(base[np.newaxis], "base")) if len(base) else scores


def _leaves_below(forest: Forest, child: int) -> list[int]:
    """The leaves under a child, as numbers."""
    found, waiting = list[int](), [child]
    while waiting:
        node = waiting.pop()
        if node < 0:
            found.append(~node)
        else:
            waiting += [int(forest.true[node]), int(forest.false[node])]
    return found


def _reached(s: Steps, forest: Forest) -> tuple[list[str], list[Integers]]:
    """By level: 1 where a row ends in a leaf, [rows, leaves], and the leaves' numbers."""
    s.facts.structures[s.node.name] = PUBLIC_STRUCTURE
    nodes = np.array([root for root in forest.roots if root >= 0], np.int64)
    if not len(nodes):
        return [], []
    levels = completed(forest)
    if levels is not None:
        return _of_complete(s, forest, levels)
    answers, places = _answers(s, forest)
    passed = ""
    columns, leaves = [], []
    while len(nodes):
        both = _passed(s, passed, _picked(s, answers, places[nodes]))
        children = np.concatenate([forest.true[nodes], forest.false[nodes]])
        ends = np.flatnonzero(children < 0)
        if len(ends):
            columns.append(_picked(s, both, ends))
            leaves.append(~children[ends])
        inner = np.flatnonzero(children >= 0)
        nodes = children[inner]
        passed = _picked(s, both, inner) if len(inner) else ""
    return columns, leaves


def _passed(s: Steps, passed: str, answer: str) -> str:
    """1 where a row passes the true child of each node, then the false child of each."""
    true = s("Mul", passed, answer) if passed else answer
    return s("Concat", true, s("Sub", passed or s.numbers(1.0), true), axis=1)


def _of_complete(
    s: Steps, forest: Forest, levels: Sequence[Integers], hidden: int = 0
) -> tuple[list[str], list[Integers]]:
    """The same of levels that stand as the children of those above do: no node is picked.

    Args:
        hidden: how many columns there are, where it is secret which of them a node asks about.
    """
    *inner, leaves = levels
    nodes = np.maximum(np.concatenate(inner), 0)  # a leaf asks what nobody looks at
    if hidden:
        picks = np.equal.outer(np.arange(hidden), forest.features[nodes])
        matrix = s.weight(picks, "columns", whole=True)
        column = s("MatMul", s.operand(0), matrix)
    else:
        column = _picked(s, s.operand(0), forest.features[nodes])
    limits = s.weight(forest.thresholds[nodes][np.newaxis], "thresholds")
    answers = _asked(s, forest.questions[0], column, limits)
    flags = s.facts.missing.flags.get(s.operand(0), "")
    if flags:
        of = s("MatMul", flags, matrix) if hidden else _picked(s, flags, forest.features[nodes])
        answers = _where_missing(s, answers, of, forest.missing[nodes])
    passed, start = "", 0
    for level in inner:
        answer = s.slice(answers, 1, start, start + len(level))
        passed, start = _passed(s, passed, answer), start + len(level)
    return [passed], [~leaves]


def _answers(s: Steps, forest: Forest) -> tuple[str, Integers]:
    """1 where a row's answer is yes, [rows, questions], and the question of each node."""
    kinds, flags = list(Question), s.facts.missing.flags.get(s.operand(0), "")
    asked: list[Asked] = [
        (kinds.index(question), int(feature), limits, float(yes) if flags else 0.0)
        for question, feature, limits, yes in zip(
            forest.questions, forest.features, _limits(forest), forest.missing, strict=True
        )
    ]
    # By column, then as nodes stand: the order of thresholds is the owner's. Sets go by size.
    unique = sorted(
        dict.fromkeys(asked),
        key=lambda a: (a[0], len(a[2]) if kinds[a[0]] is Question.MEMBER else 0, a[1]),
    )
    number = {question: i for i, question in enumerate(unique)}
    parts = []
    for kind in kinds:
        of_kind = [question for question in unique if kinds[question[0]] == kind]
        if of_kind:
            features = np.array([feature for _, feature, _, _ in of_kind])
            if kind is Question.MEMBER:
                answer = _are_members(s, of_kind)
            else:
                limits = s.weight([[t for _, _, (t,), _ in of_kind]], f"thresholds.{kind.name}")
                answer = _asked(s, kind, _picked(s, s.operand(0), features), limits)
            if flags:
                yes = np.array([yes for _, _, _, yes in of_kind])
                answer = _where_missing(s, answer, _picked(s, flags, features), yes, kind.name)
            parts.append(answer)
    answers = s("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    return answers, np.array([number[question] for question in asked], np.int64)


def _limits(forest: Forest) -> list[tuple[float, ...]]:
    """The numbers that each node asks with."""
    return [forest.sets.get(i, (t,)) for i, t in enumerate(forest.thresholds.tolist())]


def _are_members(s: Steps, asked: Sequence[Asked]) -> str:
    """1 where a column is one of a node's numbers; nodes stand by how many these are.

    No two numbers of a set are equal, so the answers of all add up to that of the set.
    """
    pairs = list(dict.fromkeys((column, t) for _, column, limits, _ in asked for t in limits))
    at = {pair: place for place, pair in enumerate(pairs)}
    members = s.weight([[t for _, t in pairs]], "members")
    column = _picked(s, s.operand(0), np.array([column for column, _ in pairs]))
    equal = _asked(s, Question.EQUAL, column, members)
    parts = []
    for size in sorted({len(limits) for _, _, limits, _ in asked}):
        own = [(column, limits) for _, column, limits, _ in asked if len(limits) == size]
        places = np.array([[at[column, t] for t in limits] for column, limits in own])
        total = _picked(s, equal, places[:, 0])
        for i in range(1, size):
            total = s("Add", total, _picked(s, equal, places[:, i]))
        parts.append(total)
    return s("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]


def _where_missing(s: Steps, answers: str, flags: str, yes: NDArray[Any], kind: str = "all") -> str:
    """Other answers of rows whose number is missing: u + f (d - u)."""
    wanted = s.weight(yes[np.newaxis], f"missing.{kind}", whole=True)
    return s("Add", answers, s("Mul", flags, s("Sub", wanted, answers)))


def _asked(s: Steps, kind: Question, x: str, thresholds: str) -> str:
    if kind is Question.AT_MOST and s.facts.opset < FIRST_OF_AT_MOST:
        answer = s("Not", s("Greater", x, thresholds))
    else:
        operators = {
            Question.AT_MOST: "LessOrEqual",
            Question.BELOW: "Less",
            Question.EQUAL: "Equal",
        }
        answer = s(operators[kind], x, thresholds)
    return s("Cast", answer, to=TensorProto.FLOAT)


def _picked(s: Steps, x: str, columns: Integers) -> str:
    return s("Gather", x, s.integers(*columns.tolist()), axis=1)
