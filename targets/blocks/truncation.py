"""Truncation among members with a provider: of parts alone, or by one masked opening."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.ir.party.program import Value, select
from veilgraph.ir.types import words
from veilgraph.targets.blocks.window import Compare, Parts, opened_window
from veilgraph.targets.parties import Provider


def shifted(d: Provider, parts: Sequence[Value], f: int) -> Parts:
    """Parts of floor((z + tau) / 2^f) modulo 2^(k-f), from two parts of z.  0 rounds.

    The first part is rounded up and the second one down: tau is minus the first one's low bits,
    modulo 2^f. It is uniform: unbiased rounding, at most one unit in the last place, none for a
    multiple of 2^f. Parts that pass 2^k together pass a multiple of 2^(k-f): nothing overflows, for
    any z. Each of the two knows the threshold of its own view. A pad that they share keeps it from
    everybody else, and makes low bits uniform that need not be.
    """
    first, second = parts
    k = first.type.bits
    pad = d.parties.draw(d.members, first.shape, first.type)
    up = first + pad + first.program.const((1 << f) - 1, (), first.type)
    return d.each([(up >> f).mod(k - f), ((second - pad) >> f).mod(k - f)])


def without_low_bits(d: Provider, parts: Sequence[Value], t: int) -> Parts:
    """Two parts of z as those of `shifted`; as they are where no bit is dropped.  0 rounds."""
    return shifted(d, parts, t) if t else tuple(parts)


def truncated(d: Provider, parts: Sequence[Value], f: int, K: int) -> Parts:
    """[y] in Z_2^K, y = floor((z + tau) / 2^f).  1 round; k bits; K + e bits offline.

    c = z + r is opened, and read as `of_opened` says.
    """
    return of_opened(d, *opened_window(d, parts), f, K)


def of_opened(d: Provider, c: Value, r: Value, f: int, K: int) -> Parts:
    """[y] in Z_2^K, y = floor((z + tau) / 2^f), of c = z + r at the members and r at the provider.

    0 rounds; K + e bits offline. tau = r mod 2^f is uniform in [0, 2^f): at most one unit in
    the last place, never a failure; none at all for f = 0. All members know c, hence the rounding
    threshold of their own view. (c >> f) - (r >> f) is y modulo 2^(k-f), for any z: enough for
    K <= k - f. Beyond that an overflow of z + r has to be found.
    """
    k = c.type.bits
    assert 0 <= f <= k - 2, f"truncation by {f} bits in a ring of {k}"
    if k - f < K:
        return with_overflow(d, c, r, f, K)
    return d.plus_public(d.deal(-(r >> f).mod(K)), (c >> f).mod(K))


def with_overflow(d: Provider, c: Value, r: Value, f: int, K: int) -> Parts:
    """[floor((z + tau) / 2^f)] in Z_2^K, K > k - f, for -2^(k-2) <= z < 2^(k-2).  0 rounds.

    K + e bits offline. c + 2^(k-2) overflowed its low k - 1 bits exactly when its top bit and r's
    differ, because z + 2^(k-2) has top bit 0: y is corrected by c_m + r_m - 2 c_m r_m.
    """
    k = c.type.bits
    e = K - k + f
    r_top = r.bits(k - 1)
    low = (r.mod(k - 1) >> f).mod(K)
    rest = d.deal((r_top.to_words(K) << (k - 1 - f)) - low)
    top = d.deal(r_top.to_words(e))
    c = c + c.program.const(1 << (k - 2), (), c.type)
    c_top = c.bits(k - 1)
    known = (c.mod(k - 1) >> f).mod(K) + (c_top.to_words(K) << (k - 1 - f))
    zero = c.program.const(0, c.shape, words(K))
    parts = d.each(
        [b - select(c_top, u.mod(K) << (k - f), zero) for b, u in zip(rest, top, strict=True)]
    )
    return d.plus_public(parts, known - c.program.const(1 << (k - 2 - f), (), words(K)))


def rounded_off(d: Provider, parts: Sequence[Value], f: int, K: int, compare: Compare) -> Parts:
    """Parts of floor(z / 2^f + 1/2) in Z_2^K.  The rounds of `compare`, and 1.

    The truncation of z + 2^(f-1) was rounded up where the low bits of c are below those of r: that
    bit is taken off again. What is left is a function of z, whatever anybody knows of c and r.
    """
    half = parts[0].program.const(1 << (f - 1), (), parts[0].type)
    c, r = opened_window(d, d.plus_public(parts, half))
    y = of_opened(d, c, r, f, K)
    up = compare(d, c, r, 0, f).to_words(d, K)
    return d.each([part - bit for part, bit in zip(y, up, strict=True)])
