"""Ensembles of decision trees, read from the attributes of ONNX nodes.

All versions of ai.onnx.ml give the nodes of all trees as parallel arrays. Up to version 3 a node is
named by its tree and a number in it, and leaves are nodes among the others; from version 5 on,
children are positions, and leaves have arrays of their own. `Forest` holds both the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.load import NOT_A_MODEL
from veilgraph.frontend.onnx.nodes import Steps
from veilgraph.ir.errors import UsageError

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

MOST_PICKED = 1 << 20  # elements of matrices that pick nodes' answers
MOST_PADDED = 4  # times the nodes that there are, in complete trees
NO_LEAVES = "Its trees have nodes, and no leaf."


class Question(Enum):
    """What an inner node asks of a column x, with its threshold t."""

    AT_MOST = "x <= t"
    BELOW = "x < t"
    EQUAL = "x = t"
    MEMBER = "x is one of several t"


# By a node's mode: what it asks, and whether its children swap, as the mode is the contrary.
MODES: Mapping[str, tuple[Question, bool]] = {
    "BRANCH_LEQ": (Question.AT_MOST, False),
    "BRANCH_LT": (Question.BELOW, False),
    "BRANCH_GTE": (Question.BELOW, True),
    "BRANCH_GT": (Question.AT_MOST, True),
    "BRANCH_EQ": (Question.EQUAL, False),
    "BRANCH_NEQ": (Question.EQUAL, True),
    "BRANCH_MEMBER": (Question.MEMBER, False),
}
NUMBERED = tuple(MODES)  # from version 5 on a mode is a number
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class Forest:
    """All trees of an ensemble. A child is the number of an inner node, or ~ that of a leaf.

    Attributes:
        roots: the root of each tree, written as a child is.
        features: the column that each inner node asks about.
        questions: what it asks of it.
        thresholds: with which number.
        true: the child of rows for which the answer is yes.
        false: the child of the others.
        weights: what each leaf adds, [leaves, targets].
        missing: 1 where the answer is yes for a row whose number is missing, else 0.
        sets: of each node that asks for one of several numbers, these, by its place.
    """

    roots: Sequence[int]
    features: Integers
    questions: Sequence[Question]
    thresholds: Floats
    true: Integers
    false: Integers
    weights: Floats
    missing: Floats
    sets: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


def completed(forest: Forest) -> list[Integers] | None:
    """The nodes of complete trees, level by level: true children of a level, then its false ones.

    The last level is of leaves alone. A leaf above it stands in each place below itself.

    Returns:
        None where the trees are better left as they are: answers that are shared are picked with
        few numbers, trees are uneven, or ask unlike questions.
    """
    asked = set(zip(forest.questions, forest.features, forest.thresholds.tolist(), strict=True))
    small = len(asked) * len(forest.features) <= MOST_PICKED
    if small or forest.sets or len(set(forest.questions)) > 1:
        return None
    roots = [root for root in forest.roots if root >= 0]
    return levels_below(forest, roots, MOST_PADDED * len(forest.features))


def levels_below(forest: Forest, roots: Sequence[int], most: int) -> list[Integers] | None:
    """The nodes of complete trees, as `completed` has them, of trees with these roots.

    Returns:
        None where there would be more than `most` nodes above the leaves.
    """
    levels = [np.array(roots, np.int64)]
    while (levels[-1] >= 0).any():
        if sum(map(len, levels)) > most:
            return None
        nodes, is_inner = np.maximum(levels[-1], 0), levels[-1] >= 0
        children = (np.where(is_inner, of[nodes], levels[-1]) for of in (forest.true, forest.false))
        levels.append(np.concatenate(list(children)))
    return levels


def read_named(s: Steps, kind: str, targets: int) -> Forest:
    """The trees of a TreeEnsembleClassifier ("class") or TreeEnsembleRegressor ("target").

    Raises:
        UsageError: nodes that make no trees.
        Unsupported: a mode that isn't supported.
    """
    names = list(zip(_ints(s, "nodes_treeids"), _ints(s, "nodes_nodeids"), strict=False))
    modes = _modes(s.attribute("nodes_modes", []))
    inner = [i for i, mode in enumerate(modes) if mode != "LEAF"]
    leaves = [i for i, mode in enumerate(modes) if mode == "LEAF"]
    if len(names) != len(modes) or len(set(names)) < len(names) or not leaves:
        _illegal(s, NO_LEAVES if names and not leaves else "Two of its nodes share a number.")
    code = {names[i]: n for n, i in enumerate(inner)} | {names[i]: ~n for n, i in enumerate(leaves)}
    sides = []
    for side in ("nodes_truenodeids", "nodes_falsenodeids"):
        children = _ints(s, side)
        pairs = [(names[i][0], children[i]) for i in inner]
        missing = next((pair for pair in pairs if pair not in code), None)
        if missing:
            _illegal(s, f"A child is node {missing[1]} of tree {missing[0]}, which isn't there.")
        sides.append(np.array([code[pair] for pair in pairs], np.int64))
    first = {tree: code[tree, node] for tree, node in reversed(names)}
    weights = np.zeros((len(leaves), targets), np.float64)
    values = numbers(s, f"{kind}_weights")
    given = (_ints(s, f"{kind}_{field}") for field in ("treeids", "nodeids", "ids"))
    for tree, node, target, value in zip(*given, values, strict=True):
        leaf = code.get((tree, node), 0)
        if leaf >= 0 or not 0 <= target < targets:
            _illegal(s, f"Node {node} of tree {tree} has a weight for {target}, and is no leaf.")
        weights[~leaf, target] += value
    roots = [first[tree] for tree in dict.fromkeys(tree for tree, _ in names)]
    columns, thresholds = (
        np.array(_ints(s, "nodes_featureids"), np.int64),
        numbers(s, "nodes_values"),
    )
    asked = [modes[i] for i in inner]
    tracks = _tracks(s, len(modes))[inner]
    return _forest(s, roots, columns[inner], asked, thresholds[inner], sides, weights, tracks)


def read_numbered(s: Steps) -> Forest:
    """The trees of a TreeEnsemble, of version 5 on.  Raises as `read_named` does."""
    modes = _modes(s.attribute("nodes_modes", None))
    targets = s.attribute("n_targets", 1)
    owners, values = _ints(s, "leaf_targetids"), numbers(s, "leaf_weights")
    if len(owners) != len(values) or not all(0 <= target < targets for target in owners):
        _illegal(s, "A leaf's target isn't there.")
    weights = np.zeros((len(values), targets), np.float64)
    weights[np.arange(len(values)), owners] = values
    sides = []
    for side in ("true", "false"):
        children, ends = _ints(s, f"nodes_{side}nodeids"), _ints(s, f"nodes_{side}leafs")
        limits = [len(values) if end else len(modes) for end in ends]
        if not all(0 <= c < limit for c, limit in zip(children, limits, strict=True)):
            _illegal(s, "A child of a node isn't there.")
        codes = [~c if end else c for c, end in zip(children, ends, strict=True)]
        sides.append(np.array(codes, np.int64))
    roots = _ints(s, "tree_roots")
    if not all(0 <= root < len(modes) for root in roots):
        _illegal(s, "The root of a tree isn't there.")
    columns = np.array(_ints(s, "nodes_featureids"), np.int64)
    tracks, splits = _tracks(s, len(modes)), numbers(s, "nodes_splits").copy()
    sets = _sets(s, modes)
    splits[list(sets)] = 0  # of no meaning there
    forest = _forest(s, roots, columns, modes, splits, sides, weights, tracks)
    return replace(forest, sets=sets)


def _sets(s: Steps, modes: Sequence[str]) -> dict[int, tuple[float, ...]]:
    """The numbers that each node of BRANCH_MEMBER asks for, which NaN ends."""
    places = [place for place, mode in enumerate(modes) if mode == "BRANCH_MEMBER"]
    found: list[list[float]] = [[]]
    for number in numbers(s, "membership_values").tolist():
        if number == number:
            found[-1].append(number)
        else:
            found.append([])
    if not found[-1]:
        del found[-1]
    if len(found) != len(places):
        _illegal(s, f"It has {len(found)} sets of members for {len(places)} nodes.")
    if not all(found):
        raise Unsupported("One of its nodes asks for a member of an empty set.", "")
    return {place: tuple(dict.fromkeys(each)) for place, each in zip(places, found, strict=True)}


def _tracks(s: Steps, nodes: int) -> NDArray[np.bool_]:
    """Whether a row whose number is missing goes the true way, by node."""
    given = _ints(s, "nodes_missing_value_tracks_true")
    if len(given) not in (0, nodes):
        _illegal(s, "It says of some nodes alone where a row goes whose number is missing.")
    return np.array(given or [0] * nodes, bool)


def numbers(s: Steps, name: str) -> Floats:
    """Real numbers of a node, as a list or as a tensor."""
    for given in (name, f"{name}_as_tensor"):
        value: Any = s.attribute(given, None)
        if value is not None:
            array = value if isinstance(value, list) else numpy_helper.to_array(value)
            return np.asarray(array, np.float32).reshape(-1)
    return np.zeros(0, np.float32)


def _ints(s: Steps, name: str) -> list[int]:
    return [int(number) for number in s.attribute(name, [])]


def _modes(given: Any) -> list[str]:
    """The modes of nodes by name."""
    if isinstance(given, list):
        return given
    numbers = numpy_helper.to_array(given).tolist()
    return [NUMBERED[n] if n < len(NUMBERED) else f"of number {n}" for n in numbers]


def _forest(
    s: Steps,
    roots: Sequence[int],
    columns: Integers,
    modes: Sequence[str],
    thresholds: Floats,
    sides: Sequence[Integers],
    weights: NDArray[np.float64],
    tracks: NDArray[np.bool_],
) -> Forest:
    unknown = next((mode for mode in modes if mode not in MODES), None)
    if unknown:
        raise Unsupported(f"Its nodes ask in the mode {unknown}.", "Train it with thresholds.")
    if np.isnan(thresholds).any() or np.isnan(weights).any():
        _illegal(s, "A threshold or a weight of it is no number.")
    known = s.facts.shapes.get(s.operand(0), (-1, 0))[-1]
    outside = [int(column) for column in columns if column < 0 or 0 < known <= column]
    if outside:
        _illegal(s, f"A node asks about column {outside[0]} of {known or 'its table'}.")
    swapped = np.array([MODES[mode][1] for mode in modes], bool)
    true, false = sides
    questions = [MODES[mode][0] for mode in modes]
    # No comparison of NaN is true but that of BRANCH_NEQ.
    is_true = tracks | np.array([mode == "BRANCH_NEQ" for mode in modes], bool)
    forest = Forest(
        roots,
        columns,
        questions,
        thresholds,
        np.where(swapped, false, true),
        np.where(swapped, true, false),
        weights.astype(np.float32),
        (is_true ^ swapped).astype(np.float32),
    )
    _require_trees(s, forest)
    return forest


def _require_trees(s: Steps, forest: Forest) -> None:
    """Raises UsageError where a node has two parents, which a circle needs too."""
    children = np.concatenate([forest.roots, forest.true, forest.false]).astype(np.int64)
    inner = children[children >= 0]
    if len(np.unique(inner)) < len(inner):
        _illegal(s, "A node of it has two parents, so its nodes are no tree.")


def _illegal(s: Steps, reason: str) -> NoReturn:
    raise UsageError(f"Node {s.node.name} ({s.node.op_type}) is no ensemble: {reason}", NOT_A_MODEL)
