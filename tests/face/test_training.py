"""Plans that train: against torch, in both suites; what is revealed, what it costs, what is
refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from onnx import parser
from torch import nn
from training_cases import (
    BATCH,
    DATA,
    RATE,
    ROWS,
    STEPS,
    SUITES,
    WITH_CLEARTEXT,
    Perceptron,
    X,
    Y,
    by_torch,
    logistic,
    trained,
)

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import AccuracyError, UnsupportedError, UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.training import TRAINING
from veilgraph.reports.units import size
from veilgraph.runtime.simulate import simulate_many
from veilgraph.targets.suites import SUITES as SUITES_BY_NAME
from veilgraph.training.batches import orders
from veilgraph.training.plan_steps import step_bytes


def schedule(step: int) -> float:
    return RATE if step < STEPS // 2 else RATE / 2


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("kind", ["logistic", "perceptron"])
def test_it_trains_as_torch_does(kind: str, suite: str) -> None:
    """A rate that changes, momentum, weight decay; plans that hosts verify."""
    plan, weights = trained(kind, suite)
    veilgraph.verify(plan)
    found = veilgraph.simulate_training(plan, weights, DATA, rate=schedule, steps=STEPS)
    losses, parameters = by_torch(kind, [schedule(step) for step in range(STEPS)])
    assert np.abs(np.array(found.losses) - losses).max() < 0.1
    assert found.parameters.keys() == parameters.keys()
    for name, wanted in parameters.items():
        assert np.abs(found.parameters[name] - wanted).max() < 0.05


def test_evaluations_are_the_models() -> None:
    """Of each row, though the last do not fill a batch."""
    plan, weights = trained("perceptron", "rep3")
    found = veilgraph.simulate_training(
        plan, weights, DATA, rate=RATE, steps=2, evaluate={"x": X[: 2 * BATCH + 3]}
    )
    assert [len(outputs["output"]) for outputs in found.outputs] == [BATCH, BATCH, 3]
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    states = [torch.tensor(array) for array in found.parameters.values()]
    module.load_state_dict(dict(zip(module.state_dict(), states, strict=True)))
    wanted = module(torch.from_numpy(X[: 2 * BATCH + 3])).detach().numpy()
    assert np.abs(np.concatenate([o["output"] for o in found.outputs]) - wanted).max() < 0.05


def test_a_step_compares_as_often_as_its_forward_pass() -> None:
    """The ReLU's bit masks the derivative. The softmax has one comparison, as an inference does."""
    counts = {}
    for kind in ("logistic", "perceptron"):
        plan, _ = trained(kind, "rep3", told=False)
        ops = Counter(re.findall(r'"secret\.(\w+)"', plan.ir["secret.step"]))
        counts[kind] = sum(ops[name] for name in ("step", "relu", "truncate_relu", "maximum"))
    assert counts["perceptron"] == counts["logistic"] + 1


class Signed(nn.Module):
    """A ReLU, and its sign written out beside it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.hidden, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.hidden(x)
        return self.last((h >= 0).float() * h + 0.5 * torch.relu(h))


def test_a_sign_that_a_model_writes_out_is_the_relus_bit() -> None:
    """`h >= 0` compares h and not h - 0, so that both are one comparison."""
    plan, _ = veilgraph.compile_training(
        Signed().train(), DATA, loss="cross_entropy", batch=BATCH, steps=2, audit=False
    )
    text = plan.ir["secret.step"]
    other, _ = trained("perceptron", "rep3", told=False)
    kinds = ("step", "relu", "truncate_relu", "maximum")
    counts = [
        sum(Counter(re.findall(r'"secret\.(\w+)"', found))[name] for name in kinds)
        for found in (text, other.ir["secret.step"])
    ]
    assert counts[0] == counts[1]


def test_all_entries_become_protocols_once_and_together(tmp_path: Path) -> None:
    plan, _ = veilgraph.compile_training(
        logistic(), DATA, loss="cross_entropy", batch=BATCH, steps=2, dump_phases=tmp_path
    )
    (only,) = tmp_path.glob("*.party")
    assert only.name.endswith("-join_entries.party")
    assert only.read_text() == plan.ir["party"]
    assert max(tmp_path.iterdir()) == only


def test_a_bit_is_made_in_the_ring_that_reads_it() -> None:
    plan, _ = trained("perceptron", "rep3", told=False)
    text = plan.ir["secret.step"]
    bits = re.findall(r'(%\w+) = "secret\.step"', text)
    lifted = re.findall(r'"secret\.lift"\((%\w+)\)', text)
    assert bits
    assert not set(bits) & set(lifted)


@pytest.mark.parametrize("suite", SUITES)
def test_each_step_sends_what_the_plan_says(suite: str) -> None:
    plan, weights = trained("logistic", suite)
    factors = veilgraph.SGD(0.5, 0.01).values(RATE, RATE, BATCH, 0)
    batch = {"x": X[:BATCH], "labels": np.eye(3, dtype=np.float32)[Y[:BATCH]], **factors}
    answer = simulate_many(plan, weights, [{}, batch, batch], entries=["start", "step", "step"])
    step = plan.manifest.entries.index("step")
    for phase in (Phase.OFFLINE, Phase.ONLINE):
        predicted = plan.sent_bytes(phase, step)
        for run in answer.runs[1:]:
            sent = sum(sum(t.phases[phase].sent_bytes.values()) for t in run.transcripts.values())
            assert sent == sum(predicted.values())
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=1)
    assert found.step_bytes == answer.sent_bytes


def test_nothing_is_revealed_but_factors() -> None:
    """By default nobody receives the loss, an output or the parameters; an audit tells a bit."""
    plan, _ = trained("perceptron", "rep3", told=False)
    assert plan.manifest.entries == ("step", "start", "audit")
    told = {r.what: r.to for r in veilgraph.verify(plan).revealed if r.what.startswith("output")}
    everyone_else = ("bob", "carol")
    factors = {f"output {n}": everyone_else for n in ("step_size", "momentum", "decay")}
    assert told == factors | {"output overflow": ("alice", "bob", "carol")}
    assert set(plan.manifest.states) == {
        f"{layer}.{what}{of}"
        for layer in ("hidden", "last")
        for what in ("weight", "bias")
        for of in ("", ".velocity")
    }


def test_what_is_revealed_is_asked_for() -> None:
    plan, _ = trained("perceptron", "rep3")
    told = {r.what: (r.to, r.depends) for r in veilgraph.verify(plan).revealed}
    assert told["output loss"][0] == ("alice", "bob")
    assert told["output output"][0] == ("bob",)
    to, depends = told["output hidden.weight"]
    assert to == ("alice",)
    assert {"hidden.weight", "x", "labels", "weights"} <= set(depends)


@pytest.mark.parametrize("suite", WITH_CLEARTEXT)
def test_an_audit_tells_one_bit_of_all_states(suite: str) -> None:
    """0 as training begins; 1 where it begins far outside of what the rehearsal saw."""
    plan, weights = veilgraph.compile_training(
        Perceptron().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        optimizer=veilgraph.SGD(momentum=0.5),
        rate=RATE,
        steps=5,
        **WITH_CLEARTEXT[suite],
    )
    veilgraph.verify(plan)
    told = next(r for r in veilgraph.verify(plan).revealed if r.what == "output overflow")
    assert (told.numbers, told.to) == (1, plan.manifest.computing)
    assert {*plan.manifest.states} <= set(told.depends)
    number = plan.manifest.entries.index("audit")
    for factor, wanted in ((1, 0), (30, 1)):
        begins = {name: factor * array for name, array in weights.items()}
        answer = simulate_many(plan, begins, [{}, {}], entries=["start", "audit"])
        assert answer.runs[1].outputs["overflow"].tolist() == [wanted]
        for phase in (Phase.OFFLINE, Phase.ONLINE):
            transcripts = answer.runs[1].transcripts.values()
            sent = sum(sum(t.phases[phase].sent_bytes.values()) for t in transcripts)
            assert sent == sum(plan.sent_bytes(phase, number).values())


def test_an_overflow_ends_a_simulated_training() -> None:
    plan, weights = trained("logistic", "rep3")
    with pytest.raises(AccuracyError, match="After step 150 a parameter, or what goes with one"):
        veilgraph.simulate_training(plan, weights, DATA, rate=2 * RATE, steps=150)


@pytest.mark.parametrize("weights", ["public", "shared"])
def test_the_start_is_public_or_from_shares(weights: str) -> None:
    plan, values = veilgraph.compile_training(
        logistic(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        steps=3,
        reveal={"parameters": "carol"},
        owners={"weights": weights},
    )
    veilgraph.verify(plan)
    found = veilgraph.simulate_training(plan, values, DATA, rate=RATE, steps=1)
    assert found.parameters["w"].any()


def test_other_losses_and_frozen_layers() -> None:
    """Squared errors of a frozen first layer; a step as float32 makes it."""
    wanted = np.eye(3, dtype=np.float32)[Y]
    plan, weights = veilgraph.compile_training(
        Perceptron().train(),
        {"x": X, "labels": wanted},
        loss="mse",
        batch=BATCH,
        steps=10,
        freeze=["hidden.*"],
        reveal={"parameters": "alice"},
    )
    veilgraph.verify(plan)
    assert set(plan.manifest.states) == {"last.weight", "last.bias"}
    found = veilgraph.simulate_training(
        plan, weights, {"x": X, "labels": wanted}, rate=RATE, steps=10
    )
    module = Perceptron()
    for parameter in module.hidden.parameters():
        parameter.requires_grad = False
    optimizer = torch.optim.SGD(module.last.parameters(), RATE)
    for order, _ in zip(orders(len(X), BATCH, 0), range(10), strict=False):
        optimizer.zero_grad()
        z = module(torch.from_numpy(X[order]))
        nn.functional.mse_loss(z, torch.from_numpy(wanted[order])).backward()
        optimizer.step()
    difference = found.parameters["last.weight"] - module.last.weight.detach().numpy()
    assert np.abs(difference).max() < 0.03


@pytest.mark.parametrize("suite", SUITES)
def test_nesterovs_momentum_and_a_clipped_norm(suite: str) -> None:
    """Against torch, some gradients longer than the norm and some not; plans that hosts verify."""
    plan, weights = veilgraph.compile_training(
        Perceptron().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        optimizer=veilgraph.SGD(momentum=0.5, nesterov=True),
        clip_norm=0.45,
        rate=RATE,
        steps=STEPS,
        reveal={"parameters": "alice"},
        **SUITES[suite],
    )
    veilgraph.verify(plan)
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=STEPS)
    module, lengths = Perceptron(), []
    optimizer = torch.optim.SGD(module.parameters(), RATE, momentum=0.5, nesterov=True)
    for order, _ in zip(orders(len(X), BATCH, 0), range(STEPS), strict=False):
        optimizer.zero_grad()
        z = module(torch.from_numpy(X[order]))
        nn.functional.cross_entropy(z, torch.tensor(Y[order])).backward()
        lengths.append(nn.utils.clip_grad_norm_(module.parameters(), 0.45).item())
        optimizer.step()
    assert min(lengths) < 0.45 < max(lengths)
    for name, parameter in module.named_parameters():
        assert np.abs(found.parameters[name] - parameter.detach().numpy()).max() < 0.03


class Normed(nn.Module):
    """A layer norm and a GELU between parameters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.hidden, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(nn.functional.gelu(self.norm(self.hidden(x))))


class Written(Normed):
    """The same, with its GELU written out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.norm(self.hidden(x))
        return self.last(0.5 * z * (1 + torch.erf(z / 2**0.5)))


def test_an_activation_that_is_written_out_trains_as_the_one_that_it_is() -> None:
    sent = []
    for made in (Normed, Written):
        plan, _ = veilgraph.compile_training(
            made().train(), {"x": X, "labels": Y}, loss="cross_entropy", batch=8, steps=4
        )
        sent.append((plan.rounds(Phase.ONLINE), sum(plan.sent_bytes(Phase.ONLINE).values())))
    assert sent[0][0] == sent[1][0]
    assert sent[0][1] == pytest.approx(sent[1][1], rel=0.01), "a bit more here, one less there"


class Tied(nn.Module):
    """One weight that is read twice, and a parameter of one element."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.shared, self.last = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.shared(torch.tanh(self.shared(x)))))


class TiedLayers(Tied):
    """A module that stands under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.again = self.shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.again(torch.tanh(self.shared(x)))))


class Causal(nn.Module):
    """Attention that looks at nothing later: what is masked has other numbers in float32."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.query, self.last = nn.Linear(2, 2), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.unflatten(1, (3, 2))
        seen = nn.functional.scaled_dot_product_attention(self.query(x), x, x, is_causal=True)
        return self.last(seen.flatten(1))


def test_what_is_revealed_loads_into_a_module_with_tied_weights() -> None:
    """Under each of their names, as load_state_dict asks for."""
    data = {"x": X, "labels": np.float32(Y[:, None] > 0)}
    plan, weights = veilgraph.compile_training(
        TiedLayers().train(),
        data,
        loss="binary_cross_entropy",
        batch=BATCH,
        rate=RATE,
        steps=2,
        reveal={"parameters": "alice"},
    )
    assert {name for name in weights if "again" in name or "shared" in name} != set()
    found = veilgraph.simulate_training(plan, weights, data, rate=RATE, steps=2)
    module = TiedLayers()
    module.load_state_dict({name: torch.tensor(x) for name, x in found.parameters.items()})
    assert torch.equal(module.again.weight, torch.tensor(found.parameters["shared.weight"]))


@pytest.mark.parametrize(
    ("model", "loss", "labels"),
    [
        (Normed, "cross_entropy", Y),
        (Causal, "cross_entropy", Y),
        (Tied, "binary_cross_entropy", np.float32(Y[:, None] > 0)),
    ],
)
def test_layers_that_train(model: type[nn.Module], loss: str, labels: Any) -> None:
    data = {"x": X, "labels": labels}
    plan, weights = veilgraph.compile_training(
        model().train(),
        data,
        loss=loss,
        batch=BATCH,
        rate=RATE,
        steps=STEPS,
        reveal={"parameters": "alice"},
    )
    veilgraph.verify(plan)
    found = veilgraph.simulate_training(plan, weights, data, rate=RATE, steps=STEPS)
    module, before = model(), model()
    of_torch = {
        "cross_entropy": nn.functional.cross_entropy,
        "binary_cross_entropy": nn.functional.binary_cross_entropy_with_logits,
    }
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    for order in islice(orders(len(X), BATCH, 0), STEPS):
        optimizer.zero_grad()
        of_torch[loss](module(torch.from_numpy(X[order])), torch.tensor(labels[order])).backward()
        optimizer.step()
    for (name, after), w in zip(module.named_parameters(), before.parameters(), strict=True):
        moved = np.abs((after - w).detach().numpy()).max()
        assert np.abs(found.parameters[name] - after.detach().numpy()).max() < 0.1 * moved


def adam_by_torch(optimizer: veilgraph.Adam, rate: float, steps: int, most: float) -> nn.Module:
    """Steps whose root is of v + eps^2; torch's is of v alone, to which it adds eps."""
    module = Perceptron()
    means = [(torch.zeros_like(p), torch.zeros_like(p)) for p in module.parameters()]
    (b, c), decay = optimizer.betas, optimizer.weight_decay
    for number, order in enumerate(islice(orders(len(X), BATCH, 0), steps), 1):
        module.zero_grad()
        z = module(torch.from_numpy(X[order]))
        nn.functional.cross_entropy(z, torch.tensor(Y[order])).backward()
        nn.utils.clip_grad_norm_(module.parameters(), most)
        with torch.no_grad():
            for w, (m, v) in zip(module.parameters(), means, strict=True):
                is_apart = isinstance(optimizer, veilgraph.AdamW)
                g = w.grad if is_apart else w.grad + decay * w
                m.mul_(b).add_(g, alpha=1 - b)
                v.mul_(c).add_(g * g, alpha=1 - c)
                root = torch.sqrt(v / (1 - c**number) + optimizer.eps**2)
                w.mul_(1 - rate * decay if is_apart else 1).sub_(rate / (1 - b**number) * m / root)
    return module


@pytest.mark.parametrize(
    ("optimizer", "suite", "most"),
    [
        (veilgraph.Adam(weight_decay=0.01), "rep3", 1e6),
        (veilgraph.AdamW(), "additive", 0.45),
    ],
)
def test_adam(optimizer: veilgraph.Adam, suite: str, most: float) -> None:
    """Against float32, a hundred steps: the means of squares are small, and go on.

    Four trainings, in the mean: one strays from float32 by up to 3.6%, as its roundings fall.
    """
    steps, rate = 100, 0.01
    plan, weights = veilgraph.compile_training(
        Perceptron().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        optimizer=optimizer,
        clip_norm=most if most < 1 else None,
        rate=rate,
        steps=steps,
        reveal={"parameters": "alice"},
        **SUITES[suite],
    )
    veilgraph.verify(plan)
    assert "hidden.weight.square" in plan.manifest.states
    found = [
        veilgraph.simulate_training(plan, weights, DATA, rate=rate, steps=steps).parameters
        for _ in range(4)
    ]
    wanted, before = adam_by_torch(optimizer, rate, steps, most), Perceptron()
    for (name, after), w in zip(wanted.named_parameters(), before.parameters(), strict=True):
        moved = (after - w).detach().numpy()
        off = np.mean([f[name] for f in found], axis=0) - after.detach().numpy()
        assert np.abs(off).mean() < 0.03 * np.abs(moved).mean()
        assert np.abs(off).max() < 0.1 * np.abs(moved).max()


# What is refused


class WithDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.norm = nn.Linear(6, 3), nn.AlphaDropout(0.5), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.drop(self.first(x)))


class DrawsInPassing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.alpha_dropout(self.first(x), 0.5, self.training)


class Floors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.floor(self.first(x)) + torch.round(self.last(x))


def compiled(model: Any = None, data: Any = None, **options: Any) -> Any:
    given = {"loss": "cross_entropy", "batch": BATCH, "steps": 2} | options
    return veilgraph.compile_training(model or logistic(), data or DATA, **given)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"batch": 0}, "A batch of 0 rows"),
    ({"batch": 161}, "There are 160 rows of `x`, and a step takes 161"),
    ({"steps": 0}, "A rehearsal of 0 steps"),
    ({"rate": 0.0}, r"A learning rate of 0.0 makes no sense"),
    ({"rate": float("nan")}, r"A learning rate of nan makes no sense"),
    ({"clip_norm": 0.0}, "A norm of 0.0 makes no sense"),
    ({"clip_norm": float("nan")}, "A norm of nan makes no sense"),
    ({"max_noise": 0.0}, r"A noise of 0.0 can't be allowed"),
    ({"max_error": -1.0}, "An error of -1.0"),
    ({"ring": "wide"}, "A ring of 'wide' bits"),
    ({"reveal": {"y": "alice"}}, "There is no `y` to reveal"),
    ({"reveal": {"loss": "dave"}}, "dave"),
    ({"reveal_as": {"output": "argmax"}}, "Nobody receives an output `output`"),
    ({"owners": {"weights": "dave"}}, "dave"),
    ({"data": {"x": X}}, "There are no rows of `labels`"),
    ({"data": {"x": X, "labels": Y, "z": Y}}, "The model has no input z"),
    ({"data": {"x": X[:150], "labels": Y}}, "Rows are unlike in number: 150 of `x`, 160"),
    ({"data": {"x": X, "labels": Y - 1}}, r"The label of row \d+ is -1, which is no class"),
    ({"data": {"x": X, "labels": Y + 1}}, r"The label of row \d+ is 3, which is no class"),
    ({"data": {"x": X, "labels": Y + 0.5}}, r"The label of row 0 is .*, which is no class"),
    ({"data": {"x": np.where(X > 2.2, np.nan, X), "labels": Y}}, r"Row \d+ of `x` is not finite"),
    ({"data": {"x": X, "labels": np.zeros((160, 4))}}, "Rows of labels have 4 numbers"),
    ({"model": WithDropout().train()}, r"can't be trained in secret: drop \(AlphaDropout\)\."),
    ({"model": WithDropout().eval()}, "is in inference mode"),
]


@pytest.mark.parametrize(("options", "told"), WRONG, ids=[told for _, told in WRONG])
def test_what_makes_no_sense_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        compiled(**options)


def test_what_has_no_derivative_is_told_with_its_name_all_at_once() -> None:
    with pytest.raises(UnsupportedError) as caught:
        compiled(Floors().train())
    assert {offender.operator for offender in caught.value.offenders} == {"floor", "round"}


class Decides(nn.Module):
    """The class of a layer is the input of another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = nn.functional.one_hot(self.first(x).argmax(1), 3)
        return self.last(chosen.float())


@pytest.mark.parametrize(
    ("old", "name", "told"),
    [
        ("output", "overflow", "an output `overflow`, a name that the plan uses itself"),
        ("output", "step_size", "an output `step_size`"),
        ("output", "loss", "an output `loss`"),
        ("w", "overflow", "a parameter `overflow`"),
        ("b", "labels", "a parameter `labels`"),
        ("x", "labels", "an input `labels`"),
    ],
)
def test_names_that_the_plan_uses_itself(old: str, name: str, told: str) -> None:
    """Receivers go by name: an output of that name would go to whom an audit tells."""
    model = logistic()
    for info in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        info.name = name if info.name == old else info.name
    (node,) = model.graph.node
    node.input[:] = [name if each == old else each for each in node.input]
    node.output[:] = [name if each == old else each for each in node.output]
    with pytest.raises(UsageError, match=told):
        compiled(model, {name if n == old else n: x for n, x in DATA.items()})


def test_an_argmax_between_a_parameter_and_the_loss() -> None:
    with pytest.raises(UnsupportedError, match=r"argmax.*It has no derivative"):
        compiled(Decides().train())


def with_batch_norm() -> onnx.ModelProto:
    return parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        normed (float[N, 6] x) => (float[N, 6] output)
        <float[6] g = {1, 1, 1, 1, 1, 1}, float[6] b = {0, 0, 0, 0, 0, 0},
         float[6] mean = {0, 0, 0, 0, 0, 0}, float[6] var = {1, 1, 1, 1, 1, 1}>
        { output = BatchNormalization(x, g, b, mean, var) }"""
    )


def test_running_statistics_of_an_onnx_model_are_no_parameters() -> None:
    with pytest.raises(UsageError, match="statistics of a batch norm would be trained: mean, var"):
        compiled(with_batch_norm())
    labels = np.eye(6, dtype=np.float32)[Y]
    options: dict[str, Any] = {"freeze": ["mean", "var"], "reveal": {"parameters": "alice"}}
    plan, weights = compiled(with_batch_norm(), {"x": X, "labels": labels}, loss="mse", **options)
    assert set(plan.manifest.states) == {"g", "b"}
    rows = {"x": X, "labels": labels}
    found = veilgraph.simulate_training(plan, weights, rows, rate=RATE, steps=2)
    scale, shift = torch.ones(6, requires_grad=True), torch.zeros(6, requires_grad=True)
    optimizer = torch.optim.SGD([scale, shift], RATE)
    for order in islice(orders(ROWS, BATCH, 0), 2):
        x, wanted = torch.tensor(X[order]), torch.tensor(labels[order])
        optimizer.zero_grad()
        normed = nn.functional.batch_norm(x, torch.zeros(6), torch.ones(6), scale, shift)
        nn.functional.mse_loss(normed, wanted).backward()
        optimizer.step()
    assert np.abs(found.parameters["g"] - scale.detach().numpy()).max() < 0.015
    assert np.abs(found.parameters["b"] - shift.detach().numpy()).max() < 0.015


def test_another_dropout_in_passing_is_refused() -> None:
    with pytest.raises((UnsupportedError, UsageError)) as caught:
        compiled(DrawsInPassing().train())
    assert "dropout" in str(caught.value).lower() or "bernoulli" in str(caught.value).lower()


def test_training_that_leaves_float32() -> None:
    with pytest.raises(AccuracyError, match="is not finite after step"):
        compiled(data={"x": 1e4 * X, "labels": np.ones((160, 3))}, loss="mse", rate=10.0, steps=40)


def test_a_suite_without_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES_BY_NAME, "rep3", replace(SUITES_BY_NAME["rep3"], states=None))
    with pytest.raises(UsageError, match="keeps nothing from run to run, so nothing is trained"):
        compiled()


def test_other_plans_do_not_train() -> None:
    plan, weights = trained("logistic", "rep3", told=False)
    stated = plan.manifest.options[TRAINING]
    others = [
        {**stated, "optimizer": wrong}
        for wrong in (1, {"name": "lion"}, {"name": "adam", "betas": 1})
    ]
    for recipe in (None, 3, {"loss": "mse"}, {**stated, "rows": 0}, *others):
        options = {**plan.manifest.options, TRAINING: recipe}
        other = replace(plan, manifest=replace(plan.manifest, options=options))
        with pytest.raises(UsageError, match="This plan does not train"):
            veilgraph.simulate_training(other, weights, DATA, rate=RATE)
    with pytest.raises(UsageError, match="This plan evaluates nothing"):
        veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=1, evaluate={"x": X})
    with pytest.raises(UsageError, match="A learning rate of -1 makes no sense"):
        veilgraph.simulate_training(plan, weights, DATA, rate=-1, steps=1)


def test_a_rate_that_the_plan_would_lose() -> None:
    """Before anything is run, though the rate is of a later step."""
    plan, weights = trained("logistic", "rep3")
    with pytest.raises(UsageError, match=r"The rate 1e-09 of step 3 is too small for this plan: "):
        veilgraph.simulate_training(
            plan, weights, DATA, rate=lambda step: RATE if step < 3 else 1e-9, steps=5
        )


def test_a_rate_that_the_plan_has_no_room_for() -> None:
    """Before anything is run; also one that is too large beside the rate before it."""
    plan, weights = trained("logistic", "rep3")

    def told(*rates: float) -> str:
        def rate(step: int) -> float:
            return rates[min(step, len(rates) - 1)]

        with pytest.raises(UsageError) as error:
            veilgraph.simulate_training(plan, weights, DATA, rate=rate, steps=4)
        assert "rates" in error.value.hint
        return error.value.message

    assert re.match(
        r"The rate 5 of step 2, after 0\.1, is too large for this plan: step_size is 0\.3125, and "
        r"may be (0\.\d+)\.$",
        told(RATE, RATE, 5.0),
    )
    assert "momentum is 5, and may be 1." in told(0.01, RATE)


NO_SENSE: list[tuple[dict[str, Any], str]] = [
    ({"rate": "0.1"}, "A learning rate of '0.1' makes no sense"),
    ({"rate": None}, "A learning rate of None makes no sense"),
    ({"rate": lambda step: None if step else RATE}, "A learning rate of None in step 1 makes no"),
    ({"epochs": 1.5}, r"Training for 1\.5 epochs makes no sense"),
    ({"steps": "4"}, "Training for 4 steps makes no sense"),
    ({"seed": -1}, "A seed of -1 makes no sense"),
    ({"seed": 0.5}, r"A seed of 0\.5 makes no sense"),
    ({"data": [X, Y]}, "Rows have no names"),
    ({"data": {"x": X * 1j, "labels": Y}}, "Rows of `x` are complex64, and must be real numbers"),
    ({"data": {"x": X, "labels": Y.astype(str)}}, "Rows of `labels` are <U21, and must be real"),
    ({"data": {"x": [[1.0], [1.0, 2.0]], "labels": Y}}, "Rows of `x` have different lengths"),
    ({"data": {"x": 1.0, "labels": Y}}, "`x` is one number, and has no rows"),
]


@pytest.mark.parametrize(("options", "told"), NO_SENSE)
def test_what_makes_no_sense_is_told_in_a_sentence(options: dict[str, Any], told: str) -> None:
    plan, weights = trained("logistic", "rep3")
    given = {"data": DATA, "rate": RATE, **options}
    with pytest.raises(UsageError, match=told):
        veilgraph.simulate_training(plan, weights, **given)


# The command line


def files(folder: Path) -> tuple[Path, Path]:
    model, rows = folder / "model.onnx", folder / "rows.npz"
    onnx.save(logistic(), model)
    np.savez(rows, x=X.astype(np.float64), labels=Y)
    return model, rows


WITH = ["--batch", "4", "--calibrate", "rows.npz"]
ADAM = ["--train", "mse", *WITH, "--optimizer", "adam"]


def said(*arguments: str | Path) -> Any:
    return CliRunner().invoke(main, ["compile", *map(str, arguments)])


def test_compile_train_writes_a_plan_that_trains(tmp_path: Path) -> None:
    model, rows = files(tmp_path)
    options = ("--batch", "16", "--momentum", "0.5", "--rehearse", "5", "--owner", "labels=bob")
    told = ("--reveal", "parameters=alice", "--reveal", "loss=bob")
    also = ("--nesterov", "--clip-norm", "5")
    found = said(model, "--train", "cross_entropy", "--calibrate", rows, *options, *told, *also)
    assert found.exit_code == 0, found.output
    plan = veilgraph.Plan.load(tmp_path / "model.plan")
    assert plan.manifest.options[TRAINING]["optimizer"]["nesterov"]
    assert plan.manifest.options[TRAINING]["clip_norm"] == 5
    assert plan.manifest.entries == ("step", "start", "reveal", "audit")
    weights = veilgraph.load_weights(tmp_path / "model.weights", plan)
    trained_ = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=3)
    assert trained_.parameters["w"].any()
    assert len(trained_.losses) == 3


def test_what_adam_costs_is_told_beside_sgd(tmp_path: Path) -> None:
    model, rows = files(tmp_path)
    options = ("--batch", "16", "--rehearse", "5", "--optimizer", "adamw", "--betas", "0.8,0.99")
    options = (*options, "--no-audit")
    found = said(model, "--train", "cross_entropy", "--calibrate", rows, *options)
    assert found.exit_code == 0, found.output
    plan = veilgraph.Plan.load(tmp_path / "model.plan")
    told = re.search(r"A step of adamw sends (.*), offline .* 0.9 would send (.*)\.", found.output)
    assert told
    assert told[1] == size(step_bytes(plan)) != told[2]
    assert plan.manifest.entries == ("step", "start")
    assert plan.manifest.options[TRAINING]["optimizer"] == {
        "name": "adamw",
        "betas": [0.8, 0.99],
        "eps": 1e-3,
        "weight_decay": 0.01,
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batch", "16"], "--batch is said of training, and nothing is trained"),
        (["--nesterov"], "--nesterov is said of training, and nothing is trained"),
        ([*ADAM, "--momentum", "0.9"], "--momentum is no option of adam"),
        ([*ADAM, "--betas", "0.9"], "--betas 0.9 are no two numbers"),
        ([*ADAM, "--eps", "0"], "An eps of 0.0 makes no sense"),
        (["--train", "mse", *WITH, "--eps", "1"], "--eps is no option of sgd"),
        (["--freeze", "w"], "--freeze is said of training, and nothing is trained"),
        (["--no-audit"], "--no-audit is said of training, and nothing is trained"),
        (["--train", "mse", "--compare-errors", "0.1"], "Comparisons are of plans that infer"),
        (["--train", "mse"], "Training is compiled for a batch, and rehearsed on rows"),
        (["--train", "mse", "--avgpool"], "--avgpool has no meaning for a plan that trains"),
        (["--train", "mse", "--batch", "4", "--calibrate", "no.npz"], "no.npz can't be read"),
        (["--train", "mse", "--batch", "4", "--calibrate", "x.npy"], "x.npy holds one array"),
        (["--train", "mse", "--batch", "4", "--calibrate", "text.npz"], "and no .npz file"),
        (["--train", "mse", "--batch", "4", "--calibrate", "words.npz"], "must hold numbers"),
    ],
)
def test_the_command_line_refuses(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, _ = files(tmp_path)
    np.save("x.npy", X)
    Path("text.npz").write_text("rows")
    np.savez("words.npz", x=np.array(["a", "b"]))
    found = said(model, *arguments)
    assert found.exit_code == 2
    assert told in found.output
