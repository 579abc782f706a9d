"""additive: two or more parties and a dealer, additive secret sharing.

All but one of the computing parties may be curious, together. The dealer is a party of its own: it
sees nothing but the plan, deals correlated randomness before anything is computed, takes no part
online, and must not collude with anyone. Beaver, CRYPTO 1991, with one triple of matrices an
operation; truncation and comparison by one opening are constructions of this project.

x = x[0] + ... + x[n-1] modulo 2^k, part i at party i. The dealer shares a key with each party: what
is only to be random is a sum of everyone's draws and costs no message; of what the dealer deals all
parties but one draw their parts, and that one is sent its own: k bits a value, whatever n is.

Costs below are bits an element: online of one party to one other, offline of the dealer to all
parties together. k is the ring's width, K that of the result. Comparing n bits takes T bits of
thermometers, and L rounds of merges, which open V bits and take Q bits of products; a table takes Y
monomials (targets/blocks/digits.py). Truncating by f bits takes l = min(k, K + f) bits of the
operand, e = max(0, K - k + f) for its overflow, and o = min(e, 1).
Functions are in additive_functions.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Value
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.roles import DEALER
from veilgraph.ir.types import Type
from veilgraph.targets.blocks import points
from veilgraph.targets.blocks.borrow import COMPARISONS
from veilgraph.targets.blocks.comparison_tree import VARIANT, by_tree
from veilgraph.targets.blocks.linear import (
    LINEAR,
    add,
    bilinear_with_public,
    product,
    reduced,
    subtract,
    with_zeros,
)
from veilgraph.targets.blocks.maxima import (
    low_bits,
    max_pool_with,
    reduce_max_with,
    truncated_relu_pool,
)
from veilgraph.targets.blocks.truncation import (
    rounded_off,
    shifted,
    truncated,
    without_low_bits,
)
from veilgraph.targets.blocks.window import (
    Compare,
    kept_where_positive,
    non_negative,
    opened_window,
    window_to_shift,
)
from veilgraph.targets.functions.masked_openings import MASKED_OPENINGS
from veilgraph.targets.parties import (
    Dealt,
    Form,
    LinearMap,
    Member,
    Operation,
    Parties,
    Sharing,
    minus,
    plus,
)
from veilgraph.targets.suite import Security, States, Suite
from veilgraph.targets.variants import Needs, Rounding

# Sharing, dealing, opening


def share(p: Parties, source: Member, x: Value) -> Sharing:
    """[x] of what `source` knows.  0 rounds; 0 bits online, 0 offline.

    The others' parts are keys' draws. A source who computes nothing keeps no part: the last party
    is sent it, masked by all other parts.  1 round; k bits online.
    """
    own = p.role(source)
    keeper = len(p) - 1 if own is None else own
    parts = {j: p.draw((source, j), x.shape, x.type) for j in p if j != keeper}
    rest = x
    for part in parts.values():
        rest = minus(rest, part)
    rest = p.at(rest, source)
    parts[keeper] = p.send(rest, source, keeper) if own is None else rest
    return Sharing(tuple(p.at(parts[j], j) for j in p), Form.ADDITIVE)


def from_shares(p: Parties, name: str, shape: Shape, type: Type) -> Sharing:
    """[x] of a weight that was dealt before the session.  0 rounds; 0 bits online, 0 offline."""
    parts = (p.share(name, i, len(p), (i,), shape, type) for i in p)
    return Sharing(tuple(parts), Form.ADDITIVE)


def zero_sharing(p: Parties, x: Sharing) -> list[Value]:
    """Parts of zero, one a party, from the keys of pairs."""
    parts = [p.at(p.program.const(0, x.shape, x.type), i) for i in p]
    for i in p:
        for j in range(i + 1, len(p)):
            pad = p.draw((i, j), x.shape, x.type)
            parts[i] = plus(parts[i], p.at(pad, i))
            parts[j] = minus(parts[j], p.at(pad, j))
    return parts


def from_state(p: Parties, name: str, shape: Shape, type: Type) -> Sharing:
    """[x] of a state, as the last run left it.  0 rounds; 0 bits online, 0 offline."""
    parts = (p.state(name, i, len(p), (i,), shape, type) for i in p)
    return Sharing(tuple(parts), Form.ADDITIVE)


def keep(p: Parties, name: str, x: Sharing) -> None:
    """[x] for the next run, its parts drawn anew.  0 rounds; 0 bits online, 0 offline."""
    whole = with_zeros(x, len(p), Form.ADDITIVE)
    zeros = zero_sharing(p, whole)
    for i, (part, zero) in enumerate(zip(whole.parts, zeros, strict=True)):
        p.keep(p.at(part + zero, i), name, i, len(p), (i,))


def reveal(p: Parties, receiver: Member, x: Sharing) -> Value:
    """x at `receiver`.  1 round; k bits from each other party, under a zero sharing."""
    parts = [plus(part, zero) for part, zero in zip(x.parts, zero_sharing(p, x), strict=True)]
    own = p.role(receiver)
    total = None if own is None else parts[own]
    for i in p:
        if i != own:
            sent = p.at(p.send(parts[i], i, receiver, declared="reveal"), receiver)
            total = sent if total is None else plus(total, sent)
    assert total is not None
    return total


def reveal_truncated(p: Parties, op: Operation, receiver: Member, z: Sharing) -> Value:
    """floor((z + tau) / 2^f) in Z_2^K at `receiver` alone.  2 rounds; max(K, k / P) + K / P bits
    online, K offline.

    For K = k - f. Of all P parties the one after the receiver alone gets c, the first for one who
    computes nothing: the receiver by itself knows nothing of tau.
    """
    f, K = int(op["bits"]), op.ring_bits
    turn = _turn(p, receiver)
    q, x = p.rotated(turn), z.rotated(turn)
    assert x.type.bits - f == K, f"{x.type.bits} bits less {f} are not {K}"
    y = Sharing(truncated(q.provider, x.parts, f, K), Form.ADDITIVE)
    # Dealt parts are there before the inputs are; who computes sends nothing until then.
    with p.program.in_phase(Phase.ONLINE):
        rounded: Value = reveal(q, receiver, y)
    return rounded


def _turn(p: Parties, receiver: Member) -> int:
    """How far roles are rotated for a receiver who computes to be the last."""
    own = p.role(receiver)
    return 0 if own is None else own + 1


ADDITIVE = Suite(
    name="additive",
    security=Security(
        parties=(2, 8),
        adversary="semi-honest",
        threshold="all but one of the computing parties may be curious together; "
        "the dealer colludes with nobody",
        coalition=-1,
        provider=DEALER,
    ),
    summary="two to eight parties and a dealer, additive sharing",
    functions=MASKED_OPENINGS,
    share=share,
    from_shares=from_shares,
    reveal=reveal,
    reveal_truncated=reveal_truncated,
    states=States(from_state, keep),
)


# Products


@dataclass(frozen=True)
class Masked:
    """An operand less a random mask: the difference at all parties, and the mask."""

    difference: Value
    mask: Dealt

    def map(self, body: LinearMap) -> Masked:
        """The same of a linear map of the operand."""
        mask = Dealt(tuple(map(body, self.mask.parts)), body(self.mask.value))
        return Masked(body(self.difference), mask)


def masked(p: Parties, x: Sharing) -> Masked:
    """x - A opened, once however many products need it, or a linear map of it.  1 round; k bits.

    Weights are masked and opened in the setup phase, once a session.
    """
    before = p.made_before(x)
    if before is not None:
        p.made[x] = reduce(Masked.map, before[1], before[0])
    else:
        setup = all(part.phase == Phase.SETUP for part in x.parts)
        with p.program.in_phase(Phase.SETUP if setup else Phase.OFFLINE):
            mask = p.provider.random(x.shape, x.type)
        parts = [minus(part, a) for part, a in zip(x.parts, mask.parts, strict=True)]
        p.made[x] = Masked(p.provider.opened(parts), mask)
    made: Masked = p.made[x]
    return made


@ADDITIVE.protocol("mul", "matmul", "conv")
def bilinear(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] (*) [y].  1 round; 2k bits online, k offline.

    Online are the openings of x and y, in their own shapes, offline is the result's product.
    With E = x - A, F = y - B and a dealt A (*) B: z = E (*) F + E (*) [B] + [A] (*) F + [A (*) B].
    Party 0 adds F to its part of B: two products a party.
    """
    if x.form.is_public or y.form.is_public:
        return bilinear_with_public(p, op, x, y)
    left, right = masked(p, x), masked(p, y)
    E, F, A, B = left.difference, right.difference, left.mask, right.mask
    triple = p.provider.deal(product(op, [(A.value, B.value)]))
    parts = []
    for i, (a, b, c) in enumerate(zip(A.parts, B.parts, triple, strict=True)):
        factor = F + b if i == 0 else b
        parts.append(p.at(product(op, [(E, factor), (a, F)]) + c, i))
    return Sharing(tuple(parts), Form.ADDITIVE)


# Truncation


@ADDITIVE.protocol("lift")
@ADDITIVE.protocol("truncate", rounding=Rounding.KNOWN)
def truncate(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """floor((z + tau) / 2^f) in Z_2^K.  max(o, g) rounds; max(o, g / P) l bits online,
    max(o, g) (K + e) offline.

    g = min(1, P - 2) of P parties. Bits above l do not bear on the result: z is reduced first. Two
    parties shift their parts where there is no overflow to find; of more the first alone needs what
    is opened. A lift is f = 0.
    """
    f, K = int(op.attrs.get("bits", 0)), op.ring_bits
    low = reduced(z, K + f)
    if low.type.bits - f < K:
        return Sharing(truncated(p.provider, low.parts, f, K), Form.ADDITIVE)
    if len(p) == 2 and not p.fixed_roles:
        return Sharing(shifted(p.provider, low.parts, f), Form.ADDITIVE)
    return _opened_to_one(p, low, f, K)


def _opened_to_one(p: Parties, z: Sharing, f: int, K: int) -> Sharing:
    """Truncated by an opening to one party, not the receiver, who knows nothing of the rounding."""
    turn = 0 if p.receiver is None else _turn(p, p.receiver)
    q = p.rotated(turn)
    y = Sharing(truncated(q.provider, z.rotated(turn).parts, f, K), Form.ADDITIVE)
    # All parts but the first were dealt, and are there before the inputs are: under these draws
    # nothing of them can be opened ahead.
    with p.program.in_phase(Phase.ONLINE):
        parts = [plus(part, o) for part, o in zip(y.parts, zero_sharing(q, y), strict=True)]
        return at_each(q, parts).rotated(-turn)


def at_each(p: Parties, parts: Sequence[Value]) -> Sharing:
    return Sharing(tuple(p.at(part, i) for i, part in enumerate(parts)), Form.ADDITIVE)


# Comparison

ADDITIVE.offer("compare", COMPARISONS)
ADDITIVE.protocol("compare", variant=VARIANT, needs=Needs(computing=2))(by_tree)


def _compare(p: Parties) -> Compare:
    found: Compare = ADDITIVE.called(p, "compare")
    return found


@ADDITIVE.protocol("round_off")
def round_off(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """floor(z / 2^f + 1/2) in Z_2^K.  2 + L rounds; l + 1 + V bits online,
    2K + e + T + Q + Y K offline.

    Of n = f compared bits. The truncation of z + 2^(f-1), without the bit by which it was rounded
    up.
    """
    f, K = int(op["bits"]), op.ring_bits
    low = reduced(z, K + f)
    return Sharing(rounded_off(p.provider, low.parts, f, K, _compare(p)), Form.ADDITIVE)


# ReLU and maximum


@ADDITIVE.protocol("truncate_relu", rounding=Rounding.KNOWN)
def truncate_relu(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """max(floor((z + tau) / 2^f), 0) in Z_2^K.  2 + L rounds; m + 1 + V bits online,
    3K + 2e + 1 + T + Q + Y (2K + e) offline.

    Of n = m - t - 1 compared bits, e = max(0, K - w + f). Two parties shift their parts first, so
    m = w - f and t = 0; of more parts' low bits a sum would be rounded by more than one unit, so
    they open m = w bits.
    """
    f, window, dropped = int(op["bits"]), int(op["window_bits"]), int(op["dropped_bits"])
    K, d = op.ring_bits, p.provider
    if len(p) > 2:
        c, r = opened_window(d, reduced(z, max(window, f + 1)).parts)
        return Sharing(kept_where_positive(d, c, r, f, K, dropped, _compare(p)), Form.ADDITIVE)
    low = reduced(z, window_to_shift(window, dropped, f))
    c, r = opened_window(d, shifted(d, low.parts, f))
    return Sharing(kept_where_positive(d, c, r, 0, K, 0, _compare(p)), Form.ADDITIVE)


@ADDITIVE.protocol("truncate_relu_pool", rounding=Rounding.KNOWN)
def truncate_relu_pool(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """The maxima over windows of max(floor((z + tau) / 2^f), 0), in Z_2^K.  (D + 1)(2 + L) rounds.

    D comparisons deep: ceil(log2 kernel) each axis. Of two parties; more of them cannot shift their
    parts, and take the ReLU first.
    """
    if len(p) == 2:
        parts = truncated_relu_pool(p, p.provider, op, low_bits(op, z).parts, _compare(p))
        return Sharing(parts, Form.ADDITIVE)
    relu = Operation("truncate_relu", z.shape, op.ring_bits, op.attrs)
    # Of numbers that are not negative, differences have one bit more.
    bits = min(op.ring_bits, max(int(op["window_bits"]) - int(op["bits"]), 1) + 1)
    pool = replace(op, attrs={**op.attrs, "window_bits": bits, "dropped_bits": 0})
    found: Sharing = ADDITIVE.called(p, "max_pool")(p, pool, truncate_relu(p, relu, z))
    return found


@ADDITIVE.protocol("relu")
def relu(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """max(x, 0).  2 + L rounds; w + 1 + V bits online,
    3k + 2 (k - w) + 1 + T + Q + Y (3k - w) offline.

    Of n = w - t - 1 compared bits.
    """
    c, r = opened_window(p.provider, reduced(x, int(op["window_bits"])).parts)
    dropped = int(op["dropped_bits"])
    parts = kept_where_positive(p.provider, c, r, 0, op.ring_bits, dropped, _compare(p))
    return Sharing(parts, Form.ADDITIVE)


@ADDITIVE.protocol("step")
def step(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """1 where x >= 0, else 0.  2 + L rounds; m + 1 + V bits online,
    k + 1 + T + Q + Y k offline.

    Of n = w - t - 1 compared bits. Two parties shift their parts by t first, so m = w - t; more of
    them open m = w bits.
    """
    window, dropped = int(op["window_bits"]), int(op["dropped_bits"])
    d, parts = p.provider, reduced(x, window).parts
    if len(p) == 2:
        parts, dropped = without_low_bits(d, parts, dropped), 0
    c, r = opened_window(d, parts)
    sign = non_negative(d, c, r, dropped, _compare(p))
    return Sharing(sign.to_words(d, op.ring_bits), Form.ADDITIVE)


@ADDITIVE.protocol("one_hot", variant="points")
def one_hot(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """A row that is 1 at x.  1 round, W bits online of an x that is known to a party; of a computed
    x 1 round, n bits online and 2W offline.

    W bits of words of an index of n bits: see targets/blocks/points.py. Two parties have all that
    is no zero. So more of them compare, where none of them knows x.
    """
    if x.known is not None:
        owner = Member(min(x.known.at))
        own = p.role(owner)
        if own is not None:
            other = (own + 1) % len(p)
            mine, theirs = points.shared_rows(p, op, x.known, owner, (own,), (other,))
            return _with_zeros_elsewhere(p, {own: mine, other: theirs})
        if len(p) == 2:
            parts = points.shared_rows(p, op, x.known, owner, (0,), (1,))
            return Sharing(parts, Form.ADDITIVE)
    if len(p) > 2 or points.is_too_wide(op):
        return points.by_comparisons(p, op, x, ADDITIVE.called(p, "step"))
    d, flat = p.provider, x.map(lambda part: part.reshape((x.elements,)))
    c, r = opened_window(d, reduced(flat, points.computed_bits(op)).parts)
    rows = Sharing(points.opened_rows(d, op, c, r), Form.ADDITIVE)
    return rows.map(lambda part: part.reshape(op.shape))


def _with_zeros_elsewhere(p: Parties, parts: Mapping[int, Value]) -> Sharing:
    first = next(iter(parts.values()))
    zero = p.program.const(0, first.shape, first.type)
    return Sharing(tuple(parts.get(i, p.at(zero, i)) for i in p), Form.ADDITIVE)


@ADDITIVE.protocol("one_hot", variant="comparisons")
def one_hot_by_comparisons(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """A row that is 1 at x.  N + 1 comparisons of `step`, 2N + 1 where indices wrap."""
    return points.by_comparisons(p, op, x, ADDITIVE.called(p, "step"))


@ADDITIVE.protocol("maximum")
def maximum(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """max(x, y) = y + max(x - y, 0).  2 + L rounds, as `relu`.

    The window bounds x - y.
    """
    kept: Sharing = ADDITIVE.called(p, "relu")(p, op, subtract(p, op, x, y))
    return add(p, op, kept, y)


ADDITIVE.protocol("max_pool")(max_pool_with(maximum))
ADDITIVE.protocol("reduce_max")(reduce_max_with(maximum))
ADDITIVE.include(LINEAR)
