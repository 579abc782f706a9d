"""Which protocol a layer takes: by price on a network, by hand, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from receivers import asked
from second_comparison import PERCEPTRON, additive_with_two, copy_of, ripple

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.ir.meaning import secret as meaning
from veilgraph.ir.meaning.party import evaluate, uniform_draws
from veilgraph.ir.mlir import context
from veilgraph.ir.party.ops import SEND
from veilgraph.ir.plan.tables import SHARED, Phase
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.dialect import Stated
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.secret.function_forms import carried
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes.party.batch_rounds import Schedule, batch_rounds
from veilgraph.passes.party.expand_protocols import Choices, Chosen, Expanded, expand_protocols
from veilgraph.passes.party.verify_masking import coalitions, verify_masking
from veilgraph.passes.secret.protocols.calls import Call, Choice, Traced, Traces
from veilgraph.passes.secret.protocols.choose_protocols import PARTS, ChooseProtocols
from veilgraph.passes.secret.protocols.costs import Communication
from veilgraph.targets.machines import MACHINE
from veilgraph.targets.parties import Operation, Parties, Sharing
from veilgraph.targets.suite import Suite
from veilgraph.targets.target import Target, target
from veilgraph.targets.variants import Goal, Needs, Rounding

LARGE, SMALL = 3_000_000, 100  # elements: what a round of a WAN is worth lies between them
ANY = RealRange(-8.0, 8.0, RangeSource.PROVEN)
FAST, FAR = (1e3, 1e-6), (1e9, 1.0)  # bytes a second, seconds of a round trip


@pytest.fixture
def additive(monkeypatch: pytest.MonkeyPatch) -> Suite:
    return additive_with_two(monkeypatch)


def two(network: str = "lan", **protocols: str) -> Target:
    named = {"network_name": network, "protocols": protocols}
    return target("additive", ("alice", "bob"), dealer="dora", **named)


def network_file(folder: Path, figures: tuple[float, float]) -> str:
    file = folder / "network.yaml"
    file.write_text(
        f"mine:\n  bytes_per_second: {figures[0]}\n  round_trip_seconds: {figures[1]}\n"
    )
    return str(file)


def relus(*sizes: int, ring_bits: int = 32) -> SecretProgram:
    """The ReLU of x0, of x1 and so on."""
    encoding = Encoding(ring_bits, 4)
    arguments = [
        Argument(f"x{j}", "input", "alice", Tensor((size,), encoding), ANY)
        for j, size in enumerate(sizes)
    ]
    made = SecretProgram.create(context(), arguments, {})
    outputs = {}
    for j, x in enumerate(made.block.arguments):
        with made.at(f"relu{j}"):
            y = ops.Relu.build(x, range=ANY, window_bits=17, dropped_bits=0)
        outputs[f"y{j}"] = y
    made.finish(outputs)
    return made


def chosen(program: SecretProgram, target: Target, count_offline: bool = True) -> list[str]:
    """What each layer compares with, as the layer table says it."""
    choices = ChooseProtocols(target, count_offline=count_offline).run(program)
    notes = expand_protocols(program, target, choices=choices).notes
    return [note.protocol.removeprefix("compare=") for note in notes if note.op == "relu"]


# By price


def test_rounds_are_dear_far_away_and_bytes_where_there_are_many(additive: Suite) -> None:
    assert chosen(relus(SMALL), two("wan")) == ["merges"]
    assert chosen(relus(LARGE), two("wan")) == ["ripple"]


def test_rounds_beside_a_longer_path_are_free(additive: Suite) -> None:
    """What would take fewer rounds alone takes fewer bytes beside what takes more."""
    assert chosen(relus(SMALL, LARGE), two("wan")) == ["ripple", "ripple"]


def test_the_example_of_the_pass() -> None:
    choose = ChooseProtocols(target("rep3", network_name="wan"))
    for size, name in ((100, "tree"), (10_000, "table"), (300_000, "merges")):
        of = choose.run(in_a_row(size, 1)).of.values()
        assert [each.protocols["compare"].name for each in of if each.protocols] == [name]


def test_the_offline_phase_counts_unless_it_is_prepared_ahead(additive: Suite) -> None:
    """More rounds save bits mostly of what is dealt."""
    assert chosen(relus(LARGE), two("wan")) == ["ripple"]
    assert chosen(relus(LARGE), two("wan"), count_offline=False) == ["merges"]


def test_trees_are_taken_where_what_they_store_is_prepared_ahead() -> None:
    """And where a store has room: a tree of 16 bits takes 0.4 kB in each of two stores."""
    program = relus(10_000)
    assert chosen(program, two("wan")) == ["merges"]
    assert chosen(program, two("wan"), count_offline=False) == ["tree"]
    assert chosen(program, two("lan"), count_offline=False) == ["merges"]
    free, limited = (
        ChooseProtocols(two("wan"), count_offline=False, most_store=most).run(program)
        for most in (5_000_000, 3_000_000)
    )
    names = [
        {each.protocols["compare"].name for each in found.of.values() if each.protocols}
        for found in (free, limited)
    ]
    assert names == [{"tree"}, {"table"}]


def test_fewest_rounds_takes_trees_where_rounds_depend_on_it() -> None:
    """Beside a longer path what takes fewer bytes is as good."""
    choose = ChooseProtocols(two(), goal=Goal.FEWEST_ROUNDS)
    for program, names in ((relus(LARGE), ["tree"]), (in_a_row(SMALL, 3), ["tree"] * 3)):
        found = choose.run(program).of.values()
        assert [e.protocols["compare"].name for e in found if e.protocols] == names


def test_one_variant_each_is_no_choice(additive: Suite) -> None:
    for name, variants in additive.protocols.items():
        additive.protocols[name] = variants[:1]
    for name in ("lan", "wan"):
        assert ChooseProtocols(two(name)).run(relus(LARGE)) == Choices()
        assert chosen(relus(LARGE), two(name)) == [""]


def test_an_op_is_traced_once_in_a_process(
    additive: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all networks and programs, until the suite has another protocol."""

    def traced(program: SecretProgram, to: Target) -> int:
        before = len(calls)
        ChooseProtocols(to).run(program)
        return len(calls) - before

    def counted(traces: Traces, call: Call, choice: Choice) -> Traced:
        calls.append(call)
        return trace(traces, call, choice)

    def another(p: Parties, op: Operation, x: Sharing) -> Sharing:
        return x

    calls: list[Call] = []
    trace = Traces._trace
    monkeypatch.setattr(Traces, "_trace", counted)
    additive.protocol("relu", variant="another")(another)
    first = traced(relus(SMALL), two("lan"))
    assert first > 0
    assert traced(relus(SMALL), two("lan")) == traced(relus(SMALL, SMALL), two("wan")) == 0
    additive.protocol("relu", variant="last")(lambda p, op, x: x)
    assert traced(relus(SMALL), two("lan")) > first


def test_a_choice_is_asked_for_inside_a_choice(additive: Suite) -> None:
    """A ReLU without the comparison: what it calls is no choice of the comparison's."""

    def nothing(p: Parties, op: Operation, x: Sharing) -> Sharing:
        return x

    additive.protocol("relu", variant="nothing")(nothing)
    assert chosen(relus(LARGE), two("wan")) == ["relu=nothing"]
    assert chosen(relus(LARGE), two("wan", relu="standard")) == ["relu=standard, compare=ripple"]
    assert chosen(relus(SMALL), two(relu="standard", compare="ripple")) == [
        "relu=standard, compare=ripple"
    ]


def test_what_promises_less_is_taken_by_hand_alone(additive: Suite) -> None:
    def rounded(p: Parties, op: Operation, x: Sharing) -> Sharing:
        return x

    additive.protocol("relu", variant="rounded", rounding=Rounding.KNOWN)(rounded)
    assert chosen(relus(SMALL), two()) == ["relu=standard, compare=merges"]
    assert chosen(relus(SMALL), two(relu="rounded")) == ["relu=rounded"]


@pytest.mark.parametrize(
    "needs", [Needs(computing=1), Needs(ring_bits=31)], ids=["computing", "ring"]
)
def test_what_a_target_lacks_is_not_taken(additive: Suite, needs: Needs) -> None:
    def nothing(p: Parties, op: Operation, x: Sharing) -> Sharing:
        return x

    additive.protocol("relu", variant="nothing", needs=needs)(nothing)
    assert chosen(relus(SMALL), two()) == ["relu=standard, compare=merges"]


# What is predicted


def in_a_row(size: int, depth: int) -> SecretProgram:
    """ReLUs one after the other between products with a weight that has no part of zero."""
    encoding = Encoding(32, 4)
    x = Argument("x", "input", "alice", Tensor((size,), encoding), ANY)
    w = Argument("w", "weight", SHARED, Tensor((size,), encoding), ANY)
    made = SecretProgram.create(context(), [x, w], {})
    value, weight = made.block.arguments
    for j in range(depth):
        with made.at(f"relu{j}"):
            value = ops.Mul.build(value, weight, range=ANY)
            value = ops.TruncateRelu.build(
                value,
                range=ANY,
                stated=Stated(ring_bits=32),
                bits=4,
                window_bits=17,
                dropped_bits=4,
            )
    with made.at("y"):
        last = ops.Mul.build(value, weight, range=ANY)
    made.finish({"y": last})
    return made


def every_choice(
    program: SecretProgram, to: Target, rotates: bool
) -> Iterator[tuple[int, list[Communication], Schedule]]:
    """What is predicted: rounds, and what each op sends; and the program's own messages."""
    choose = ChooseProtocols(to, Goal.LEAST_BYTES)
    nodes = choose.nodes(program, rotates)
    problem = choose.problem(nodes)
    for numbers in product(*(range(len(node.options)) for node in nodes)):
        taken = [(node.result, node.options[i]) for node, i in zip(nodes, numbers, strict=True)]
        chosen = {result: Chosen(choice) for result, (choice, _) in taken if result is not None}
        expanded = expand_protocols(program, to, choices=Choices(chosen, rotates))
        schedule = batch_rounds(expanded.program)
        rounds = int(problem.rounds(np.array([numbers]))[0])
        yield rounds, [traced.sent for _, (_, traced) in taken], schedule


Link = tuple[Phase, int, int]
SECOND_RELU = (6, 7)  # of layers: after two arguments, a product, a ReLU and a product; a product
TARGETS = {"rep3": target("rep3"), "rep3, carol": target("rep3", receivers={"y": ("carol",)})}


@pytest.mark.parametrize(("size", "rotates"), [(200, False), (SMALL, True)])
@pytest.mark.parametrize("name", [*TARGETS, "additive"])
def test_rounds_of_every_choice_are_the_programs(name: str, size: int, rotates: bool) -> None:
    """Parties may be a round apart, and the last message decides."""
    to = TARGETS.get(name) or two()
    for rounds, _, schedule in every_choice(in_a_row(size, 3), to, rotates):
        assert rounds == schedule.rounds[Phase.ONLINE]


def of_functions(size: int) -> SecretProgram:
    """The square of a series, of a product with a weight; and its end below 1."""
    encoding = Encoding(40, 20)
    x = Argument("x", "input", "alice", Tensor((size,), encoding), ANY)
    w = Argument("w", "weight", SHARED, Tensor((size,), encoding), ANY)
    made = SecretProgram.create(context(), [x, w], {})
    series = FourierSeries(
        window_bits=30, first=1, step=1, cosines=(1 << 20,), sines=(5,), coefficient_bits=20,
        constant=0, slope=0, cosine_bits=14, factor_bits=16, sum_bits=32,
    )  # fmt: skip
    named = {"function": "rsqrt", "least": 0.5, "most": 4.0, "origin": 0.0, "error": 0.1}
    stated = Stated(frac_bits=12, ring_bits=32)
    window = {"window_bits": 30, "dropped_bits": 10}
    with made.at("y"):
        y = ops.Mul.build(*made.block.arguments, range=ANY)
        y = ops.ClippedFunction.build(
            y, range=ANY, stated=stated, form=carried(series), edge=1 << 20, beyond=3, reach=4.0,
            **named, **window,
        )  # fmt: skip
        y = ops.Mul.build(y, y, range=ANY)
        y = ops.Function.build(y, range=ANY, stated=stated, form=carried(series), **named)
        y = ops.Mul.build(y, y, range=ANY)
    made.finish({"y": y})
    return made


@pytest.mark.parametrize(("size", "rotates"), [(200, False), (SMALL, True)])
def test_a_replica_that_a_product_reads_is_in_the_price(size: int, rotates: bool) -> None:
    """Of one variant a function's result is replicated, of the other in parts of two."""
    found = []
    for rounds, sent, schedule in every_choice(of_functions(size), target("rep3"), rotates):
        assert rounds == schedule.rounds[Phase.ONLINE]
        turns = [max(turn.values()) for each in sent for turn in each.turns]
        assert sum(turns) == sum(each.busiest_bytes for each in sent)
        found.append(rounds)
    assert len(found) == 2 * 4 * 2
    assert len(set(found)) > 2


def products_in_a_row(size: int, depth: int) -> SecretProgram:
    """ReLUs one after the other between products with a matrix."""
    encoding = Encoding(32, 4)
    x = Argument("x", "input", "alice", Tensor((1, size), encoding), ANY)
    w = Argument("w", "weight", SHARED, Tensor((size, size), encoding), ANY)
    made = SecretProgram.create(context(), [x, w], {})
    value, weight = made.block.arguments
    stated = Stated(ring_bits=32)
    for j in range(depth):
        with made.at(f"relu{j}"):
            value = ops.Matmul.build(value, weight, range=ANY)
            value = ops.TruncateRelu.build(
                value, range=ANY, stated=stated, bits=4, window_bits=17, dropped_bits=4
            )
    with made.at("y"):
        made.finish({"y": ops.Matmul.build(value, weight, range=ANY)})
    return made


@pytest.mark.parametrize(("rotates", "phases"), [(True, {Phase.ONLINE}), (False, {*Phase} - {0})])
def test_who_multiplies_when_is_in_the_price(rotates: bool, phases: set[Phase]) -> None:
    """In fixed roles one party multiplies ahead; where they rotate all multiply online."""
    choose = ChooseProtocols(target("rep3"))
    *_, last, _ = choose.nodes(products_in_a_row(600, 2), rotates)
    (traced,) = (traced for _, traced in last.options)
    assert {phase for phase, _ in traced.sent.multiplying} == phases
    online = max(s for (phase, _), s in traced.sent.multiplying.items() if phase == Phase.ONLINE)
    assert online > 5e-4
    waits = choose.option(traced).rounds * MACHINE.round_on(choose.target.network) / PARTS
    assert waits >= 0.99 * online
    assert ChooseProtocols(target("rep3"), Goal.LEAST_BYTES).option(traced).rounds <= 1


def test_roles_of_small_tensors_do_not_rotate() -> None:
    """They are one chunk, whose roles are those of the layer before."""
    plans = (every_choice(in_a_row(SMALL, 3), target("rep3"), turns) for turns in (True, False))
    for turned, fixed in zip(*plans, strict=True):
        assert turned[0] == fixed[0]
        assert [sent.links for sent in turned[1]] == [sent.links for sent in fixed[1]]


@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("name", [*TARGETS, "additive"])
def test_bytes_of_every_choice_are_the_programs(name: str, rotates: bool) -> None:
    """Of a ReLU between two and the product that reads it, in chunks that are full.

    What is dealt is evened out over all ops.
    """
    to = TARGETS.get(name) or two()
    for _, predicted, schedule in every_choice(in_a_row(3 * 64 * 5, 3), to, rotates):
        nodes, found = schedule.program.nodes, Counter[Link]()
        for node in (nodes[i] for i in schedule.live if nodes[i].op is SEND):
            if node.layer in SECOND_RELU:
                sender = nodes[node.args[0]].party
                found[node.phase, sender, node.party] += node.type.message_bytes(node.elements)
        # The replica of a ReLU's result is in the price of the product that reads it.
        links = Counter(predicted[4].links) + Counter(predicted[5].links)
        told = replace(predicted[4], links=links)
        own = replace(predicted[4], links=found)
        assert own.sent_by(Phase.OFFLINE) == told.sent_by(Phase.OFFLINE)
        for phase, sender, receiver in found | links:
            link = phase, sender, receiver
            assert phase is not Phase.ONLINE or found[link] == links[link]


# What is computed


def every(window: int, op: Callable[[SecretProgram], None]) -> SecretProgram:
    """A program on each integer that a window has, x, in a ring of 24 bits."""
    size = (1 << window) - 1
    argument = Argument("x", "input", "alice", Tensor((size,), Encoding(24, 0)), ANY)
    made = SecretProgram.create(context(), [argument], {})
    op(made)
    return made


def relu(made: SecretProgram) -> None:
    with made.at("y"):
        y = ops.Relu.build(made.block.arguments[0], range=ANY, window_bits=8, dropped_bits=0)
    made.finish({"y": y})


def step(made: SecretProgram) -> None:
    with made.at("y"):
        y = ops.Step.build(made.block.arguments[0], range=ANY, window_bits=8, dropped_bits=0)
    made.finish({"y": y})


def round_off(made: SecretProgram) -> None:
    with made.at("y"):
        stated = Stated(ring_bits=24)
        y = ops.RoundOff.build(made.block.arguments[0], range=ANY, stated=stated, bits=7)
    made.finish({"y": y})


def expanded(program: SecretProgram, target: Target) -> Expanded:
    """With masks that hide each message."""
    found = expand_protocols(program, target, choices=ChooseProtocols(target).run(program))
    verify_masking(batch_rounds(found.program), coalitions(target), asked(found.program))
    return found


@pytest.mark.parametrize("op", [relu, step, round_off])
def test_the_second_comparison_is_exact(
    additive: Suite, op: Callable[[SecretProgram], None]
) -> None:
    program = every(8, op)
    x = np.arange(-128, 127, dtype=np.int64)
    wanted = meaning.evaluate(program, {"x": x}).integers["y"]
    by_merges, by_ripple = (expanded(program, two(compare=v)) for v in ("merges", "ripple"))
    for seed, found in enumerate((by_merges, by_ripple)):
        draws = uniform_draws(np.random.default_rng(seed))
        done = evaluate(found.program, {"x": x.view(np.uint64)}, draws, found.constants)
        y = done.outputs[0, "y"].astype(np.int64)
        np.testing.assert_array_equal((y + (1 << 23)) % (1 << 24) - (1 << 23), wanted)
    rounds = [batch_rounds(f.program).rounds[Phase.ONLINE] for f in (by_merges, by_ripple)]
    assert rounds[1] > rounds[0]


X = np.array([[0.5, -1.0, 2.0, 0.25]], np.float32)


def compiled(network: str, **options: object) -> tuple[veilgraph.Plan, veilgraph.Weights]:
    parties = {"suite": "additive", "parties": ("alice", "bob"), "dealer": "dora"}
    return veilgraph.compile(
        PERCEPTRON, calibrate={"x": X[np.newaxis]}, network=network, **parties, **options
    )


@pytest.mark.parametrize(
    ("figures", "variant"), [(FAST, "ripple"), (FAR, "merges")], ids=["fast", "far"]
)
def test_a_plan_has_what_its_network_asks_for(
    additive: Suite, tmp_path: Path, figures: tuple[float, float], variant: str
) -> None:
    plan, weights = compiled(network_file(tmp_path, figures))
    told = [layer.protocol for layer in plan.layers if layer.name == "hidden"]
    assert f"compare={variant}" in told
    assert veilgraph.verify(plan)
    w, v = (np.asarray(weights[name], np.float64) for name in sorted(weights, reverse=True))
    done = veilgraph.simulate(plan, weights, {"x": X})
    np.testing.assert_allclose(done.outputs["y"], np.maximum(X @ w, 0) @ v, atol=0.01)


def test_by_hand(additive: Suite, tmp_path: Path) -> None:
    far = network_file(tmp_path, FAR)
    plan, _ = compiled(far, protocols={"compare": "ripple"})
    assert plan.manifest.options["protocols"] == {"compare": "ripple"}
    assert {layer.protocol for layer in plan.layers} == {"", "compare=ripple"}
    assert veilgraph.verify(plan)
    by_price, _ = compiled(far)
    assert by_price.manifest.options["protocols"] == {}
    assert plan.rounds(Phase.ONLINE) > by_price.rounds(Phase.ONLINE)
    assert sum(plan.sent_bytes(Phase.OFFLINE).values()) < sum(
        by_price.sent_bytes(Phase.OFFLINE).values()
    )


# What is refused


@pytest.mark.parametrize(
    ("options", "protocols", "message", "hint"),
    [
        (
            {},
            {"gelu": "ripple"},
            "Suite additive has no protocol for `gelu`.",
            "It has several for compare, one_hot, masked_function, masked_exp.",
        ),
        (
            {},
            {"compare": "lines"},
            "Suite additive has no variant `lines` of `compare`.",
            "Here `compare` is one of merges, ripple.",
        ),
        (
            {"suite": "rep3", "parties": None, "dealer": None},
            {"compare": "ripple"},
            "Suite rep3 has no variant `ripple` of `compare`.",
            "Suite additive has it. Here `compare` is one of merges, least-bits, table, tree.",
        ),
        (
            {"suite": "cleartext", "parties": ("alice",), "dealer": None},
            {"compare": "ripple"},
            "Suite cleartext has no protocol for `compare`.",
            "It has one protocol for each op: leave out --protocol.",
        ),
    ],
)
def test_what_a_suite_does_not_have(
    additive: Suite,
    options: dict[str, object],
    protocols: dict[str, str],
    message: str,
    hint: str,
) -> None:
    given = {"suite": "additive", "parties": ("alice", "bob"), "dealer": "dora", **options}
    with pytest.raises(UsageError) as refused:
        target(**given, protocols=protocols)
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_parties_that_a_variant_is_not_for(additive: Suite) -> None:
    additive.protocol("relu", variant="pair", needs=Needs(computing=2))(ripple)
    three = ("alice", "bob", "carol")
    with pytest.raises(UsageError) as refused:
        target("additive", three, dealer="dora", protocols={"relu": "pair"})
    assert refused.value.message == (
        "relu=pair can't be taken: it is for at most 2 computing parties, and 3 are named."
    )
    assert refused.value.hint == "Here `relu` is one of standard, pair."


def test_a_provider_that_a_variant_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    rep3 = copy_of("rep3", monkeypatch)
    rep3.protocol("relu", variant="dealt", needs=Needs(provider=True))(ripple)
    with pytest.raises(UsageError, match="needs a party that deals correlated randomness"):
        target("rep3", protocols={"relu": "dealt"})
    assert [variant.name for variant in target("rep3").variants("relu")] == ["standard"]


def test_a_ring_that_a_variant_does_not_take(additive: Suite) -> None:
    relu = additive.offered("relu")
    additive.protocol("relu", variant="narrow", needs=Needs(ring_bits=32))(relu)
    assert chosen(relus(SMALL), two(relu="narrow")) == ["relu=narrow, compare=merges"]
    with pytest.raises(UsageError) as refused:
        ChooseProtocols(two(relu="narrow")).run(relus(SMALL, ring_bits=40))
    assert refused.value.message == (
        "relu=narrow takes rings of at most 32 bits, and 'relu0' is in one of 40."
    )
    assert refused.value.hint == "Take a narrower --ring, or leave out --protocol."


def test_a_variant_has_a_name_of_its_own(additive: Suite) -> None:
    with pytest.raises(AssertionError, match="two protocols for compare that are called ripple"):
        additive.protocol("compare", variant="ripple")(ripple)
