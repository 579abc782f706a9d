"""From a model to a plan: the whole pipeline on a page.

Runs where the model's owner is: the weights are known here, and leave in a file of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import Graph, attributes, kind_of, name_of
from veilgraph.ir.legality import CALLS
from veilgraph.ir.party_text import print_program
from veilgraph.ir.plan import (
    DERIVATIVES,
    NO_DERIVATIVES,
    PUBLIC,
    SHARED,
    WEIGHTS,
    Disclosure,
    Manifest,
    Tensor,
)
from veilgraph.ir.secret import Argument, SecretProgram
from veilgraph.ir.secret_types import RangeSource, Secrecy
from veilgraph.ir.secret_types import Tensor as SecretTensor
from veilgraph.models import Model, import_model
from veilgraph.passes.emit_plan import emit_plan, exact_ranges
from veilgraph.passes.lower import LOWERING_VERSION
from veilgraph.passes.pipeline import PIPELINE, Options, Program, Protection, check
from veilgraph.passes.reveal_as import Form, scope
from veilgraph.passes.samples import read_samples
from veilgraph.plans import Plan
from veilgraph.targets.target import Target, target

Weights = dict[str, npt.NDArray[np.float32]]
Samples = Mapping[str, npt.ArrayLike]
Progress = Callable[[str], None]
LISTED = 8  # numbers of a public constant that a disclosure shows
PUBLIC_NUMBERS = "the architecture's, an integer of the model, or asked for with --public"


def compile(
    model: Model,
    *,
    example_inputs: Any = None,
    suite: str = "rep3",
    parties: Sequence[str] | None = None,
    dealer: str | None = None,
    network: str = "lan",
    owners: Mapping[str, str] | None = None,
    receivers: Mapping[str, Sequence[str]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    public: Sequence[str] = (),
    calibrate: str | Path | Samples | None = None,
    ring: int | str = "auto",
    frac_bits: int | None = None,
    max_error: float | None = None,
    avgpool: bool = False,
    reveal_as: str | Mapping[str, str] | None = None,
    trust_ranges: bool = False,
    protect_weights: str = "none",
    dump_phases: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[Plan, Weights]:
    """Compiles an ONNX or a PyTorch model.

    Args:
        model: of ONNX a path, the file's bytes, or a model in memory; of PyTorch a module, an
            exported program, or a `.pt2` archive as path or bytes.
        example_inputs: what a module is exported with: a tensor, a tuple of tensors, or tensors by
            argument name. They are the samples too, where `calibrate` gives none.
        suite: the protocols, hence the security: "rep3", "additive" with a dealer, or "cleartext"
            for tests.
        parties: names in the order P0, P1, ...; alice, bob, carol if None.
        dealer: name of the host that deals correlated randomness, for suites that have one.
        network: "lan", "wan" or a YAML file; what costs are predicted for.
        owners: party by input name; "weights" names all weights. Unless told otherwise the first
            party owns the inputs, and the second the weights. Weights that are "public" lie in the
            plan for every party to read, and what is linear in them costs no message. Of weights
            that are "shared" every party loads shares, which `deal` makes: no party has them.
        receivers: parties by output name; the first party unless told otherwise.
        shapes: shapes of inputs that the model leaves open, by name.
        public: names of the model's own parameters that every party may know: an ONNX initialiser's
            or what a Constant node makes, PyTorch's `fc.bias`. All others are the owner's, single
            numbers included.
        calibrate: samples of all inputs, one array an input with samples on a new first axis, or an
            .npz file of them. Without it ranges are unknown, and the ring is 64 bits wide.
        ring: bits of one ring for all values, a multiple of 8 up to 64, or "auto": a ring for each
            layer, the least bytes that are exact enough.
        frac_bits: fraction bits of every value, in place of those that the encoding chooses.
        max_error: mean error of the outputs, relative to their mean size, that is allowed on the
            samples; 0.005 for "auto" unless told otherwise. With it coarser approximations of real
            functions are tried too, and taken where plans send less.
        avgpool: take average pools in place of max pools.
        reveal_as: "argmax", "topk:5" or "softmax", in place of every output or by output name: the
            last step is computed in secret, and its receiver learns no more than that. `max_error`
            is then that of the numbers a decision is made of.
        trust_ranges: trust that no value leaves its calibrated range with its margin: real
            functions hold there and no further, which saves bytes and comparisons. Otherwise they
            hold wherever an input that is accepted can lead, as far as rings hold it.
        protect_weights: against a receiver who asks equal questions and knows how values were
            rounded: "roles" gives it the role that knows no threshold in every truncation that has
            one (rep3), "exact" rounds by comparisons, after which thresholds say nothing; "none"
            does neither. Functions of a masked opening (GELU, softmax) stay rounded at random, and
            outputs are rounded, in each case.
        dump_phases: a folder for the program's text after each pass.
        progress: called with the name of each pass as it begins.

    Returns:
        The plan, and the weights that their owner keeps (`runtime.weights.save_weights` writes
        them). Of public weights they are what `check` needs, and no run; of shared ones what `deal`
        takes, and they stay where this was called.

    Raises:
        UsageError: an option or a file that makes no sense.
        UnsupportedError: all nodes that can't be compiled.
        AccuracyError: a value that does not fit the ring, or outputs that are off by more than is
            allowed even in rings of 64 bits.
    """
    chosen = target(suite, parties, network, owners, receivers, dealer)
    say = progress or (lambda name: None)
    say("import")
    graph, examples = import_model(model, shapes, example_inputs, public)
    chosen.check_names(list(graph.inputs), list(graph.outputs))
    samples = _samples(examples if calibrate is None else calibrate, graph)
    if max_error is not None and samples is None:
        raise UsageError(
            "A largest error is held on samples, and there are none.", "Give some to --calibrate."
        )
    options = Options(
        samples=samples,
        ring_bits=_ring_bits(ring),
        frac_bits=frac_bits,
        average_pools=avgpool,
        max_error=max_error,
        reveal_as=_forms(reveal_as, list(graph.outputs)),
        trusts_ranges=trust_ranges,
        public=tuple(public),
        protection=_protection(protect_weights, chosen),
    )
    program = Program(chosen, options, graph)
    dump = _Dump(dump_phases)
    for name, _, run in PIPELINE:
        say(name)
        run(program)
        dump.write(name, program)
        check(program)
    say("emit_plan")
    plan = emit_plan(
        program.expanded,
        program.schedule,
        _manifest(program),
        list(_tensors(program.secret, chosen)),
        {
            "graph": program.graph.text(),
            "secret": program.secret.text(),
            "party": print_program(program.expanded.program),
        },
    )
    kept, magnitudes = exact_ranges(program.expanded), tuple(program.ranges.magnitudes)
    plan = replace(plan, ranges=kept, magnitudes=magnitudes)
    return Plan.of(plan), dict(program.secret.weights)


def _forms(given: str | Mapping[str, str] | None, outputs: Sequence[str]) -> dict[str, Form]:
    """What is revealed in place of outputs, by name."""
    if isinstance(given, str):
        given = dict.fromkeys(outputs, given)
    for name in given or {}:
        if name not in outputs:
            raise UsageError(
                f"The model has no output `{name}` to reveal.",
                f"Its outputs are {', '.join(outputs)}.",
            )
    return {name: Form.parse(text) for name, text in (given or {}).items()}


def _protection(given: str, chosen: Target) -> Protection:
    """What is asked for, of what the suite has."""
    try:
        protection = Protection(given)
    except ValueError:
        raise UsageError(
            f"Weights can't be protected by {given!r}.", "Take none, roles or exact."
        ) from None
    if protection is Protection.ROLES and not chosen.suite.safe_role:
        raise UsageError(
            f"In suite {chosen.suite.name} no role is without thresholds to know.",
            "Take --protect-weights exact, or --suite rep3.",
        )
    return protection


def _ring_bits(ring: int | str) -> int | None:
    if ring == "auto":
        return None
    try:
        return int(ring)
    except ValueError:
        raise UsageError(f"A ring of {ring!r} bits makes no sense.", "Use auto or bits.") from None


def _samples(calibrate: str | Path | Samples | None, graph: Graph) -> Weights | None:
    if calibrate is None:
        return None
    shapes = {name: tuple(value.type.shape) for name, value in graph.inputs.items()}
    if isinstance(calibrate, str | Path):
        return read_samples(calibrate, shapes)
    for name, shape in shapes.items():
        given = np.shape(calibrate[name]) if name in calibrate else None
        if given is None or given[1:] != shape:
            raise UsageError(
                f"Samples of `{name}` have shape {given}.",
                f"Give an array of shape (samples, {', '.join(map(str, shape))}).",
            )
    return {name: np.asarray(calibrate[name], np.float32) for name in shapes}


# What people are told


def _manifest(program: Program) -> Manifest:
    chosen, secret = program.target, program.secret
    encodings = [SecretTensor.of(op.operation.results[0]).encoding for op in secret.operations]
    rings = [e for e in encodings if e.secrecy is Secrecy.SECRET]
    inputs = [a.name for a in secret.arguments if a.role == "input"]
    return Manifest(
        veilgraph_version=version("veilgraph"),
        lowering=LOWERING_VERSION,
        suite=chosen.suite.name,
        security=str(chosen.suite.security),
        parties=chosen.everyone,
        dealer=chosen.dealer,
        owners={name: chosen.owner(name) for name in inputs} | {WEIGHTS: chosen.weights_owner},
        receivers={name: chosen.receiver(name) for name in secret.outputs},
        network=dict(asdict(chosen.network)),
        ring_bits=max((e.ring_bits for e in rings), default=64),
        encoding=secret.encoding,
        disclosures=tuple(_disclosures(program)),
        options={
            "ring": program.options.ring_bits or "auto",
            "frac_bits": program.options.frac_bits,
            "max_error": program.options.max_error,
            "avgpool": program.options.average_pools,
            "margin": secret.margin,
            "protect_weights": program.options.protection.value,
            "trust_ranges": program.options.trusts_ranges,
            "public": list(program.options.public),
            "reveal_as": {name: str(form) for name, form in program.options.reveal_as.items()},
        },
    )


def _disclosures(program: Program) -> Iterator[Disclosure]:
    everyone = "every party"
    target, forms = program.target, program.options.reveal_as
    asked = [(name, target.receivers[name], "asked for") for name in target.receivers]
    default = [(n, (target.default_owner,), "the default") for n in program.secret.outputs]
    for name, receivers, why in (*asked, *(d for d in default if d[0] not in target.receivers)):
        alone = f", its {forms[name]} alone" if name in forms else ""
        yield Disclosure(f"output {name}{alone}", ", ".join(receivers), why)
    for asked_alike in program.questions:
        kind = DERIVATIVES if asked_alike.layer else NO_DERIVATIVES
        yield Disclosure(kind, asked_alike.receiver, str(asked_alike))
    yield from _disclosed_weights(program)
    yield Disclosure("the graph: operators, shapes, strides", everyone, "it is in the plan")
    yield Disclosure(
        "ring, fraction bits and window of every tensor, its range to a power of two; what inputs "
        "may be, to 1/16 bit",
        everyone,
        "scales follow from ranges: weights and samples show in them to a power of two; rings also "
        "from how much each layer bears on the outputs",
    )
    if program.options.samples is not None:
        yield Disclosure(
            "the outputs' error on the samples, predicted and measured, to two digits",
            everyone,
            "the plan says how exact it is; the error follows from the weights and the samples",
        )
    if any(kind_of(op) in CALLS for op in program.graph.operations):
        yield Disclosure(
            "the interval on which each real function holds, to 1/16 bit",
            everyone,
            "its coefficients, bounds and thresholds follow from its operand's range and margin",
        )
    rankings = tuple(scope(name, form) for name, form in forms.items())
    for op in program.graph.operations:
        # The tables that a ranking is made of follow from what was asked for.
        if kind_of(op) == "constant" and not name_of(op).startswith(rankings):
            numbers = np.asarray(attributes(op)["value"]).ravel()
            what = f"constant {name_of(op)} = {_listed(numbers)}"
            yield Disclosure(what, everyone, PUBLIC_NUMBERS)


def _disclosed_weights(program: Program) -> Iterator[Disclosure]:
    """To whom they are disclosed where no party owns them."""
    owner, count = (
        program.target.weights_owner,
        sum(a.size for a in program.secret.weights.values()),
    )
    what = f"the weights: all {count} numbers, as they are encoded"
    if owner == PUBLIC:
        yield Disclosure(what, "every party", "asked for; they are in the plan")
    if owner == SHARED:
        parties, least = program.target.parties, program.target.coalition + 1
        who = "all parties" if least == len(parties) else f"any {least} parties"
        yield Disclosure(
            what,
            f"{who} together" if least > 1 else parties[0],
            "asked for: their files hold shares, at any time; the file of one dealing alone says "
            "nothing",
        )


def _listed(numbers: npt.NDArray[Any]) -> str:
    """The first of them, and how many there are."""
    if numbers.size <= LISTED:
        return str(numbers.tolist())
    shown = ", ".join(map(str, numbers[:LISTED].tolist()))
    return f"[{shown}, ...], {numbers.size} numbers"


def _tensors(secret: SecretProgram, chosen: Target) -> Iterator[Tensor]:
    """Inputs, weights and outputs, their places still open."""
    for argument in secret.arguments:
        if argument.owner == PUBLIC:
            continue  # a constant
        low, high = _accepted(argument, secret.margin)
        encoding = argument.tensor.encoding
        yield Tensor(
            argument.name,
            argument.tensor.shape,
            encoding.ring_bits,
            encoding.frac_bits,
            argument.owner,
            0,
            low,
            high,
        )
    for name, value in secret.outputs.items():
        tensor = SecretTensor.of(value)
        encoding = tensor.encoding
        owner = ",".join(chosen.receiver(name))
        yield Tensor(name, tensor.shape, encoding.ring_bits, encoding.frac_bits, owner, 0)


def _accepted(argument: Argument, margin: float) -> tuple[float, float]:
    """What an owner may give: the range, with its margin where samples showed it."""
    found = argument.range
    if argument.role == "weight" or found.source is RangeSource.ASSUMED:
        return float("-inf"), float("inf")
    if found.source is RangeSource.PROVEN:
        return found.low, found.high
    return found.widened(margin)


class _Dump:
    """The text of the level that a pass works on, numbered in order."""

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = Path(folder) if folder is not None else None
        self.count = 0
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, program: Program) -> None:
        if self.folder is None:
            return
        self.count += 1
        if hasattr(program, "expanded"):
            text, suffix = print_program(program.expanded.program), "party"
        elif hasattr(program, "secret"):
            text, suffix = str(program.secret.module), "secret.mlir"
        else:
            text, suffix = program.graph.text(), "graph.mlir"
        file = self.folder / f"{self.count:02}-{name.replace(' ', '-')}.{suffix}"
        file.write_text(text)
