"""rep3, continued: functions of a masked opening.

Party 2 draws a mask r, parties 0 and 1 get c = x + r, and party 2 deals what a function has of r in
parts to these two. They multiply with what it has of c: an additive pair. See rep3.py for how costs
are counted, and docs/protocols.md for the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from veilgraph.ir.party.program import Value, copies
from veilgraph.ir.secret.exponential import Segments
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.targets.blocks.truncation import shifted
from veilgraph.targets.blocks.window import Compare, opened_window
from veilgraph.targets.functions import exponential as exponentials
from veilgraph.targets.functions.clips import Clip, clipped_sums, opened_bits
from veilgraph.targets.functions.masked_openings import NARROW, WIDE, without_overflow
from veilgraph.targets.functions.masked_series import of_mask, of_opened, summed
from veilgraph.targets.parties import Form, Operation, Parties, Sharing
from veilgraph.targets.suites.rep3 import (
    REP3,
    pair,
    pair_of,
    paired,
    preparing,
    replicated,
    share_known,
    truncated_chunk,
)
from veilgraph.targets.suites.rep3_rotation import rotating_roles, rotating_roles_by_rows
from veilgraph.targets.variants import STANDARD, Protocol


def masked_function(p: Parties, op: Operation, x: Sharing, high: Sharing, low: Sharing) -> Sharing:
    """floor((f(x) 2^F + tau) / 2^s), f a Fourier series of N terms (ir/secret/fourier.py).  3
    rounds; 2w + m + K + 2 bits online, 2N * m + K + 2e offline.

    m = sum_bits and e = K - m + s > 0, for x replicated or in parts of two; any other additive one
    is opened with 2w more. Parties 0 and 1 learn c = x + r modulo 2^w for a mask r of party 2; what
    the terms have of r party 2 shares offline. The products make an additive pair, which the
    truncation opens under masks of its own.
    """
    series, tables = FourierSeries.of(op.attrs), (high, low)
    shift, bits = int(op["bits"]), series.sum_bits
    if Clip.of(op.attrs) is not None:
        return _clipped(p, op, x, tables)

    def body(q: Parties, part: Sharing) -> Sharing:
        if series.slope and part.form is Form.ADDITIVE:  # its line is a sum of two parties' parts
            part = pair_of(q, pair(q, part))
        c, r = opened_at_two(q, part.map(lambda v: v.mod(series.window_bits)))
        dealt = shared_with_two(q, of_mask(series, r, tables))
        known = of_opened(series, c, tables)
        first, second = (summed(known, own) for own in dealt)
        first = first + series.constant
        if series.slope:
            first, second = (
                total + own.mod(bits) * series.slope
                for total, own in zip((first, second), pair(q, part), strict=True)
            )
        return truncated_pair(q, first, second, shift, op.ring_bits)

    def unpaired(x: Sharing) -> Sharing:
        return replicated(p, x) if series.slope or x in p.made else x

    return rotating_roles(p, op, body, x, unpaired)


def _clipped(p: Parties, op: Operation, x: Sharing, tables: tuple[Sharing, ...]) -> Sharing:
    """The same of a series with an end (targets/functions/clips.py).  The rounds of `compare` more;
    w is no less than what is compared, and what is dealt is what products with a bit take.
    """
    compare: Compare = REP3.called(p, "compare")
    width = opened_bits(op)

    def body(q: Parties, part: Sharing) -> Sharing:
        c, r = opened_at_two(q, part.map(lambda v: v.mod(width)))
        first, second = clipped_sums(preparing(q), op, c, r, tables, compare)
        return truncated_pair(q, first, second, int(op["bits"]), op.ring_bits)

    return rotating_roles(p, op, body, x, lambda x: replicated(p, x) if x in p.made else x)


def wide_function(p: Parties, op: Operation, x: Sharing, high: Sharing, low: Sharing) -> Sharing:
    """The same with m = K + s, where that is a ring.  2 rounds; 2w + 2K bits online, 2N * m
    offline.

    The sum has room enough above its result for its parts to be shifted: no overflow to find.
    """
    wide = without_overflow(op, FourierSeries, x.type.bits)
    return masked_function(p, wide, x, high, low)


def opened_at_two(p: Parties, x: Sharing) -> tuple[Value, Value]:
    """c = x + r at parties 0 and 1, and r at party 2.  1 round; see `opened_twice`, and 2w bits for
    parts of two."""
    if x.form is Form.ADDITIVE and x[2].constant_value() == 0:
        return opened_window(preparing(p), pair(p, x))
    r = p.draw((2,), x.shape, x.type)
    return opened_twice(p, x, r), r


def opened_twice(p: Parties, x: Sharing, r: Value) -> Value:
    """c = x + r at parties 0 and 1, for a mask r that party 2 alone knows.  1 round; 2w bits, and
    4w for an additive x.

    Each of the two lacks one part of a replicated x, and sees it under r. Of an additive one it
    sees the other's part under a draw that this one shares with party 2, and party 2's, less that
    draw, under r.
    """
    if x.form is Form.ADDITIVE:
        each = []
        for i, other in ((0, 1), (1, 0)):
            rho = p.draw((other, 2), x.shape, x.type)
            theirs = p.send(p.at(x[other] + rho, other), other, i)
            each.append(p.at(x[i] + theirs + p.send(p.at(x[2] - rho + r, 2), 2, i), i))
        return copies(*each)
    at_0 = p.at(x[0] + x[1] + p.send(p.at(x[2] + r, 2), 2, 0), 0)
    at_1 = p.at(x[1] + x[2] + p.send(p.at(x[0] + r, 2), 2, 1), 1)
    return copies(at_0, at_1)


def shared_with_two(p: Parties, values: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Parts, at parties 0 and 1, of what party 2 knows.  Offline; their width each."""
    shared = [share_known(p, 2, value, drawn=0, sent=2) for value in values]
    return [p.at(v[0], 0) for v in shared], [p.at(v[2], 1) for v in shared]


def truncated_pair(p: Parties, first: Value, second: Value, bits: int, K: int) -> Sharing:
    """A pair truncated into Z_2^K.  2 rounds; m + K + 2 bits online, K + 2e offline.

    Its mask is known to party 2, and to neither of the others: see `opened_pair`. Where there is no
    overflow to find, 1 round; 2K bits online: nothing is opened.
    """
    if first.type.bits - bits >= K:
        parts = [part.mod(K + bits) for part in (first, second)]
        return paired(p, shifted(preparing(p), parts, bits))
    masks = (p.draw((0, 2), first.shape, first.type), p.draw((1, 2), first.shape, first.type))
    return truncated_chunk(p, pair_of(p, (first, second)), bits, K, masks)


def exp_sums(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """The sums of e^x along rows, by M segments of x (ir/secret/exponential.py).  1 round; 2w bits
    online, M * m offline.

    Additive; m = sum_bits, for x replicated. Parties 0 and 1 learn c = mu x + r modulo 2^w for a
    mask r of party 2; for each segment party 2 shares a decay of the lower bits of r, or zero.
    Which segment an element is in nobody learns: all M numbers are turned by the upper bits of c.
    """
    segments = Segments.of(op.attrs)

    def body(q: Parties, part: Sharing) -> Sharing:
        c, dealt = opened_and_dealt(q, part, segments, tables)
        rows = [exponentials.sums(segments, c, own, tables) for own in dealt]
        return pair_of(q, rows)

    return rotating_roles_by_rows(p, op, body, x, unpaired=partial(replicated, p))


def masked_exp(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """floor((e^x 2^F + tau) / 2^s) by M segments of x (ir/secret/exponential.py).  3 rounds; 2w + m
    + K + 2 bits online, M * m + K + 2e offline.

    m = sum_bits and e = K - m + s > 0, for x replicated or in parts of two. As `exp_sums`; the
    numbers of all segments are multiplied by what their distance from c makes of them, and the pair
    is truncated.
    """
    segments = Segments.of(op.attrs)

    def body(q: Parties, part: Sharing) -> Sharing:
        c, dealt = opened_and_dealt(q, part, segments, tables)
        first, second = (exponentials.power(segments, c, own, tables) for own in dealt)
        return truncated_pair(q, first, second, int(op["bits"]), op.ring_bits)

    return rotating_roles(p, op, body, x, unpaired=partial(replicated, p))


def wide_exp(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """The same with m = K + s, where that is a ring.  2 rounds; 2w + 2K bits online, M * m offline.

    As for `wide_function`.
    """
    return masked_exp(p, without_overflow(op, Segments, x.type.bits), x, *tables)


def opened_and_dealt(
    p: Parties, x: Sharing, segments: Segments, tables: Sequence[Sharing]
) -> tuple[Value, tuple[list[Value], list[Value]]]:
    """c = mu x + r at parties 0 and 1, and their parts of what is dealt of r.  1 round."""
    index = x.map(lambda v: (v * segments.multiple).mod(segments.window_bits))
    c, r = opened_at_two(p, index)
    return c, shared_with_two(p, exponentials.of_mask(segments, r, tables))


FUNCTIONS: dict[str, dict[str, Protocol]] = {
    "masked_function": {NARROW: masked_function, WIDE: wide_function},
    "exp_sums": {STANDARD: exp_sums},
    "masked_exp": {NARROW: masked_exp, WIDE: wide_exp},
}
