"""verify_outputs: what is told as an output is one, told to whom it may be told.

An output stands by name at a party that may have it, once. What is declared a part of an output
ends in one, at the party that it is sent to. And an output is no mask: taken apart into a sum, it
has no term that is a draw its receiver does not know, nor the upper or lower bits of such draws,
unless the same bits of the value that they mask stand beside them, which is how a truncation
rounds: the mask's bits are taken off where it was added, and added where it was taken off. Nor is
it a part of a state: of each state whose parts are terms all are, and counted alike.
docs/protocols.md says what follows from this, and what does not.

    accepted:  %9 = sub %7 %8       %7 = shr %5   %8 = shr %4   %5 = add %1 %4   %4 = draw
    refused:   output %8            (a part of a mask, and nothing else)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.ops import DECLARED
from veilgraph.ir.party.program import Program
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.sums import MOST_MASKED_TERMS, Moved, Path, Sums

MOST_BITS = 256  # terms of an output that are bits of something; with more it is not looked into
MOST_BITS_OF_BITS = 64  # operations one behind another that a term is made of
Receivers = Mapping[str, Collection[int]]
Term = tuple[Path, int]
Terms = dict[Term, int]  # how often each is added


class MaskingError(AssertionError):
    """A message that no draw hides, a weight that no part does, or an output that nobody asked
    for: a bug in a protocol, or a plan that leaks. Nothing is emitted."""


@dataclass(frozen=True)
class Bits:
    """A term that is made of the bits of a sum: by which operations, and of what."""

    operations: tuple[tuple[object, ...], ...]
    base: Moved

    def stands_beside(self, times: int) -> Iterator[tuple[int, int]]:
        """How often the same bits of a value stand beside these, and how often the mask is in it.

        Upper bits of a mask are taken from the value's, or added where the mask was taken from the
        value; one of each is added, as in a XOR.
        """
        if any(op is ops.PACK for op, *_ in self.operations):
            yield times, 1
        else:
            yield -times, 1
            yield times, -1


def verify_receivers(schedule: Schedule, receivers: Receivers) -> None:
    """That each output is one that its party may have.

    Raises:
        MaskingError: naming the output.
    """
    program, told = schedule.program, set[tuple[str, int, int]]()
    for node in schedule.nodes_of(ops.OUTPUT):
        name, who = node["name"], program.parties[node.party]
        if node.party not in receivers.get(name, ()):
            raise MaskingError(f"output {name!r} is not for {who}")
        if (name, node.party, node.entry) in told:
            raise MaskingError(f"output {name!r} stands twice at {who}")
        told.add((name, node.party, node.entry))


def verify_outputs(schedule: Schedule, sums: Sums) -> None:
    """That what is declared ends in an output, and that no output is a mask.

    Raises:
        MaskingError: naming the message, or the output.
    """
    program = schedule.program
    ended: set[int] = set()
    for node in schedule.nodes_of(ops.OUTPUT):
        ended |= sums.of(node.args[0], behind_messages=False).terms.keys()
        _verify_output(program, sums, node)
    sends = schedule.rows_of(ops.SEND)
    is_plain = schedule.columns.having("declared", "")  # as most are
    for node in (program.nodes[i] for i in sends[~is_plain[sends]].tolist()):
        if node["declared"] not in DECLARED:
            raise MaskingError(f"message %{node.id} is declared {node['declared']!r}")
        if node.id not in ended:
            layer = program.layers[node.layer]
            raise MaskingError(f"message %{node.id} of layer {layer!r} ends in no output")


def _verify_output(program: Program, sums: Sums, output: Node) -> None:
    total = sums.moved(output.args[0])
    if not total.complete:
        return
    receiver = program.parties[output.party]
    if name := _part_told(program, sums, total):
        raise MaskingError(f"output {output['name']!r} tells {receiver} a part of state {name!r}")
    mask = _mask_told(program, sums, output.party, total)
    if mask:
        raise MaskingError(f"output {output['name']!r} tells {receiver} {mask}")


def _part_told(program: Program, sums: Sums, total: Moved) -> str:
    """The state of which some parts are terms, or have bits that are, and others are not."""
    if name := _split_state(program, total):
        return name
    for _, key in total.terms:
        found = _bits_of(program, sums, key) if key >= 0 else None
        if found and found.base.complete and (name := _split_state(program, found.base)):
            return name
    return ""


def _split_state(program: Program, total: Moved) -> str:
    """The state of which not all parts are among the terms, as often and moved alike."""
    found: dict[tuple[Path, int, str], set[int]] = {}
    count: dict[str, int] = {}
    for (path, key), times in total.terms.items():
        node = program.nodes[key] if key >= 0 else None
        if node is not None and node.op is ops.STATE:
            found.setdefault((path, times, node["name"]), set()).add(node["part"])
            count[node["name"]] = node["of"]
    incomplete = (name for (*_, name), parts in found.items() if len(parts) < count[name])
    return next(incomplete, "")


def _mask_told(program: Program, sums: Sums, receiver: int, total: Moved) -> str:
    """What of its terms is a mask that the receiver does not know; empty if nothing is."""
    bits: dict[Term, Bits] = {}
    for path, key in total.terms:
        if key < 0:
            if receiver not in program.draws[-1 - key].holders:
                return f"draw {-1 - key}"
        elif found := _bits_of(program, sums, key):
            bits[path, key] = found
    if len(bits) > MOST_BITS:
        return ""
    found_draws = {at: _only_draws(program, receiver, of.base) for at, of in bits.items()}
    beside = {
        at: list(_beside(program, total, bits, at, draws))
        for at, draws in found_draws.items()
        if draws
    }
    alone = _unmatched(beside)
    return f"bits of draw {next(iter(found_draws[alone]))}" if alone else ""


def _beside(
    program: Program,
    total: Moved,
    bits: Mapping[Term, Bits],
    at: Term,
    draws: Mapping[int, Terms],
) -> Iterator[Term]:
    """The terms that are the same bits of a value which these draws mask."""
    for other, candidate in bits.items():
        if other[0] == at[0] and candidate.operations == bits[at].operations:
            ways = bits[at].stands_beside(total.terms[at])
            times = total.terms[other]
            if any(times == t and _masks(program, draws, s, candidate.base) for t, s in ways):
                yield other


def _unmatched(beside: Mapping[Term, Sequence[Term]]) -> Term | None:
    """A mask that no value of its own stands beside, if there is one: no value unmasks two."""
    taken: dict[Term, Term] = {}

    def found(mask: Term, tried: set[Term]) -> bool:
        for value in beside[mask]:
            if value not in tried:
                tried.add(value)
                if value not in taken or found(taken[value], tried):
                    taken[value] = mask
                    return True
        return False

    return next((mask for mask in beside if not found(mask, set())), None)


def _bits_of(program: Program, sums: Sums, key: int) -> Bits | None:
    node, operations = program.nodes[key], []
    while node.op.masking.aligned_bits or sums.is_transparent(node):
        if node.op.masking.aligned_bits:
            operations.append((node.op, node.attrs, node.type))
        if len(operations) > MOST_BITS_OF_BITS:
            layer = program.layers[node.layer]
            raise MaskingError(f"bits of bits of layer {layer!r} are too deep to look into")
        below = node.args[0]
        node = program.nodes[below]
        if not node.op.masking.aligned_bits:
            node = program.nodes[sums.walks.passed[below]]
    if not operations:
        return None
    return Bits(tuple(operations), sums.moved(node.id, MOST_MASKED_TERMS))


def _only_draws(program: Program, receiver: int, base: Moved) -> dict[int, Terms]:
    """The draws that a sum consists of, constants apart, if one is hidden from the receiver."""
    draws: dict[int, Terms] = {}
    for (path, key), times in base.terms.items():
        if key < 0:
            draws.setdefault(-1 - key, {})[path, key] = times
        elif program.nodes[key].op is not ops.CONST:
            return {}
    hidden = any(receiver not in program.draws[d].holders for d in draws)
    return draws if hidden else {}


def _masks(program: Program, draws: Mapping[int, Terms], sign: int, value: Moved) -> bool:
    """Whether a sum has all draws of the mask, so signed, and more than draws and constants."""
    if not value.complete:
        return sign == 1
    terms = [term for each in draws.values() for term in each.items()]
    added = all(value.terms.get(term) == sign * times for term, times in terms)
    return added and any(
        key >= 0 and program.nodes[key].op is not ops.CONST for _, key in value.terms
    )
