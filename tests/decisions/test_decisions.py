"""What the compiler decides for five networks, in text: a heuristic that moves shows as a diff.

Rings, fraction bits, comparisons' windows, the variant of each protocol, rounds and bytes. Whoever
means to move them runs `pytest tests/decisions --update-golden`, and the commit says what for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

import pytest
from pinned_networks import PINNED, Pinned

from veilgraph import Plan
from veilgraph.ir.graph.program import name_of
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.passes.secret.function_protocols import form_of

LAYERS = ("layer", "variant", "ring", "fraction", "range by", "rounds", "online bits",
          "offline bits", "multiply-adds")  # fmt: skip
COMPARISONS = ("comparison", "window bits", "dropped bits")
PHASES = ("phase", "rounds", "link", "bytes")
DIGESTS = ("tables of", "arena bytes", "sha-256")
STOPS = 8  # columns are a multiple of it wide
LAST_DIGITS = 1e-6  # of a number: more than two orders of a sum of float32 differ in


def decisions(plan: Plan) -> str:
    """Four tables, each sorted by its first columns."""
    tables = (
        (LAYERS, _layers(plan)),
        (COMPARISONS, _comparisons(plan)),
        (PHASES, _phases(plan)),
        (DIGESTS, _digests(plan)),
    )
    return "\n\n".join("\n".join(_aligned([head, *sorted(rows)])) for head, rows in tables) + "\n"


def _layers(plan: Plan) -> Iterator[Sequence[str]]:
    """A row for each value that the plan computes, with what it costs all parties together."""
    for layer in plan.layers:
        costs = (layer.rounds, layer.online_bits, layer.offline_bits, layer.multiply_adds)
        if layer.name or any(costs):
            said = (layer.protocol, layer.ring_bits, layer.frac_bits, layer.range_source, *costs)
            yield layer.name or "-", *(str(fact or "-") for fact in said)


def _comparisons(plan: Plan) -> Iterator[Sequence[str]]:
    program = SecretProgram.parse(context(), plan.ir["secret"], {})  # operations live as long
    for op in program.operations:
        known = op.operation.attributes
        if "window_bits" in known:
            dropped = known["dropped_bits"].value if "dropped_bits" in known else 0
            yield name_of(op), str(known["window_bits"].value), str(dropped)
        if (form := form_of(op)) is not None:  # what is opened has a window too
            yield name_of(op), str(form.window_bits), "0"


def _phases(plan: Plan) -> Iterator[Sequence[str]]:
    """Of each link, and of all together."""
    for phase in Phase:
        sent, rounds = plan.sent_bytes(phase), str(plan.rounds(phase))
        for link, count in {"all": sum(sent.values()), **sent}.items():
            yield phase.name.lower(), rounds, link, str(count)


def _digests(plan: Plan) -> Iterator[Sequence[str]]:
    yield "constants", str(len(plan.constants)), _digest([plan.constants])
    for name, party in plan.programs.items():
        tables = (party.steps, party.buffers, party.messages, party.params)
        content = [repr((name, party.keys)).encode(), *(table.tobytes() for table in tables)]
        yield name, str(party.arena_bytes), _digest(content)


def _digest(content: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(content)).hexdigest()[:32]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first column to the left, others to the right; few widths, so that rows seldom move."""
    widths = [-(max(map(len, column)) // -STOPS) * STOPS for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells))


def difference(before: str, found: str) -> str:
    """The lines that moved, each with those around it."""
    lines = (text.splitlines(keepends=True) for text in (before, found))
    return "".join(unified_diff(*lines, "as pinned", "as decided now", n=1))


@pytest.mark.parametrize("pinned", PINNED, ids=str)
def test_decisions_are_what_they_were(pinned: Pinned, update_golden: bool) -> None:
    found, path = decisions(pinned.compiled()), Path(__file__).with_name(f"{pinned}.golden")
    if update_golden:
        path.write_text(found)
    moved = difference(path.read_text(), found)
    assert not moved, f"{moved}\nIf that is meant: pytest tests/decisions --update-golden"


@pytest.mark.parametrize("pinned", PINNED, ids=str)
def test_last_digits_decide_nothing(pinned: Pinned) -> None:
    """The last digits of a float sum depend on the processor, and no decision depends on them.

    Weights that are up to a millionth larger or smaller move every calibrated value, and gains.
    """
    path = Path(__file__).with_name(f"{pinned}.golden")
    assert not difference(path.read_text(), decisions(pinned.compiled(LAST_DIGITS)))


def test_a_moved_line_is_shown_beside_what_it_was() -> None:
    before = "layer  ring\nfirst    24\nrelu     32\nlast     32\n"
    moved = difference(before, before.replace("relu     32", "relu     40"))
    assert moved.splitlines()[3:] == [
        " first    24",
        "-relu     32",
        "+relu     40",
        " last     32",
    ]
    assert difference(before, before) == ""
