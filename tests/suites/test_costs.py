"""What a protocol's docstring claims to cost is what its emitted plan costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from conformance import COMPARING, SETTINGS, Setting, Trace
from interpreters import plan_of

from veilgraph.ir.plan.tables import Layer, Phase
from veilgraph.ir.secret import exponential as exponentials
from veilgraph.ir.secret.exponential import Segments
from veilgraph.ir.secret.fourier import tables
from veilgraph.targets.blocks.comparison_tree import VARIANT
from veilgraph.targets.blocks.digits import TASTES, cheapest
from veilgraph.targets.blocks.window import window_to_shift
from veilgraph.targets.functions.masked_openings import WIDE
from veilgraph.targets.parties import Sharing

ELEMENTS = 3 * 64 * 64  # thirds are whole words of planes: nothing is padded
REP3, ADDITIVE_OF_2 = SETTINGS[:2]
CLAIM = re.compile(
    r"(?P<rounds>[^.;:]+?) rounds?"
    r"(?:; (?P<online>[^;.]+?) bits online, (?P<offline>[^;.]+?) offline)?[.;,:]"
)


def claims(setting: Setting, op: str, variant: str = "") -> dict[str, str]:
    """The formulas of a protocol's docstring: rounds, and bits online and offline if stated."""
    suite = setting.suite
    sharing = {"share": suite.share, "from_shares": suite.from_shares}
    if variant:
        sharing[op] = next(v.function for v in suite.protocols[op] if v.name == variant)
    protocol = sharing[op] if op in sharing else suite.offered(op)
    text = " ".join((protocol.__doc__ or "").split())
    found = CLAIM.search(text)
    assert found, f"{op} of {setting} does not say how many rounds it takes"
    return {name: formula for name, formula in found.groupdict().items() if formula}


def value(formula: str, names: Mapping[str, float]) -> float:
    """A formula as papers write it: 3k + 2 (K - 1), max(o, 1)."""
    python = re.sub(r"(\d|\b[a-zA-Z]\b|\)) ?(?=[a-zA-Z(])", r"\1*", formula)
    return float(eval(python, {"__builtins__": {}}, {"max": max, **names}))


def sizes(setting: Setting, op: str, k: int, K: int, attrs: Mapping[str, Any]) -> dict[str, float]:
    w, t, f = attrs.get("window_bits", 4), attrs.get("dropped_bits", 0), attrs.get("bits", 0)
    truncated = attrs.get("sum_bits", k)  # the ring that bits are dropped from
    segments = 1 << (w - attrs.get("piece_bits", w))
    least, e = min(k, K + f), max(0, K - truncated + f)
    m = truncated
    n = f if op == "round_off" else w - t - 1
    two = setting.suite.name == "rep3" or setting.computing == 2
    if op == "step":
        m = w - t if two else w
    if op == "truncate_relu":
        w = window_to_shift(w, t, f) if two else max(w, f + 1)
        m, n, e = (w - f, w - f - 1, max(0, K - w + f)) if two else (w, w - t - 1, K - w + f)
    split = cheapest(max(n, 1), TASTES[setting.comparison or next(iter(TASTES))])
    compared = {"L": split.rounds, "V": split.opened_bits}
    compared |= {"T": split.thermometer_bits, "Q": split.product_bits, "Y": split.monomials}
    more = {"l": least, "e": e, "o": min(e, 1), "m": m, "N": len(attrs.get("cosines", ()))}
    more |= {"M": segments, "g": min(1, setting.computing - 2)}
    return {"k": k, "K": K, "f": f, "w": w, "t": t, "n": n} | compared | more


def measured(
    setting: Setting,
    op: str,
    k: int,
    attrs: Mapping[str, Any],
    form: str,
    K: int | None = None,
    variant: str = "",
) -> Layer:
    """The row of `op` in a plan where its operands are computed ones, and all of it is needed."""
    trace = Trace(setting)
    shape = (ELEMENTS,)
    x, y = (trace.share(f"x{j}", shape, k, j % setting.computing) for j in range(2))

    def dense() -> Sharing:
        product = trace.apply("mul", shape, k, {}, x, y)
        return trace.apply("truncate", shape, k, {"bits": 3}, product)

    operands = [dense(), dense()]
    if form == "additive":
        operands[0] = trace.apply("mul", shape, k, {}, *operands)
    count = 2 if op in ("mul", "maximum", "add", "sub") else 1
    operands = [*operands[:count], *(trace.public(table, 64) for table in tables_of(op, attrs))]
    made = shape
    if op == "exp_sums":
        operands[0] = trace.apply("reshape", (192, 64), k, {}, operands[0])
        made, K = (192, Segments.of(attrs).count), attrs["sum_bits"]
    result = trace.apply(op, made, K or k, attrs, *operands, variant=variant)
    row = len(trace.expanded.notes) - 1
    if op == "exp_sums":  # an additive result needs something that takes all of it
        result = trace.apply("truncate", made, k, {"bits": 9}, result)
    if op == "mul":
        result = trace.apply("truncate", shape, k, {"bits": 3}, result)
    whole = result if result.replica is None else result.replica
    for party in range(setting.computing):
        trace.reveal(whole, f"y{party}", party)
    plan = plan_of(trace.expanded)
    if setting.suite.security.provider:  # nobody else sends ahead
        assert {link.split("->")[0] for link in plan.sent_bytes(Phase.OFFLINE)} <= {"dealer"}
    assert plan.layers[row].op == op
    return plan.layers[row]


def tables_of(op: str, attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The public operands of a function."""
    if op == "masked_function":
        return tables(attrs["window_bits"])
    if op not in ("exp_sums", "masked_exp"):
        return ()
    segments = Segments.of(attrs)
    found = exponentials.tables(segments, 12)
    return (*found, exponentials.heights(segments, 12, 20.0, 0.0)) if op == "masked_exp" else found


def per_element(setting: Setting, layer: Layer) -> tuple[float, float]:
    """Bits online and offline as the suite's docstrings count them."""
    links = setting.computing * (setting.computing - 1) if setting.suite.name == "additive" else 1
    return layer.online_bits / ELEMENTS / links, layer.offline_bits / ELEMENTS


FUSED = ({"bits": 12, "window_bits": 29, "dropped_bits": 12},
         {"bits": 12, "window_bits": 30, "dropped_bits": 12},
         {"bits": 7, "window_bits": 10, "dropped_bits": 5})  # fmt: skip
WINDOWED = ({"window_bits": 24, "dropped_bits": 0}, {"window_bits": 20, "dropped_bits": 3})
SERIES = {
    "first": 1,
    "step": 2,
    "cosines": (1 << 20,) * 3,
    "sines": (1, 0, 5),
    "constant": 9,
    "coefficient_bits": 20,
    "slope": 0,
    "cosine_bits": 14,
    "factor_bits": 16,
}
FUNCTIONS = (
    {**SERIES, "window_bits": 17, "sum_bits": 35, "bits": 18},
    {**SERIES, "window_bits": 12, "sum_bits": 40, "bits": 20},
)
EXPONENTIALS: tuple[dict[str, Any], ...] = (
    Segments(19, 16, 3, 14, 20, 38).parameters(),
    Segments(17, 15, 1, 18, 18, 47).parameters(),
)
ROUNDED_OFF = tuple({"bits": f, "window_bits": f + 1, "dropped_bits": 0} for f in (12, 7))  # n = f
CONVERTING: tuple[tuple[str, str, tuple[dict[str, Any], ...]], ...] = (
    ("truncate", "additive", ({"bits": 12}, {"bits": 3})),
    ("truncate_relu", "additive", FUSED),
    ("round_off", "additive", ROUNDED_OFF),
)
CASES: tuple[tuple[str, str, tuple[dict[str, Any], ...]], ...] = (
    *CONVERTING,
    ("step", "dense", WINDOWED),
    ("relu", "dense", WINDOWED),
    ("maximum", "dense", WINDOWED),
    ("masked_function", "dense", FUNCTIONS),
    ("exp_sums", "dense", EXPONENTIALS),
    ("masked_exp", "dense", tuple(attrs | {"bits": 20} for attrs in EXPONENTIALS)),
    ("neg", "dense", ({},)),
    ("add", "dense", ({},)),
    ("sub", "additive", ({},)),
    ("scale", "additive", ({"factor": 5},)),
)


@pytest.mark.parametrize("k", [32, 40, 64])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.computing > 1], ids=str)
def test_docstrings_tell_the_cost(
    setting: Setting, case: tuple[str, str, tuple[dict[str, Any], ...]], k: int
) -> None:
    op, form, variants = case
    for attrs in variants:
        check_costs(setting, op, form, k, k, attrs)


@pytest.mark.parametrize("op", ["masked_function", "masked_exp"])
@pytest.mark.parametrize("setting", SETTINGS[:3], ids=str)
def test_docstrings_tell_the_cost_of_wide_sums(setting: Setting, op: str) -> None:
    for _, form, variants in (case for case in CASES if case[0] == op):
        for attrs in variants:
            for k in (32, 40):
                check_costs(setting, op, form, k, k, attrs, WIDE)


@pytest.mark.parametrize("op", ["truncate_relu", "relu", "step", "round_off"])
@pytest.mark.parametrize("setting", [s for s in COMPARING if s.comparison in TASTES], ids=str)
def test_docstrings_tell_the_cost_of_each_comparison(setting: Setting, op: str) -> None:
    for _, form, variants in (case for case in CASES if case[0] == op):
        for attrs in variants:
            check_costs(setting, op, form, 32, 32, attrs)
            check_costs(setting, op, form, 64, 64, attrs)


@pytest.mark.parametrize(("k", "K"), [(32, 48), (32, 40), (48, 40), (64, 40), (64, 24), (40, 64)])
@pytest.mark.parametrize("case", CONVERTING, ids=lambda case: case[0])
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.computing > 1], ids=str)
def test_docstrings_tell_the_cost_of_changing_rings(
    setting: Setting, case: tuple[str, str, tuple[dict[str, int], ...]], k: int, K: int
) -> None:
    op, form, variants = case
    for attrs in variants:
        check_costs(setting, op, form, k, K, attrs)


@pytest.mark.parametrize(("k", "K"), [(24, 32), (32, 64), (40, 48)])
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.computing > 1], ids=str)
def test_docstrings_tell_the_cost_of_a_lift(setting: Setting, k: int, K: int) -> None:
    check_costs(setting, "lift", "additive", k, K, {})


def check_costs(
    setting: Setting,
    op: str,
    form: str,
    k: int,
    K: int,
    attrs: Mapping[str, int],
    variant: str = "",
) -> None:
    names = sizes(setting, op, k, K, attrs) | {"P": setting.computing}
    claimed = claims(setting, op, variant)
    if variant == WIDE:
        names |= {"m": K + attrs["bits"]}
    layer = measured(setting, op, k, attrs, form, K, variant)
    online, offline = per_element(setting, layer)
    found = {"rounds": layer.rounds, "online": online, "offline": offline}
    if set(claimed) == {"rounds"} and value(claimed["rounds"], names) == 0:
        claimed = dict.fromkeys(found, "0")
    expected = {name: value(formula, names) for name, formula in claimed.items()}
    assert {name: found[name] for name in expected} == pytest.approx(expected), attrs


@pytest.mark.parametrize("attrs", FUNCTIONS)
def test_a_function_of_an_additive_sharing_is_opened_without_resharing_it(
    attrs: dict[str, Any],
) -> None:
    dense, additive = (
        measured(REP3, "masked_function", 40, attrs, f) for f in ("dense", "additive")
    )
    assert additive.rounds == dense.rounds == 3
    more = (additive.online_bits - dense.online_bits) / ELEMENTS
    assert more == 2 * attrs["window_bits"]


def test_two_parties_that_have_all_of_a_chunk_compare_it_where_it_is() -> None:
    """However roles turn from layer to layer: the parts of a pair move nowhere first."""
    attrs = {"window_bits": 20, "dropped_bits": 3}
    for turn in range(3):
        trace = Trace(REP3)
        x, y = (trace.share(f"x{j}", (ELEMENTS,), 32, j) for j in range(2))
        product = trace.apply("mul", (ELEMENTS,), 32, {}, x, y)
        pair = trace.apply("truncate", (ELEMENTS,), 24, {"bits": 8}, product)
        for _ in range(turn):
            pair = trace.apply("reshape", (ELEMENTS,), 24, {}, pair)
        bit = trace.apply("step", (ELEMENTS,), 24, attrs, pair)
        row = len(trace.expanded.notes) - 1
        assert bit.replica is not None
        for party in range(3):
            trace.reveal(bit.replica, f"y{party}", party)
        names, claimed = sizes(REP3, "step", 24, 24, attrs) | {"P": 3}, claims(REP3, "step")
        online, offline = per_element(REP3, plan_of(trace.expanded).layers[row])
        expected = {name: value(claimed[name], names) for name in ("online", "offline")}
        assert {"online": online, "offline": offline} == pytest.approx(expected)


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.computing > 1], ids=str)
def test_products_and_sharing(setting: Setting) -> None:
    trace = Trace(setting)
    x, y = (trace.share(f"x{j}", (ELEMENTS,), 40, j) for j in range(2))
    z = trace.apply("mul", (ELEMENTS,), 40, {}, x, y)
    for party in range(setting.computing):
        trace.reveal(trace.apply("truncate", (ELEMENTS,), 40, {"bits": 4}, z), f"y{party}", party)
    layers = plan_of(trace.expanded).layers
    for number, op in ((1, "share"), (3, "mul")):
        claimed = claims(setting, op)
        online, offline = per_element(setting, layers[number])
        found = {"rounds": layers[number].rounds, "online": online, "offline": offline}
        assert found == {name: value(formula, {"k": 40}) for name, formula in claimed.items()}


@pytest.mark.parametrize("form", ["replicated", "additive"])
def test_a_reveal(form: str) -> None:
    trace = Trace(REP3)
    x, y = (trace.share(f"x{j}", (ELEMENTS,), 40, j) for j in range(2))
    z = trace.apply("mul", (ELEMENTS,), 40, {}, x, y)
    if form == "replicated":
        z = trace.apply("truncate", (ELEMENTS,), 40, {"bits": 4}, z)
    trace.reveal(z)
    row = plan_of(trace.expanded).layers[-1]
    words = {"replicated": 1, "additive": 2}[form]
    assert (row.rounds, row.online_bits / ELEMENTS, row.offline_bits) == (1, words * 40, 0)
    assert f"{'' if words == 1 else words}k bits {form}" in (REP3.suite.reveal.__doc__ or "")


@pytest.mark.parametrize(
    ("k", "f", "m", "rounds", "online", "offline"),
    [(32, 12, 17, 5, 141, 202), (64, 16, 24, 5, 234, 433)],
)
def test_the_budget_of_a_linear_layer_with_relu(
    k: int, f: int, m: int, rounds: int, online: int, offline: int
) -> None:
    attrs = {"bits": f, "window_bits": m + f, "dropped_bits": f}
    layer = measured(REP3, "truncate_relu", k, attrs, "additive")
    assert layer.rounds <= rounds
    assert layer.online_bits / ELEMENTS <= online
    assert layer.offline_bits / ELEMENTS <= offline


@pytest.mark.parametrize(
    ("k", "f", "m", "online", "offline"), [(32, 12, 17, 24, 202), (64, 16, 24, 33, 433)]
)
def test_the_budget_of_a_relu_between_two(
    k: int, f: int, m: int, online: int, offline: int
) -> None:
    """A linear layer opens k bits each way in one round, and its dealt product has k, beside it."""
    attrs = {"bits": f, "window_bits": m + f, "dropped_bits": f}
    layer = measured(ADDITIVE_OF_2, "truncate_relu", k, attrs, "additive")
    assert layer.rounds == 3
    assert layer.online_bits / ELEMENTS / 2 <= online
    assert layer.offline_bits / ELEMENTS <= offline


@pytest.mark.parametrize(
    ("k", "f", "m", "online", "offline"), [(32, 12, 17, 20, 874), (64, 16, 24, 29, 2422)]
)
def test_the_budget_of_a_relu_by_a_table(k: int, f: int, m: int, online: int, offline: int) -> None:
    """A round less than by merges, in both suites."""
    attrs = {"bits": f, "window_bits": m + f, "dropped_bits": f}
    for setting in (s for s in COMPARING if s.comparison == "table" and s.computing == 2):
        layer = measured(setting, "truncate_relu", k, attrs, "additive")
        assert layer.rounds == 2
        assert layer.online_bits / ELEMENTS / 2 <= online
        assert layer.offline_bits / ELEMENTS <= offline


@pytest.mark.parametrize(("k", "f", "m", "offline"), [(32, 12, 17, 6524), (64, 16, 24, 13968)])
def test_the_budget_of_a_relu_by_a_tree(k: int, f: int, m: int, offline: int) -> None:
    """c is opened, and nothing after it. In rep3 parts come to two parties first, w + f bits more,
    and the result to all, 2k.

    A layer takes 3 rounds there, 2 in fixed roles, and 2 in additive with the product's opening.
    """
    attrs = {"bits": f, "window_bits": m + f, "dropped_bits": f}
    compared, numbers = m - 1, 2 * k + k - m  # bits of three payloads
    assert offline == 2 * (128 * (compared - 2) + numbers * (compared + 2)) + 3 * k
    expected = {"rep3": (3, m + f + 2 * m + 2 * k), "additive": (1, 2 * m)}
    settings = [s for s in COMPARING if s.comparison == VARIANT]
    assert [s.suite.name for s in settings] == list(expected)
    for setting in settings:
        layer = measured(setting, "truncate_relu", k, attrs, "additive")
        assert (layer.rounds, layer.online_bits / ELEMENTS) == expected[setting.suite.name]
        assert layer.offline_bits / ELEMENTS == offline


@pytest.mark.parametrize(("k", "most_bytes"), [(32, 17), (64, 25)])
def test_the_budget_of_a_relu_alone(k: int, most_bytes: int) -> None:
    layer = measured(REP3, "relu", k, {"window_bits": 24, "dropped_bits": 0}, "dense")
    assert layer.online_bits / 8 / ELEMENTS <= most_bytes


@pytest.mark.parametrize("window", [1, 2, 3])
def test_the_smallest_windows_take_three_rounds(window: int) -> None:
    layer = measured(REP3, "relu", 32, {"window_bits": window, "dropped_bits": 0}, "dense")
    assert layer.rounds == 3 - (window == 1)


def test_independent_branches_take_the_rounds_of_the_longer_one() -> None:
    rounds = []
    for branches in ((0,), (1,), (2,), (0, 1, 2)):
        trace = Trace(REP3)
        x = trace.share("x", (64,), 32)
        x = trace.apply("truncate", (64,), 32, {"bits": 3}, trace.apply("mul", (64,), 32, {}, x, x))
        for number in branches:
            attrs = {"window_bits": 17 - 4 * number, "dropped_bits": 0}
            trace.reveal(trace.apply("relu", (64,), 32, attrs, x), f"y{number}", number)
        rounds.append(plan_of(trace.expanded).rounds(Phase.ONLINE))
    *alone, together = rounds
    assert together == max(alone)


def test_links_are_balanced() -> None:
    """Roles rotate over three chunks: all links of one direction carry the same."""
    trace = Trace(REP3)
    x = trace.share("x", (ELEMENTS,), 32)
    w = trace.share("w", (ELEMENTS,), 32, 1, "weight")
    attrs = {"bits": 12, "window_bits": 29, "dropped_bits": 12}
    z = trace.apply("mul", (ELEMENTS,), 32, {}, x, w)
    y = trace.apply("truncate_relu", (ELEMENTS,), 32, attrs, z)
    for party in range(3):
        trace.reveal(y, f"y{party}", party)
    sent = plan_of(trace.expanded).sent_bytes(Phase.ONLINE)
    sent["alice->bob"] -= 4 * ELEMENTS  # the input
    assert sent["alice->bob"] == sent["bob->carol"] == sent["carol->alice"]
    assert sent["bob->alice"] == sent["carol->bob"] == sent["alice->carol"]
