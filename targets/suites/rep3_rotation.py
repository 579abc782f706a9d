"""Rotation of the roles of rep3: each chunk of a tensor has the parties in other roles.

A protocol that treats the parties differently runs on three chunks with the roles rotated, so that
links and work are balanced. Where roles are fixed, or where the receiver is to be in one of them,
all of a tensor is one chunk. A small tensor is one too, in the roles that are fixed elsewhere: of
two small layers in a row the second one's parts are then partly known ahead, which saves a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Value, join
from veilgraph.targets.alike_bodies import Body, run
from veilgraph.targets.parties import Form, Member, Operation, Parties, Sharing

Prepare = Callable[[Sharing], Sharing]
SMALLEST_CHUNK = 64  # elements: bit planes are sent in 64-bit words
SMALLEST_ROTATED = 3 * SMALLEST_CHUNK  # elements, of tensors that are cut in chunks
FEWEST_ROWS = 12  # of which thirds are alike
# Elements of the smallest tensor that a party gives away by both its links: two messages and sums
# more take tens of microseconds, and half of 32 kB takes 13 on a LAN, 1,300 on a WAN.
SMALLEST_HALVED = 1 << 13


def rotation_of(p: Parties, receiver: Member, role: int) -> int:
    """How far roles are rotated for a receiver who computes to be in this one."""
    own = p.role(receiver)
    return 0 if own is None else own - role


def rotating_roles(
    p: Parties, op: Operation, body: Body, x: Sharing, unpaired: Prepare | None = None
) -> Sharing:
    """`body` on three equal chunks with the roles rotated; a small tensor is one chunk.

    Args:
        unpaired: what is made of x first, where two parties do not have all of each chunk.
    """
    return _rotated(p, op, body, x, thirds(x.elements), unpaired=unpaired)


def rounded_rotating_roles(
    p: Parties,
    op: Operation,
    body: Body,
    x: Sharing,
    safe: int,
) -> Sharing:
    """As `rotating_roles`; where roles are fixed, one chunk whose role `safe` is the receiver's.

    That role knows nothing of how a truncation rounds.
    """
    return _rotated(p, op, body, x, thirds(x.elements), safe)


def rotating_roles_by_rows(
    p: Parties,
    op: Operation,
    body: Body,
    x: Sharing,
    safe: int | None = None,
    unpaired: Prepare | None = None,
) -> Sharing:
    """`body` on three chunks of whole rows, each a matrix; `safe` as `rounded_rotating_roles`, and
    `unpaired` as `rotating_roles`.
    """
    length = x.shape[-1]
    rows = x.elements // length
    size = -(-rows // 3) if x.elements >= 3 * SMALLEST_CHUNK else rows
    chunks = [(i * length, min(size, rows - i) * length) for i in range(0, rows, size)]

    def body_of_rows(q: Parties, part: Sharing) -> Sharing:
        return body(q, part.map(lambda v: v.reshape((v.elements // length, length))))

    return _rotated(p, op, body_of_rows, x, chunks, safe, unpaired)


def _rotated(
    p: Parties,
    op: Operation,
    body: Body,
    x: Sharing,
    chunks: Sequence[tuple[int, int]],
    safe: int | None = None,
    unpaired: Prepare | None = None,
) -> Sharing:
    if unpaired is not None and not _is_in_pairs(p, x, chunks):
        x = unpaired(x)
    if safe is not None and p.receiver is not None and p.fixed_roles:
        return _in_chunks(p, op.shape, body, x, [(0, x.elements, rotation_of(p, p.receiver, safe))])
    if not p.rotates or len(chunks) == 1:
        # Who receives knows nothing of roundings as role 2.
        rotation = 0 if p.receiver is None else rotation_of(p, p.receiver, 2)
        return _in_chunks(p, op.shape, body, x, [(0, x.elements, rotation)])
    return _in_chunks(p, op.shape, body, x, _turned(p, chunks), keeping=True)


def in_rotated_chunks(p: Parties, x: Sharing, body: Body) -> Sharing:
    """A sharing made of x, chunk by chunk, each in roles of its own where they rotate."""
    chunks = thirds(x.elements) if p.rotates else []
    turned = _turned(p, chunks) if len(chunks) > 1 else [(0, x.elements, 0)]
    return _in_chunks(p, x.shape, body, x, turned)


def _turned(p: Parties, chunks: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """How far each chunk's roles are rotated, behind its start and length."""
    return [(*chunk, (role + p.program.layer) % 3) for role, chunk in enumerate(chunks)]


def _is_in_pairs(p: Parties, x: Sharing, chunks: Sequence[tuple[int, int]]) -> bool:
    """Whether two parties have all of each chunk."""
    if not p.rotates or len(chunks) == 1:
        return x.form is Form.ADDITIVE and 0 in (part.constant_value() for part in x.parts)
    return all(_pair(x, *chunk) is not None for chunk in chunks)


def _pair(x: Sharing, start: int, length: int) -> tuple[Sharing, int] | None:
    """A chunk that a protocol left to two parties, and how far roles are rotated for these to be
    roles 0 and 1; None for any other.
    """
    vectors = [part.joined(start, length) for part in x.parts]
    parts = [vector for vector in vectors if vector is not None]
    if x.form is not Form.ADDITIVE or len(parts) < len(vectors):
        return None
    zeros = [j for j, part in enumerate(parts) if part.constant_value() == 0]
    return (Sharing(tuple(parts), x.form), (zeros[0] - 2) % 3) if len(zeros) == 1 else None


def _in_chunks(
    p: Parties,
    shape: Shape,
    body: Body,
    x: Sharing,
    chunks: Sequence[tuple[int, int, int]],
    keeping: bool = False,
) -> Sharing:
    """Chunks are (start, length, how far roles are rotated).

    Args:
        keeping: whether two parties that have all of a chunk keep it: in roles 0 and 1 they go on
            with it, and send it nowhere first.
    """
    done = []
    for start, length, rotation in chunks:
        if keeping and (pair := _pair(x, start, length)) is not None:
            chunk, rotation = pair
        else:
            chunk = x.map(partial(Value.chunk, start=start, length=length))
        made = run(p.rotated(rotation), body, chunk.rotated(rotation)).rotated(-rotation)
        done.append(made.map(lambda v: v.reshape((v.elements,))))
    return _joined(done, shape)


def _joined(chunks: Sequence[Sharing], shape: Shape) -> Sharing:
    """Vectors one after another, as a tensor of `shape`."""
    first = chunks[0]
    replicas = [chunk.replica for chunk in chunks if chunk.replica is not None]
    replica = _joined(replicas, shape) if len(replicas) == len(chunks) else None
    parts = (join([chunk[j] for chunk in chunks], shape) for j in range(len(first.parts)))
    return Sharing(tuple(parts), first.form, first.resent, replica)


def thirds(elements: int) -> list[tuple[int, int]]:
    """(start, length) of the chunks: multiples of 64 but for the last, none empty."""
    size = -(-elements // (3 * SMALLEST_CHUNK)) * SMALLEST_CHUNK
    starts = range(0, elements, size) if elements >= 3 * SMALLEST_CHUNK else [0]
    size = size if elements >= 3 * SMALLEST_CHUNK else elements
    return [(start, min(size, elements - start)) for start in starts]


def halves(elements: int) -> list[tuple[int, int]]:
    """The same of two, the first a multiple of 64; of a small tensor one."""
    first = elements // 2 // SMALLEST_CHUNK * SMALLEST_CHUNK
    if elements < SMALLEST_HALVED or not first:
        return [(0, elements)]
    return [(0, first), (first, elements - first)]
