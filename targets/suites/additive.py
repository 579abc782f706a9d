"""additive: two or more parties and a dealer, additive secret sharing.

All but one of the computing parties may be curious, together. The dealer is a party of its own: it
sees nothing but the plan, deals correlated randomness before anything is computed, takes no part
online, and must not collude with anyone. Beaver, CRYPTO 1991, with one triple of matrices an
operation; truncation and comparison by one opening are constructions of this project.

x = x[0] + ... + x[n-1] modulo 2^k, part i at party i. The dealer shares a key with each party: what
is only to be random is a sum of everyone's draws and costs no message; of what the dealer deals all
parties but the last draw their parts, and the last is sent its own: k bits a value, whatever n is.

Costs below are bits an element: online of one party to one other, offline of the dealer to the
last party. k is the ring's width, K that of the result. Comparing n = w - t - 1 bits takes
D = ceil(n / 2) digits and G = 2 (D - 1) - ceil(log2 D) gates. Truncating by f bits takes
l = min(k, K + f) bits of the operand, e = max(0, K - k + f) for its overflow, and o = min(e, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from veilgraph.ir.party.program import Shape, Value, select, stack
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.roles import DEALER
from veilgraph.ir.secret.exponential import Pieces
from veilgraph.ir.secret.fourier import Waves
from veilgraph.ir.types import Type, planes, words
from veilgraph.targets.blocks.carry import borrow, stacked
from veilgraph.targets.blocks.linear import (
    LINEAR,
    add,
    bilinear_with_public,
    product,
    reduced,
    subtract,
    with_zeros,
)
from veilgraph.targets.blocks.maxima import max_pool_with, reduce_max_with
from veilgraph.targets.functions import exponential as exponentials
from veilgraph.targets.functions.masked_openings import MASKED_OPENINGS
from veilgraph.targets.functions.masked_series import of_mask, of_opened, summed
from veilgraph.targets.suite import (
    Dealt,
    Form,
    Member,
    Operation,
    Parties,
    Security,
    Sharing,
    States,
    Suite,
    minus,
    plus,
)
from veilgraph.targets.variants import Rounding

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


def opened(p: Parties, parts: Sequence[Value]) -> Value:
    """The sum of one part a party, at all of them: masked by the caller.  1 round."""
    total: Value | None = None
    for i, part in enumerate(parts):
        for j in p:
            if j != i:
                part = p.send(part, i, j)
        total = part if total is None else plus(total, part)
    assert total is not None
    return total


def plus_public(p: Parties, parts: Sequence[Value], public: Value) -> tuple[Value, ...]:
    """Parts of the value plus what all parties know."""
    return (plus(parts[0], p.at(public, 0)), *parts[1:])


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
    y = truncated(q, x, f, K)[0]
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


def masked(p: Parties, x: Sharing) -> Masked:
    """x - A opened, once however many products need it.  1 round; k bits.

    Weights are masked and opened in the setup phase, once a session.
    """
    if x not in p.made:
        setup = all(part.phase == Phase.SETUP for part in x.parts)
        with p.program.in_phase(Phase.SETUP if setup else Phase.OFFLINE):
            mask = p.provider.random(x.shape, x.type)
        parts = [minus(part, a) for part, a in zip(x.parts, mask.parts, strict=True)]
        p.made[x] = Masked(opened(p, parts), mask)
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


def and_planes(p: Parties, x: Sharing, y: Sharing) -> Sharing:
    """[x] and [y], plane by plane.  1 round; 2 bits a gate; 1 bit a gate offline."""
    # One mask and one opening for both operands, their planes side by side.
    count = x.type.bits
    mask = p.provider.random(x.shape, planes(2 * count))
    triple = p.provider.deal(mask.value.plane(0, count) & mask.value.plane(count, count))
    operands = zip(x.parts, y.parts, mask.parts, strict=True)
    both = opened(p, [stack([u, v]) ^ m for u, v, m in operands])
    d, e = both.plane(0, count), both.plane(count, count)
    parts = []
    for i, (m, c) in enumerate(zip(mask.parts, triple, strict=True)):
        a, b = m.plane(0, count), m.plane(count, count)
        parts.append((d & (e ^ b if i == 0 else b)) ^ (a & e) ^ c)
    return _at_each(p, parts)


# Truncation


def truncated(p: Parties, z: Sharing, f: int, K: int) -> tuple[Sharing, Value, Value]:
    """[y] in Z_2^K, y = floor((z + tau) / 2^f), the opened c = z + r, and r at the dealer.

    1 round; k bits; K + e bits offline. tau = r mod 2^f is uniform in [0, 2^f): at most one unit in
    the last place, never a failure; none at all for f = 0. All computing parties know c, hence the
    rounding threshold of their own view. (c >> f) - (r >> f) is y modulo 2^(k-f), for any z: enough
    for K <= k - f. Beyond that an overflow of z + r has to be found.
    """
    k = z.type.bits
    assert 0 <= f <= k - 2, f"truncation by {f} bits in a ring of {k}"
    r = p.provider.random(z.shape, z.type)
    c = opened(p, [x + m for x, m in zip(z.parts, r.parts, strict=True)])
    if k - f < K:
        return with_overflow(p, c, r.value, f, K), c, r.value
    rest = p.provider.deal(-(r.value >> f).mod(K))
    return Sharing(plus_public(p, rest, (c >> f).mod(K)), Form.ADDITIVE), c, r.value


def with_overflow(p: Parties, c: Value, r: Value, f: int, K: int) -> Sharing:
    """[floor((z + tau) / 2^f)] in Z_2^K, K > k - f, for -2^(k-2) <= z < 2^(k-2).  0 rounds.

    K + e bits offline. c + 2^(k-2) overflowed its low k - 1 bits exactly when its top bit and r's
    differ, because z + 2^(k-2) has top bit 0: y is corrected by c_m + r_m - 2 c_m r_m.
    """
    k = c.type.bits
    e = K - k + f
    r_top = r.bits(k - 1)
    low = (r.mod(k - 1) >> f).mod(K)
    rest = p.provider.deal((r_top.to_words(K) << (k - 1 - f)) - low)
    top = p.provider.deal(r_top.to_words(e))
    c = c + p.program.const(1 << (k - 2), (), c.type)
    c_top = c.bits(k - 1)
    known = (c.mod(k - 1) >> f).mod(K) + (c_top.to_words(K) << (k - 1 - f))
    zero = p.program.const(0, c.shape, words(K))
    parts = [
        p.at(b - select(c_top, u.mod(K) << (k - f), zero), i)
        for i, (b, u) in enumerate(zip(rest, top, strict=True))
    ]
    public = known - p.program.const(1 << (k - 2 - f), (), words(K))
    return Sharing(plus_public(p, parts, public), Form.ADDITIVE)


@ADDITIVE.protocol("lift")
@ADDITIVE.protocol("truncate", rounding=Rounding.KNOWN)
def truncate(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """floor((z + tau) / 2^f) in Z_2^K.  1 round; max(o, 1 / P) l bits online, K + e offline.

    See `truncated`; a lift is f = 0. Bits above l do not bear on the result: z is reduced first.
    Where there is no overflow to find, of all P parties the first alone needs what is opened.
    """
    f, K = int(op.attrs.get("bits", 0)), op.ring_bits
    # The one party that gets c is not the receiver, who then knows nothing of the rounding.
    turn = 0 if p.receiver is None else _turn(p, p.receiver)
    q, x = p.rotated(turn), z.rotated(turn)
    y, c, _ = truncated(q, reduced(x, K + f), f, K)
    if c.type.bits - f < K:
        return y.rotated(-turn)
    # All parts but the first were dealt, and are there before the inputs are: under these draws
    # nothing of them can be opened ahead.
    with p.program.in_phase(Phase.ONLINE):
        parts = [plus(part, o) for part, o in zip(y.parts, zero_sharing(q, y), strict=True)]
        return _at_each(q, parts).rotated(-turn)


# Comparison


def digits(p: Parties, c: Value, r: Value, low: int, count: int) -> tuple[Sharing, Sharing | None]:
    """Digits of c < r on `count` bits from `low` up: generate [G] and propagate [P], bit planes.

    Two-bit digits (the top one has one bit if `count` is odd), lowest first; P has no plane for
    the lowest. 0 rounds; 3 bits a digit offline: c is public, and the dealer shares the monomials
    of r's bits.
    """
    pairs = count // 2
    bits, free = r.bits(low, count), ~c.bits(low, count)
    G, P = [], []
    if pairs:
        r0, r1 = bits.plane(0, pairs, 2), bits.plane(1, pairs, 2)
        n0, n1 = free.plane(0, pairs, 2), free.plane(1, pairs, 2)
        s0, s1, s01 = (Sharing(p.provider.deal(x), Form.ADDITIVE) for x in (r0, r1, r0 & r1))
        generate = [(n1 & s1[i]) ^ (n0 & ((n1 & s0[i]) ^ s01[i])) for i in p]
        propagate = plus_public(p, [(n1 & s0[i]) ^ (n0 & s1[i]) ^ s01[i] for i in p], n0 & n1)
        G.append(_at_each(p, generate))
        if pairs > 1:
            P.append(_at_each(p, [x.plane(1, pairs - 1) for x in propagate]))
    if count % 2:
        s, n = p.provider.deal(bits.plane(count - 1, 1)), free.plane(count - 1, 1)
        G.append(_at_each(p, [n & x for x in s]))
        if pairs:
            P.append(_at_each(p, plus_public(p, s, n)))
    return stacked(G), stacked(P) if P else None


@ADDITIVE.protocol("compare", variant="carry-tree")
def compare(p: Parties, c: Value, r: Value, low: int, count: int) -> Sharing:
    """[c < r] on `count` bits from `low` up, a bit plane.  ceil(log2 D) rounds.

    All parties know c, the dealer knows r. What compares asks for it by name.
    """
    return borrow(p, *digits(p, c, r, low, count), and_planes)


def _compared(p: Parties, c: Value, r: Value, low: int, count: int) -> Sharing:
    found: Sharing = ADDITIVE.called(p, "compare")(p, c, r, low, count)
    return found


def _at_each(p: Parties, parts: Sequence[Value]) -> Sharing:
    return Sharing(tuple(p.at(part, i) for i, part in enumerate(parts)), Form.ADDITIVE)


def non_negative(p: Parties, c: Value, r: Value, window: int, dropped: int) -> Sharing:
    """[s], s = 1 where z = c - r >= 0, from bits dropped .. window - 1.  ceil(log2 D) rounds.

    z lies in [-2^(w-1), 2^(w-1) - 2^t]. Exact for t = 0; else z in (-2^t, 0) may be called
    non-negative, z >= 0 never negative.
    """
    n = window - dropped - 1
    parts = p.provider.deal(r.bits(window - 1))
    if n:
        below = _compared(p, c, r, dropped, n)
        parts = tuple(b ^ t for b, t in zip(below.parts, parts, strict=True))
    return Sharing(plus_public(p, parts, ~c.bits(window - 1)), Form.ADDITIVE)


@ADDITIVE.protocol("round_off")
def round_off(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """floor(z / 2^f + 1/2) in Z_2^K.  2 + ceil(log2 D) rounds; l + 1 + 2G bits online,
    2K + e + 3D - 2 (f mod 2) + G offline.

    For D = ceil(f / 2). The truncation of z + 2^(f-1) was rounded up where the low bits of c are
    below those of r: that bit is taken off again, opened for a dealt bit as in `step`.
    """
    f, K = int(op["bits"]), op.ring_bits
    low = reduced(z, K + f)
    half = p.program.const(1 << (f - 1), low.shape, low.type)
    y, c, r = truncated(p, _at_each(p, plus_public(p, low.parts, half)), f, K)
    up, bit = _compared(p, c, r, 0, f), p.provider.random(y.shape, planes(1))
    q = p.provider.deal(bit.value.to_words(K))
    e = opened(p, [v ^ b for v, b in zip(up.parts, bit.parts, strict=True)])
    one = p.program.const(1, y.shape, y.type)
    first, *rest = q
    taken = [select(e, one - first, first), *(select(e, -v, v) for v in rest)]
    return _at_each(p, [part - own for part, own in zip(y.parts, taken, strict=True)])


# ReLU and maximum


def keep_where(p: Parties, y: Sharing, sign: Callable[[], Sharing]) -> Sharing:
    """[s y] for the bit s that `sign` makes.  k + 1 bits; 2k bits offline; 1 round after s.

    With a dealt bit q, [q], a mask a and [q a]: delta = y - a is opened while the comparison runs,
    so q y = delta [q] + [q a]; e = s xor q is opened; s y = e y + (1 - 2e) q y.
    """
    bit, a = p.provider.random(y.shape, planes(1)), p.provider.random(y.shape, y.type)
    zero = p.program.const(0, y.shape, y.type)
    q = p.provider.deal(bit.value.to_words(y.type.bits))
    qa = p.provider.deal(select(bit.value, a.value, p.provider.own(zero)))
    delta = opened(p, [v - m for v, m in zip(y.parts, a.parts, strict=True)])
    qy = [p.at(delta * u + v, i) for i, (u, v) in enumerate(zip(q, qa, strict=True))]
    s = sign()
    e = opened(p, [v ^ b for v, b in zip(s.parts, bit.parts, strict=True)])
    return _at_each(p, [select(e, v - w, w) for v, w in zip(y.parts, qy, strict=True)])


@ADDITIVE.protocol("truncate_relu", rounding=Rounding.KNOWN)
def truncate_relu(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """max(floor((z + tau) / 2^f), 0) in Z_2^K.  2 + ceil(log2 D) rounds; l + K + 1 + 2G bits
    online, 3K + e + 1 + 3D - 2 (n mod 2) + G offline.

    The comparison reads the c that the truncation opened.
    """
    f, window, dropped = int(op["bits"]), int(op["window_bits"]), int(op["dropped_bits"])
    K = op.ring_bits
    assert dropped <= f
    assert window <= K + f, f"a window of {window} bits, truncated by {f}, overflows {K}"
    y, c, r = truncated(p, reduced(z, K + f), f, K)
    if c.type.bits - f >= K:
        y = spread(p, y, (c >> f).mod(K))
    return keep_where(p, y, lambda: non_negative(p, c, r, window, dropped))


def spread(p: Parties, y: Sharing, public: Value) -> Sharing:
    """The same sharing, of which every part depends on what all parties know online.  0 rounds.

    Parts that were dealt are there before the inputs are, and would be opened offline: whoever
    computes sends nothing then.
    """
    count = len(p)
    parts = [x - p.at(public, i) for i, x in enumerate(y.parts)]
    parts[0] = parts[0] + p.at(public * count, 0)
    return _at_each(p, parts)


@ADDITIVE.protocol("relu")
def relu(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """max(x, 0).  2 + ceil(log2 D) rounds; w + k + 1 + 2G bits online,
    2k + 1 + 3D - 2 (n mod 2) + G offline.

    x is opened modulo 2^w.
    """
    window, dropped = int(op["window_bits"]), int(op["dropped_bits"])
    low = x.map(lambda part: part.mod(window))
    r = p.provider.random(low.shape, low.type)
    c = opened(p, [v + m for v, m in zip(low.parts, r.parts, strict=True)])
    return keep_where(p, x, lambda: non_negative(p, c, r.value, window, dropped))


@ADDITIVE.protocol("step")
def step(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """1 where x >= 0, else 0.  2 + ceil(log2 D) rounds; w + 1 + 2G bits online,
    k + 1 + 3D - 2 (n mod 2) + G offline.

    e = s xor q is opened for a dealt bit q: [s] = e + (1 - 2e) [q].
    """
    window, dropped = int(op["window_bits"]), int(op["dropped_bits"])
    low = x.map(lambda part: part.mod(window))
    r, bit = p.provider.random(low.shape, low.type), p.provider.random(low.shape, planes(1))
    q = p.provider.deal(bit.value.to_words(x.type.bits))
    c = opened(p, [v + m for v, m in zip(low.parts, r.parts, strict=True)])
    s = non_negative(p, c, r.value, window, dropped)
    e = opened(p, [v ^ b for v, b in zip(s.parts, bit.parts, strict=True)])
    one = p.program.const(1, x.shape, x.type)
    first, *rest = q
    return _at_each(p, [select(e, one - first, first), *(select(e, -v, v) for v in rest)])


@ADDITIVE.protocol("maximum")
def maximum(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """max(x, y) = y + max(x - y, 0).  2 + ceil(log2 D) rounds, as `relu`.

    The window bounds x - y.
    """
    kept: Sharing = ADDITIVE.called(p, "relu")(p, op, subtract(p, op, x, y))
    return add(p, op, kept, y)


@ADDITIVE.protocol("masked_function", rounding=Rounding.KNOWN)
def masked_function(p: Parties, op: Operation, x: Sharing, high: Sharing, low: Sharing) -> Sharing:
    """floor((f(x) 2^F + tau) / 2^s), f a sum of N waves (ir/secret/fourier.py).  2 rounds; w + m
    bits online, 2N * m + K + e offline.

    m = sum_bits and e = K - m + s > 0. c = x + r modulo 2^w is opened to all; the dealer shares
    what the waves have of r.
    """
    waves = Waves.of(op.attrs)
    index = x.map(lambda part: part.mod(waves.window_bits))
    r = p.provider.random(index.shape, index.type)
    factors = [p.provider.deal(b) for b in of_mask(waves, r.value, (high, low))]
    c = opened(p, [v + m for v, m in zip(index.parts, r.parts, strict=True)])
    known = of_opened(waves, c, (high, low))
    parts = [summed(known, [b[i] for b in factors]) for i in p]
    if waves.slope:
        own = [v.mod(waves.sum_bits) * waves.slope for v in x.parts]
        parts = [part + v for part, v in zip(parts, own, strict=True)]
    parts[0] = parts[0] + waves.constant
    return truncated(p, _at_each(p, parts), int(op["bits"]), op.ring_bits)[0]


@ADDITIVE.protocol("exp_sums", rounding=Rounding.KNOWN)
def exp_sums(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """The sums of e^x along rows, by M pieces of x (ir/secret/exponential.py).  1 round; w bits
    online, M * m offline.

    m = sum_bits. c = mu x + r modulo 2^w is opened to all; for each piece the dealer shares a decay
    of the lower bits of r, or zero. Parts of all M numbers are turned by the upper bits of c.
    """
    pieces = Pieces.of(op.attrs)
    length = x.shape[-1]
    rows = x.map(lambda part: part.reshape((part.elements // length, length)))
    c, dealt = opened_and_dealt(p, rows, pieces, tables)
    parts = [p.at(exponentials.sums(pieces, c, own, tables), i) for i, own in enumerate(dealt)]
    return _at_each(p, [part.reshape(op.shape) for part in parts])


@ADDITIVE.protocol("masked_exp", rounding=Rounding.KNOWN)
def masked_exp(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """floor((e^x 2^F + tau) / 2^s) by M pieces of x (ir/secret/exponential.py).  2 rounds; w + m
    bits online, M * m + K + e offline.

    m = sum_bits and e = K - m + s > 0. As `exp_sums`; the numbers of all pieces are multiplied by
    what their distance from c makes of them, and the sum is truncated.
    """
    pieces = Pieces.of(op.attrs)
    c, dealt = opened_and_dealt(p, x, pieces, tables)
    parts = [exponentials.power(pieces, c, own, tables) for own in dealt]
    return truncated(p, _at_each(p, parts), int(op["bits"]), op.ring_bits)[0]


def opened_and_dealt(
    p: Parties, x: Sharing, pieces: Pieces, tables: Sequence[Sharing]
) -> tuple[Value, list[list[Value]]]:
    """c = mu x + r at all, and each one's parts of what is dealt of r.  1 round."""
    index = x.map(lambda part: (part * pieces.multiple).mod(pieces.window_bits))
    r = p.provider.random(index.shape, index.type)
    dealt = [p.provider.deal(value) for value in exponentials.of_mask(pieces, r.value, tables)]
    c = opened(p, [v + m for v, m in zip(index.parts, r.parts, strict=True)])
    return c, [[parts[i] for parts in dealt] for i in p]


ADDITIVE.protocol("max_pool")(max_pool_with(maximum))
ADDITIVE.protocol("reduce_max")(reduce_max_with(maximum))
ADDITIVE.include(LINEAR)
