"""expand_protocols: each secret op becomes the messages and local steps of its protocol in the
suite.

    before:  %2 = secret.truncate %1 {bits = 12}
    after:   %7 = draw @carol   %9 = send %8 @alice   ...   (rep3: two rounds)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

from veilgraph.ir.errors import UsageError
from veilgraph.ir.meaning.integers import encode
from veilgraph.ir.party.program import Program, Value, copies
from veilgraph.ir.plan.tables import COMMON, PUBLIC, SHARED, STATE, Phase
from veilgraph.ir.roles import given_by
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.ir.secret.ops import Constant, SecretOp, Truncate, attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RealRange, Secrecy, Tensor
from veilgraph.ir.types import MAX_RING_BITS, Type, words
from veilgraph.passes.secret.function_protocols import form_of, operation_of, public_table
from veilgraph.passes.secret.keep_states import recoding
from veilgraph.targets.parties import Form, Member, Operation, Parties, Sharing
from veilgraph.targets.suite import States
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Variant


@dataclass(frozen=True)
class Chosen:
    """The protocols of one op.

    Attributes:
        protocols: by the name of an op or of a building block.
        next_best: what would have been taken else, as `compare=table`; empty without a choice.
        next_best_seconds: how much longer than with what was chosen; less than 0 where seconds are
            not what was chosen by.
    """

    protocols: Mapping[str, Variant]
    next_best: str = ""
    next_best_seconds: float = 0.0


@dataclass(frozen=True)
class Choices:
    """The protocols of a program.

    Attributes:
        of: by the value that an op makes; of others the target's, or the suite's first.
        rotates: whether parties rotate through the roles of protocols.
    """

    of: Mapping[ir.Value, Chosen] = field(default_factory=dict)
    rotates: bool = True


NO_STATES: Mapping[str, str] = {}
NO_ENCODINGS: Mapping[str, Encoding] = {}


@dataclass(frozen=True)
class LayerNote:
    """What the secret level knows of a layer: its op, encoding and range."""

    name: str
    op: str
    tensor: Tensor | None = None
    range: RealRange | None = None
    protocol: str = ""  # of what there was a choice of: `compare=merges`
    chosen: Chosen | None = None


@dataclass
class Expanded:
    """A party-level program, its public tensors, and a note on each of its layers."""

    program: Program
    constants: list[npt.NDArray[np.int64]] = field(default_factory=list)
    constant_rings: list[int] = field(default_factory=list)
    notes: list[LayerNote] = field(default_factory=lambda: [LayerNote("", "")])


@dataclass
class Common:
    """What entries of one program have together.

    Attributes:
        made: what a suite made of sharings, of weights' too.
        numbers: of public tensors, by what they are.
        weights: their sharings, by name, encoding and value.
        arguments: the weights, under the names that they have in the plan.
        values: the weights' own, by those names.
        taken: names of entries' inputs.
        shared_as: the weights' names in the plan, where `weights` has their sharings.
        names: of weights that an entry names otherwise than the plan, by entry and own name.
    """

    expanded: Expanded
    made: dict[Sharing, Any] = field(default_factory=dict)
    numbers: dict[tuple[int, tuple[int, ...], bytes], int] = field(default_factory=dict)
    weights: dict[tuple[str, Tensor, bytes], Sharing] = field(default_factory=dict)
    arguments: list[Argument] = field(default_factory=list)
    values: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    shared_as: dict[tuple[str, Tensor, bytes], str] = field(default_factory=dict)
    names: dict[str, dict[str, str]] = field(default_factory=dict)

    @staticmethod
    def of(target: Target) -> Common:
        return Common(Expanded(Program(target.everyone)))

    def fresh_name(self, name: str, entry: str) -> str:
        """A weight's name in the plan: its own, if no entry has another weight or input of it."""
        return f"{entry}.{name}" if name in self.values or name in self.taken else name


def expand_protocols(
    secret: SecretProgram,
    target: Target,
    fixed_roles: bool = False,
    choices: Choices | None = None,
    states: Mapping[str, str] = NO_STATES,
) -> Expanded:
    """The program of all parties, in the target's suite.

    Args:
        fixed_roles: the receiver's role is that which knows no threshold, in every truncation that
            has one.
        choices: protocols of its ops; the target's, or the suite's first, if None.
        states: of each state, the output that it is in the next run.
    """
    entry = Entry("", secret, states, choices or Choices())
    return _Expansion(Common.of(target), entry, target, fixed_roles).run()


@dataclass(frozen=True)
class Entry:
    """One of several programs over the same weights and states, or the only one.

    Attributes:
        name: "" of a program that is alone.
        states: of each state that it keeps, by name, the output that it is in the next run.
        choices: as for `expand_protocols`.
    """

    name: str
    secret: SecretProgram
    states: Mapping[str, str]
    choices: Choices


def expand_entries(
    entries: Sequence[Entry],
    target: Target,
    fixed_roles: bool,
    kept: Mapping[str, Encoding],
) -> Common:
    """One program of all entries: setup is for all of them, and each reads and keeps its states.

    Args:
        kept: how states are encoded between runs, with as many bits as any entry needs.

    Raises:
        UsageError: an entry that returns what is public.
    """
    common = Common.of(target)
    for entry in entries:
        common.taken |= {a.name for a in entry.secret.arguments if not a.is_weight}
    for number, entry in enumerate(entries):
        with common.expanded.program.in_entry(number):
            _Expansion(common, entry, target, fixed_roles, kept).run()
    return common


def is_revealed(name: str, states: Mapping[str, str], target: Target) -> bool:
    """Whether an output goes to somebody: a state's next value where that was asked for, alone."""
    return name not in states.values() or name in target.receivers


def announced_to(argument: Argument, target: Target) -> tuple[str, ...]:
    """Whom the owner of an input tells it, where it tells every party that computes."""
    return tuple(who for who in target.parties if who != argument.owner)


def givers(argument: Argument, target: Target) -> dict[str, str]:
    """What an input is called at whoever gives it."""
    if argument.is_given_by_all:
        return {given_by(argument.name, who): who for who in target.parties}
    return {argument.name: target.owner(argument.name)}


def given_by_all(
    p: Parties, target: Target, owner: str, name: str, shape: tuple[int, ...], type: Type
) -> Sharing:
    """What each party that computes gives: COMMON, the same numbers, or EACH, a part of its own."""
    given = {}
    for who in target.parties:
        member = target.member(who)
        value = p.program.source("input", given_by(name, who), member.party, shape, type)
        given[p.role(member)] = value
    if owner == COMMON:
        return Sharing((copies(*given.values()),), Form.PUBLIC)
    if len(given) == 1:
        return target.suite.share(p, target.member(target.parties[0]), given[0])
    return Sharing(tuple(given[j] for j in p), Form.ADDITIVE)


def only_receiver(
    secret: SecretProgram, target: Target, states: Mapping[str, str] = NO_STATES
) -> Member | None:
    """The one party that receives outputs and does not have the weights, if it computes."""
    revealed = (name for name in secret.outputs if is_revealed(name, states, target))
    receiving = {who for name in revealed for who in target.receiver(name)}
    asking = receiving - {target.weights_owner}
    alone = len(asking) == 1 and asking <= set(target.parties)
    return target.member(asking.pop()) if alone else None


def truncated_as_revealed(
    secret: SecretProgram, target: Target, states: Mapping[str, str] = NO_STATES
) -> Iterator[tuple[ir.Value, SecretOp]]:
    """What is truncated for one receiver alone: that is done as it is revealed."""
    if target.suite.reveal_truncated is None:
        return
    kept = [secret.outputs[name] for name in states.values()]
    for name, value in secret.outputs.items():
        if value in kept:
            continue
        op = None if isinstance(value, ir.BlockArgument) else value.owner.opview
        is_alone = sum(1 for _ in value.uses) == len(target.receiver(name)) == 1
        if type(op) is Truncate and is_alone and _keeps_range(op):
            yield value, op


class _Expansion:
    def __init__(
        self,
        common: Common,
        entry: Entry,
        target: Target,
        fixed_roles: bool,
        kept: Mapping[str, Encoding] = NO_ENCODINGS,
    ) -> None:
        self.common = common
        self.entry = entry
        self.kept = kept
        self.target = target
        self.program = common.expanded.program
        self.parties = replace(
            target.placed(self.program),
            receiver=only_receiver(entry.secret, target, entry.states),
            fixed_roles=fixed_roles,
            rotates=entry.choices.rotates,
            chosen=target.protocols,
            made=common.made,
            bodies={},
        )
        self.sharings: dict[ir.Value, Sharing] = {}
        self.rounded = dict(truncated_as_revealed(entry.secret, target, entry.states))
        self.tables: dict[tuple[tuple[int, ...], bytes], Sharing] = {}

    def run(self) -> Expanded:
        secret, states = self.entry.secret, self.entry.states
        for value, argument in zip(secret.block.arguments, secret.arguments, strict=True):
            self.sharings[value] = self._argument(argument)
        for op in secret.operations:
            result = op.operation.results[0]
            if result not in self.rounded:
                self.sharings[result] = self._operation(op)
        for name, value in secret.outputs.items():
            if is_revealed(name, states, self.target):
                self._output(name, value)
        for state, name in states.items():
            self._keep(state, secret.outputs[name])
        return self.common.expanded

    def _argument(self, argument: Argument) -> Sharing:
        if argument.owner == PUBLIC:
            return self._public(argument)
        note = LayerNote(argument.name, argument.role, argument.tensor, argument.range)
        if argument.owner == STATE:
            with self._layer(note):
                return self._state(argument)
        if argument.is_given_by_all:
            with self._layer(note), self.program.in_phase(Phase.ONLINE):
                tensor, name = argument.tensor, argument.name
                type, owner = words(tensor.encoding.ring_bits), argument.owner
                return given_by_all(self.parties, self.target, owner, name, tensor.shape, type)
        if argument.is_announced:
            with self._layer(note), self.program.in_phase(Phase.ONLINE):
                return self._announced(argument)
        phase = Phase.SETUP if argument.is_weight else Phase.ONLINE
        with self._layer(note), self.program.in_phase(phase):
            return self._weight(argument) if argument.is_weight else self._shared(argument)

    def _shared(self, argument: Argument) -> Sharing:
        """What an owner shares, or what all parties have shares of already."""
        name, shape, suite = argument.name, argument.tensor.shape, self.target.suite
        type = words(argument.tensor.encoding.ring_bits)
        if argument.owner == SHARED:
            return suite.from_shares(self.parties, name, shape, type)
        source = self.target.member(argument.owner)
        value = self.program.source(argument.role, name, source.party, shape, type)
        return replace(suite.share(self.parties, source, value), known=value)

    def _announced(self, argument: Argument) -> Sharing:
        """What its owner tells every party that computes: to them it is an output."""
        encoding, owner = argument.tensor.encoding, self.target.member(argument.owner).party
        shape, type = argument.tensor.shape, words(encoding.ring_bits)
        given = value = self.program.source(argument.role, argument.name, owner, shape, type)
        for receiver in announced_to(argument, self.target):
            party = self.target.member(receiver).party
            told = self.program.send(given, owner, party, declared="reveal")
            self.program.output(told, party, argument.name, encoding.frac_bits)
            value = copies(value, told)
        return Sharing((value,), Form.PUBLIC)

    def _state(self, argument: Argument) -> Sharing:
        """As runs find it, in the encoding that this entry computes with."""
        name, encoding = argument.name, argument.tensor.encoding
        found = self.kept.get(name, encoding)
        shape, type = argument.tensor.shape, words(found.ring_bits)
        kept = self._states.found(self.parties, name, shape, type)
        return self._recoded(kept, found, encoding)

    def _recoded(self, x: Sharing, found: Encoding, wanted: Encoding) -> Sharing:
        """The same real numbers in another encoding; public ones where there is one already."""
        for step in recoding(found, wanted):
            operation = Operation(step.name, x.shape, wanted.ring_bits, step.attrs)
            x = self.target.suite.called(self.parties, step.name)(self.parties, operation, x)
        return x

    @property
    def _states(self) -> States:
        found = self.target.suite.states
        assert found is not None, "a program with states is of a suite that has some"
        return found

    def _weight(self, argument: Argument) -> Sharing:
        """Shared once for all entries in which it is the same."""
        tensor, real = argument.tensor, self.entry.secret.weights.get(argument.name)
        # A program that was read from text has no values.
        value = (
            b"" if real is None or not self.entry.name else hashlib.sha256(real.tobytes()).digest()
        )
        key = (argument.name, tensor, value)
        if key not in self.common.weights:
            named = replace(argument, name=self.common.fresh_name(argument.name, self.entry.name))
            self.common.arguments.append(named)
            self.common.shared_as[key] = named.name
            if real is not None:
                self.common.values[named.name] = real
            self.common.weights[key] = self._shared(named)
        if (shared_as := self.common.shared_as[key]) != argument.name:
            self.common.names.setdefault(self.entry.name, {})[argument.name] = shared_as
        return self.common.weights[key]

    def _public(self, argument: Argument) -> Sharing:
        """A weight that every party has: a constant of the plan."""
        encoding = argument.tensor.encoding
        real = self.entry.secret.weights[argument.name]
        integers = encode(real, encoding.frac_bits, encoding.ring_bits)
        return Sharing((self._constant(integers, argument.tensor),), Form.PUBLIC)

    def _operation(self, op: ir.OpView) -> Sharing:
        tensor = Tensor.of(op.operation.results[0])
        if isinstance(op, Constant):
            return Sharing((self._constant(attributes_of(op)["value"], tensor),), Form.PUBLIC)
        name, operation = op.operation.name.removeprefix("secret."), operation_of(op)
        place = op.location.name_str if isinstance(op.location, ir.Location) else ""
        note = LayerNote(place, name, tensor, RealRange.of(op))
        chosen = self.entry.choices.of.get(op.operation.results[0])
        protocols = self.target.protocols if chosen is None else chosen.protocols
        parties, suite = replace(self.parties, chosen=protocols, used={}), self.target.suite
        operands = [self.sharings[value] for value in op.operation.operands]
        operands += self._tables(form_of(op))
        with self._layer(note):
            protocol = suite.called(parties, operation.name, place)
            result: Sharing = protocol(parties, operation, *operands)
        told = suite.choices(parties.used)
        self.common.expanded.notes[-1] = replace(note, protocol=told, chosen=chosen)
        return result

    def _tables(self, form: FunctionForm | None) -> Iterator[Sharing]:
        """Of a real function; equal ones are one sharing, of which a suite makes things once."""
        for table in form.tables() if form else ():
            key = table.shape, table.tobytes()
            if key not in self.tables:
                tensor = Tensor(table.shape, Encoding(MAX_RING_BITS, 0, Secrecy.PUBLIC))
                self.tables[key] = public_table(self._constant(table, tensor))
            yield self.tables[key]

    def _constant(self, value: npt.NDArray[np.int64], result: Tensor) -> Value:
        type = words(result.encoding.ring_bits)
        if value.size and (value == value.flat[0]).all():
            return self.program.const(int(value.flat[0]), result.shape, type)
        key = type.bits, value.shape, value.tobytes()
        numbers, expanded = self.common.numbers, self.common.expanded
        if key not in numbers:
            numbers[key] = len(expanded.constants)
            expanded.constants.append(value)
            expanded.constant_rings.append(type.bits)
        return self.program.constant(numbers[key], result.shape, type)

    def _output(self, name: str, value: ir.Value) -> None:
        tensor = Tensor.of(value)
        for receiver in self.target.receiver(name):
            member = self.target.member(receiver)
            with self._layer(LayerNote(name, "reveal", tensor)):
                clear = self._revealed(member, value)
                if self.program.entry and clear.phase == Phase.SETUP:
                    raise UsageError(
                        f"Entry `{self.entry.name}` returns `{name}`, which is public.",
                        "Leave it out: nothing has to be computed for it.",
                    )
                self.program.output(clear, member.party, name, tensor.encoding.frac_bits)

    def _keep(self, state: str, value: ir.Value) -> None:
        """For the next run; every party of a sharing keeps its parts."""
        note = LayerNote(state, "keep", Tensor.of(value))
        with self._layer(note):
            x, found = self.sharings[value], Tensor.of(value).encoding
            wanted = self.kept.get(state, found)
            if x.form.is_public:
                x = self._encoded(value, wanted)
            else:
                x = self._recoded(x, found, wanted)
            self._states.keep(self.parties, state, x)

    def _encoded(self, value: ir.Value, wanted: Encoding) -> Sharing:
        """What every party knows from the plan, encoded anew."""
        tensor, secret = Tensor.of(value), self.entry.secret
        if isinstance(value, ir.BlockArgument):
            real = secret.weights[secret.arguments[value.arg_number].name]
        else:
            integers = attributes_of(value.owner.opview)["value"]
            real = np.ldexp(integers.astype(np.float64), -tensor.encoding.frac_bits)
        integers = encode(np.asarray(real), wanted.frac_bits, wanted.ring_bits)
        return Sharing((self._constant(integers, Tensor(tensor.shape, wanted)),), Form.PUBLIC)

    def _revealed(self, receiver: Member, value: ir.Value) -> Value:
        if value in self.rounded:
            op = self.rounded[value]
            wide = self.sharings[op.operation.operands[0]]
            reveal_truncated = self.target.suite.reveal_truncated
            assert reveal_truncated is not None, "nothing is rounded as it is revealed"
            return reveal_truncated(self.parties, operation_of(op), receiver, wide)
        sharing = self.sharings[value]
        if sharing.form.is_public:
            return sharing[0]
        return self.target.suite.reveal(self.parties, receiver, sharing)

    def _layer(self, note: LayerNote) -> AbstractContextManager[None]:
        self.common.expanded.notes.append(note)
        return self.program.in_layer(note.name)


def _keeps_range(op: SecretOp) -> bool:
    """Whether a truncation's result has all bits that are left, and no overflow to correct."""
    (operand,), result = op.operation.operands, op.operation.results[0]
    left: int = Tensor.of(operand).encoding.ring_bits - attributes_of(op)["bits"]
    return Tensor.of(result).encoding.ring_bits == left
