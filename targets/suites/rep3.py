"""rep3: three parties, replicated secret sharing, one semi-honest party.

Araki, Furukawa, Lindell, Nof, Ohara, CCS 2016, for sharing and multiplication; the truncation, the
comparison and the fused ReLU are constructions of this project (docs/protocols.md has the
arguments, and the tests check values and views over every secret and mask in small rings).

x = x[0] + x[1] + x[2] modulo 2^k. Party i holds x[i] and x[i + 1], so part j is known to parties
j - 1 and j, and so is key j. Boolean sharing is the same with XOR, on bit planes. Indices count
modulo 3, and are roles: a protocol that treats the parties differently runs on three chunks of its
tensor with the roles rotated, so that links and work are balanced.

Where one opening decides, a value becomes a pair of parts at parties 0 and 1, and party 2 prepares
what they need: it knows nothing of how they round. The result is a pair too. Comparisons, sums over
windows and receivers read it as it is; its replica is sent where a product reads it. Comparisons
are in rep3_comparisons.py, functions in rep3_functions.py.

Costs below are bits of all three parties together, an element, replicas included. k is the ring's
width, K that of the result. Comparing n bits takes T bits of thermometers, and L rounds of merges,
which open V bits at each of two parties and take Q bits of products; a table takes Y monomials
(targets/blocks/digits.py). Truncating by f bits takes l = min(k, K + f) bits of the operand, e =
max(0, K - k + f) for its overflow, and o = min(e, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce

from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Value, join, select
from veilgraph.ir.types import Type, planes, words
from veilgraph.targets.blocks.linear import (
    LINEAR,
    additive,
    bilinear_with_public,
    product,
    reduced,
    with_zeros,
)
from veilgraph.targets.blocks.truncation import shifted
from veilgraph.targets.blocks.window import (
    Parts,
)
from veilgraph.targets.functions.masked_openings import MASKED_OPENINGS
from veilgraph.targets.parties import (
    Form,
    Member,
    Operation,
    Parties,
    Provider,
    Sharing,
    minus,
    plus,
)
from veilgraph.targets.suite import Security, States, Suite
from veilgraph.targets.suites.rep3_rotation import (
    SMALLEST_ROTATED,
    halves,
    in_rotated_chunks,
    rotation_of,
    rounded_rotating_roles,
)
from veilgraph.targets.variants import Rounding

BIT = planes(1)


# Sharing and revealing


def share(p: Parties, source: Member, x: Value) -> Sharing:
    """[x] of what `source` knows.  1 round; k bits online, 0 offline.

    Of party i, part i is drawn with the party before, part i + 1 is the rest, the third is zero. A
    source who computes nothing may leave no part zero: see `share_from_outside`, of 2k bits.
    """
    own = p.role(source)
    if own is None:
        return share_from_outside(p, source, x)
    return share_known(p, own, x, drawn=own, sent=own + 1)


def share_from_outside(p: Parties, source: Member, x: Value) -> Sharing:
    """[x] of what one who computes nothing knows.  1 round; 2k bits online, 0 offline.

    Parts 0 and 1 are drawn from keys that the source shares with both of their holders; part 2 is
    the rest, and goes to its two holders. Each party lacks one part: one of the draws, or the rest.
    """
    drawn = [p.draw((source, j - 1, j), x.shape, x.type) for j in (0, 1)]
    rest = p.at(minus(minus(x, drawn[0]), drawn[1]), source)
    rest = p.send(p.send(rest, source, 1), source, 2)
    parts = (p.at(part, j - 1, j) for j, part in enumerate((*drawn, rest)))
    return Sharing(tuple(parts), Form.REPLICATED)


def share_known(p: Parties, owner: int, x: Value, drawn: int, sent: int) -> Sharing:
    """[x] of a value that `owner` knows, one message of its width.

    Part `drawn` is drawn from its key; part `sent` is x minus that and goes to its other holder,
    which does not know key `drawn`: the draw masks it. The third part is zero.
    """
    mask = p.draw((drawn - 1, drawn), x.shape, x.type)
    rest = p.at(minus(x, mask), owner)
    other = sent - 1 if sent % 3 == owner else sent
    zero = p.program.const(0, x.shape, x.type)
    parts = {
        drawn % 3: mask,
        sent % 3: p.send(rest, owner, other),
    }
    for j in p:
        parts.setdefault(j, p.at(zero, (j - 1) % 3, j))
    return Sharing((parts[0], parts[1], parts[2]), Form.REPLICATED)


def from_shares(p: Parties, name: str, shape: Shape, type: Type) -> Sharing:
    """[x] of a weight that was dealt before the session.  0 rounds; 0 bits online, 0 offline.

    No part is zero: nobody is left who may know two.
    """
    parts = (p.share(name, j, 3, (j - 1, j), shape, type) for j in p)
    return Sharing(tuple(parts), Form.REPLICATED)


def from_state(p: Parties, name: str, shape: Shape, type: Type) -> Sharing:
    """[x] of a state, as the last run left it.  0 rounds; 0 bits online, 0 offline."""
    parts = (p.state(name, j, 3, (j - 1, j), shape, type) for j in p)
    return Sharing(tuple(parts), Form.REPLICATED)


def keep(p: Parties, name: str, x: Sharing) -> None:
    """[x] for the next run.  0 rounds; 0 bits replicated; additive 1 round; 3k bits online."""
    for j, part in enumerate(replicated(p, with_zeros(x, 3, Form.REPLICATED)).parts):
        p.keep(part, name, j, 3, (j - 1, j))


def reveal(p: Parties, receiver: Member, x: Sharing) -> Value:
    """x at `receiver`.  1 round; k bits replicated, 2k bits additive (a zero sharing masks them).

    A replicated receiver lacks one part, and that part is the output minus its own two: nothing
    new. One who computes nothing lacks all: see `reveal_outside`, of k bits more.
    """
    i = p.role(receiver)
    if i is None:
        return reveal_outside(p, receiver, x)
    if x.form is Form.REPLICATED:
        missing = p.send(p.at(x[i + 2], (i + 2) % 3), i + 2, i, declared="reveal")
        return p.at(x[i] + x[i + 1] + missing, i)
    a = masked(p, x)
    first = p.send(a[i + 1], i + 1, i, declared="reveal")
    second = p.send(a[i + 2], i + 2, i, declared="reveal")
    return p.at(a[i] + first + second, i)


def reveal_outside(p: Parties, receiver: Member, x: Sharing) -> Value:
    """x at one who computes nothing.  1 round; 2k bits replicated, 3k bits additive.

    Two parties have all of a replicated x between them, and mask what they send with a draw of
    theirs: the receiver sees numbers of which only the sum says anything.
    """
    if x.form is Form.REPLICATED:
        pad = p.draw((0, 1), x.shape, x.type)
        first, second = pair(p, x)
        parts = [plus(first, p.at(pad, 0)), minus(second, p.at(pad, 1))]
    else:
        parts = list(masked(p, x).parts)
    sent = (p.send(part, i, receiver, declared="reveal") for i, part in enumerate(parts))
    return reduce(plus, (p.at(part, receiver) for part in sent))


def reveal_truncated(p: Parties, op: Operation, receiver: Member, z: Sharing) -> Value:
    """floor((z + tau) / 2^f) in Z_2^K at `receiver` alone.  2 rounds; 2k + K bits online, K
    offline.

    For K = k - f, and z additive; replicated it is opened with k bits less. The receiver is role
    1, or computes nothing: it gets (c >> f) + B from party 0 and -(r >> f) - B from party 2, B a
    draw of these two, and knows nothing of tau.
    """
    f, K = int(op["bits"]), op.ring_bits
    rotation = rotation_of(p, receiver, 1)
    q, x = p.rotated(rotation), parted(p, z).rotated(rotation)
    assert x.type.bits - f == K, f"{x.type.bits} bits less {f} are not {K}"
    r = q.draw((2,), x.shape, x.type)
    c = opened(q, x, r)
    B = q.draw((2, 0), x.shape, op.type)
    # Who computes nothing may be curious together with party 0, which knows c.
    joins = "" if p.role(receiver) is not None else "reveal"
    dealt = q.send(q.at(-(r >> f).mod(K) - B, 2), 2, receiver, declared=joins)
    upper = q.send(q.at((c >> f).mod(K) + B, 0), 0, receiver, declared="reveal")
    return q.at(dealt + upper, receiver)


def with_replica(p: Parties, x: Sharing) -> Sharing:
    """What has parts at two parties, with a replica as `paired` gives it.

    Where roles rotate, and no part is known to be zero, it is two parties of each chunk.
    """
    zero = next((j for j in p if x[j].constant_value() == 0), None)
    if zero is None:
        return in_rotated_chunks(p, x, of_pair)
    return of_pair(p.rotated(zero - 2), x.rotated(zero - 2)).rotated(2 - zero)


def of_pair(p: Parties, x: Sharing) -> Sharing:
    """Parts at parties 0 and 1, and a replica."""
    return replace(x, replica=pair_reshared(p, (x[0], x[1])))


REP3 = Suite(
    name="rep3",
    security=Security(
        parties=(3, 3),
        adversary="semi-honest",
        threshold="one of three parties may be curious",
        coalition=1,
    ),
    summary="three parties and nobody else, replicated sharing",
    functions=MASKED_OPENINGS,
    share=share,
    from_shares=from_shares,
    reveal=reveal,
    reveal_truncated=reveal_truncated,
    states=States(from_state, keep),
    replicate=with_replica,
    rotates_from=SMALLEST_ROTATED,
)


def zero_sharing(p: Parties, x: Sharing) -> tuple[Value, ...]:
    """Parts of zero, one a party, each masked by a key that every other party lacks one of."""
    key = [p.draw((j - 1, j), x.shape, x.type) for j in p]
    return tuple(p.at(minus(key[i], key[(i + 1) % 3]), i) for i in p)


def masked(p: Parties, z: Sharing) -> Sharing:
    """The additive z with a zero sharing added: each part alone is uniform.  0 rounds."""
    zeros = zero_sharing(p, z)
    return Sharing(tuple(plus(z[i], zeros[i]) for i in p), Form.ADDITIVE)


def reshare(p: Parties, z: Sharing) -> Sharing:
    """Additive to replicated.  1 round; 3k bits."""
    a = masked(p, z)
    return Sharing(tuple(p.send(a[i], i, i - 1) for i in p), Form.REPLICATED)


def replicated(p: Parties, x: Sharing) -> Sharing:
    """x in replicated form, reshared once however many need it, or a linear map of it."""
    if x.form is not Form.ADDITIVE:
        return x
    if x.replica is not None:
        p.made[x] = x.replica
    before = p.made_before(x)
    made: Sharing = reshare(p, x) if before is None else reduce(Sharing.map, before[1], before[0])
    p.made[x] = made
    return made


def parted(p: Parties, z: Sharing) -> Sharing:
    """z as parts of two, or a masked opening, take it: additive, where that leaves messages unsent.

    A replicated z takes a message an element less here, but the second copies of all that it is a
    linear map of, and the map of two parts at each party.
    """
    return additive(p, z) if z.resent else z


# Multiplication


@REP3.protocol("mul", "matmul", "conv")
def bilinear(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] (*) [y], additive.  0 rounds; 0 bits online, 0 offline; two products a party.

    z[i] = x[i] (*) (y[i] + y[i + 1]) + x[i + 1] (*) y[i].  Araki et al., section 2. The sum is
    taken over the operand that is known earlier: for weights it is made once a session.
    """
    if x.form.is_public or y.form.is_public:
        return bilinear_with_public(p, op, x, y)
    x, y = replicated(p, x), replicated(p, y)
    if max(part.phase for part in x.parts) < max(part.phase for part in y.parts):
        pairs = [[(x[i] + x[i + 1], y[i]), (x[i], y[i + 1])] for i in p]
    else:
        pairs = [[(x[i], y[i] + y[i + 1]), (x[i + 1], y[i])] for i in p]
    return Sharing(tuple(p.at(product(op, pairs[i]), i) for i in p), Form.ADDITIVE)


# Truncation


def opened(p: Parties, z: Sharing, r: Value) -> Value:
    """c = z + r at party 0, for a mask r that party 2 alone knows.  1 round; 2k bits (k
    replicated).

    Party 0 sees z[1] under a draw that parties 1 and 2 share, and a sum under r.
    """
    if z.form is Form.REPLICATED:
        return p.at(z[0] + z[1] + p.send(p.at(z[2] + r, 2), 2, 0), 0)
    rho = p.draw((1, 2), z.shape, z.type)
    first = p.send(p.at(z[1] + rho, 1), 1, 0)
    second = p.send(p.at(z[2] - rho + r, 2), 2, 0)
    return p.at(z[0] + first + second, 0)


def truncated_chunk(
    p: Parties, z: Sharing, f: int, K: int, masks: tuple[Value, Value] | None = None
) -> Sharing:
    """[y] in Z_2^K, y = floor((z + tau) / 2^f), K > k - f, for -2^(k-2) <= z < 2^(k-2).

    2 rounds; 2k + K + 2 bits online and K + 2e offline. tau = r mod 2^f is uniform in [0, 2^f):
    unbiased rounding, at most one unit in the last place, never a failure; none at all for f = 0.
    Party 0 knows c = z + r and party 2 its mask r: each knows the rounding threshold of its own
    view. (c >> f) - (r >> f) is y modulo 2^(k-f) alone: an overflow of z + r has to be found.

    A pair of parts, at parties 0 and 1, has masks of its own: see `opened_pair`.
    """
    k = z.type.bits
    assert 0 <= f <= k - 2, f"truncation by {f} bits in a ring of {k}"
    if masks is None:
        r = p.draw((2,), z.shape, z.type)
        c = opened(p, z, r)
    else:
        r = p.at(masks[0] + masks[1], 2)
        c = opened_pair(p, z, *masks)
    return with_overflow(p, c, r, f, K)


def with_overflow(p: Parties, c: Value, r: Value, f: int, K: int) -> Sharing:
    """[floor((z + tau) / 2^f)] in Z_2^K, K > k - f.  1 round; K + 2 bits online, K + 2e offline.

    With c_m, r_m the top bits, c + 2^(k-2) overflowed its low k - 1 bits exactly when c_m xor r_m
    = 1, because z + 2^(k-2) has top bit 0: y is corrected by that bit, which is c_m + r_m - 2 c_m
    r_m, from a sharing of u = r_m and the pad g of c_m.
    """
    k = c.type.bits
    ring, shift, e = words(K), k - f, K - k + f
    # Offline: party 2 shares what the mask r contributes; party 1 the product of g and u.
    r_top = r.bits(k - 1)
    rest = (r.mod(k - 1) >> f).mod(K)
    B = share_known(p, 2, (r_top.to_words(K) << (k - 1 - f)) - rest, drawn=0, sent=2)
    u = share_known(p, 2, r_top.to_words(e), drawn=0, sent=2)
    g = p.draw((0, 1), c.shape, BIT)
    zero = p.program.const(0, c.shape, words(e))
    gu = share_known(p, 1, p.at(select(g, u[2], zero), 1), drawn=1, sent=2)
    # Online: the top bit of c under g, and what c contributes.
    c = c + (1 << (k - 2))
    c_top = c.bits(k - 1)
    d = p.send(p.send(c_top ^ g, 0, 1), 0, 2)
    low = (c.mod(k - 1) >> f).mod(K) + (c_top.to_words(K) << (k - 1 - f))
    scaled_u0 = u[0].mod(K) << shift
    v = share_known(p, 0, low - select(c_top, scaled_u0, ring_zero(p, c, K)), drawn=0, sent=1)
    gu1, gu2, u2 = (part.mod(K) << shift for part in (gu[1], gu[2], u[2]))
    y0 = v[0] + B[0]
    y1 = v[1] + select(d, gu1, -gu1) - p.program.const(1 << (k - 2 - f), (), ring)
    y2 = B[2] + select(d, gu2 - u2, -gu2)
    return Sharing((y0, y1, y2), Form.REPLICATED)


def opened_pair(p: Parties, z: Sharing, p0: Value, p2: Value) -> Value:
    """c = z + p0 + p2 at party 0, for z whose parts are at parties 0 and 1.  1 round; k bits.

    p0 is drawn by parties 0 and 2, p2 by parties 1 and 2. Were the mask known to party 1, the bit d
    of the truncation would tell it about z. Masks are added last: verify_masking looks for them
    among the nearest terms of a sum.
    """
    return p.at(z[0] + p.send(p.at(z[1] + p2, 1), 1, 0) + p0, 0)


def ring_zero(p: Parties, like: Value, bits: int) -> Value:
    return p.program.const(0, like.shape, words(bits))


def pair(p: Parties, z: Sharing) -> Parts:
    """z as parts at parties 0 and 1.  A replicated z: 0 rounds; additive 1 round, k bits.

    Of an additive z party 2 gives its part away. Where roles rotate half of the elements go to each
    of the two, so that all links are used the same; where they are fixed all go to party 0. Where
    the part is zero, as `paired` leaves it, there is nothing to send.
    """
    if z.form is Form.REPLICATED:
        return p.at(plus(z[0], z[1]), 0), p.at(z[2], 1)
    if z[2].constant_value() == 0:
        return p.at(z[0], 0), p.at(z[1], 1)
    chunks = halves(z.elements)
    if not p.rotates or len(chunks) == 1:
        return given_to(p, z, 0)
    given = (
        given_to(p, z.map(partial(Value.chunk, start=start, length=length)), to)
        for to, (start, length) in enumerate(chunks)
    )
    first, second = (join(copies, z.shape) for copies in zip(*given, strict=True))
    return first, second


def given_to(p: Parties, z: Sharing, to: int) -> Parts:
    """An additive z as parts at parties 0 and 1: party 2's part, less a draw, goes to one of them,
    and the other adds the draw.  1 round; k bits.
    """
    rho = p.draw((1 - to, 2), z.shape, z.type)
    rest = p.send(p.at(minus(z[2], rho), 2), 2, to)
    given = (rest, rho) if to == 0 else (rho, rest)
    return p.at(plus(z[0], given[0]), 0), p.at(plus(z[1], given[1]), 1)


def preparing(p: Parties) -> Provider:
    """Party 2, for parties 0 and 1."""
    return Provider(p, 2, (0, 1))


def pair_of(p: Parties, parts: Sequence[Value]) -> Sharing:
    """What is in parts at parties 0 and 1 alone."""
    first, second = parts
    zero = p.at(ring_zero(p, first, first.type.bits), 2)
    return Sharing((p.at(first, 0), p.at(second, 1), zero), Form.ADDITIVE)


def paired(p: Parties, parts: Sequence[Value]) -> Sharing:
    """The same for what reads it additive or replicated.  Its replica 1 round and 2k bits."""
    return replace(pair_of(p, parts), replica=pair_reshared(p, parts))


def pair_reshared(p: Parties, parts: Sequence[Value]) -> Sharing:
    """Parts at parties 0 and 1 to replicated.  1 round; 2k bits.

    Parts 0 and 2 are draws; the two tell each other what is left of theirs, and its sum is part 1.
    """
    first, second = parts
    x0 = p.draw((2, 0), first.shape, first.type)
    x2 = p.draw((1, 2), first.shape, first.type)
    x1 = p.send(p.at(first - x0, 0), 0, 1) + p.send(p.at(second - x2, 1), 1, 0)
    return Sharing((x0, x1, x2), Form.REPLICATED, resent=True)


@REP3.protocol("lift")
@REP3.protocol("truncate", rounding=Rounding.SAFE_ROLE)
def truncate(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """floor((z + tau) / 2^f) in Z_2^K.  2 rounds; (1 + o) l + (2 - o) K + 2o bits online,
    o K + 2e offline.

    For z additive. Where there is no overflow to find a pair of parts is shifted, and a replicated
    z takes 1 round and 2K bits. Else see `truncated_chunk`, which opens a replicated z with l bits
    less; a lift is f = 0. Bits above l do not bear on the result: z is reduced first.
    """
    f, K = int(op.attrs.get("bits", 0)), op.ring_bits
    if min(z.type.bits, K + f) - f < K:

        def overflowing(q: Parties, part: Sharing) -> Sharing:
            return truncated_chunk(q, reduced(part, K + f), f, K)

        return rounded_rotating_roles(p, op, overflowing, parted(p, z), safe=1)

    def body(q: Parties, part: Sharing) -> Sharing:
        return paired(q, shifted(preparing(q), pair(q, reduced(part, K + f)), f))

    return rounded_rotating_roles(p, op, body, parted(p, z), safe=2)


REP3.include(LINEAR)
