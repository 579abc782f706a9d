"""What PTX does with the registers of products that are under way.

A product of wgmma reads and writes registers until a wait covers it (PTX ISA, "Asynchronous
Warpgroup Level Matrix Instructions"): until then no other instruction may touch its sums, nor write
what it reads. Nothing in PTX says which registers those are at a wait, so a compiler does not hold
itself to the rule.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_

REGISTER = re.compile(r"%r[dsp]?\d+|%[a-z]+\d+")
LABEL = re.compile(r"([$\w]+):")
BRANCH = re.compile(r"(@!?%p\d+\s+)?bra(?:\.uni)?\s+([$\w]+);")
ENTRY = re.compile(r"\.entry (\w+)\(")
PRODUCT = "wgmma.mma_async"


@dataclass(frozen=True)
class Bundle:
    """Registers of products: sums that they add to, and fragments that they read."""

    sums: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()

    def __or__(self, other: Bundle) -> Bundle:
        return Bundle(self.sums | other.sums, self.read | other.read)


State = tuple[Bundle, ...]  # the last one is still open
MOST_PENDING = 4  # bundles that are told apart: waits leave fewer, and the oldest end together


def early_uses(ptx: str) -> list[str]:
    """Instructions, as "kernel: text", that touch registers of products before a wait does."""
    return [f"{name}: {line}" for name, lines in _kernels(ptx) for line in _early(lines)]


def _kernels(ptx: str) -> Iterator[tuple[str, list[str]]]:
    """Name and instructions of each kernel, a line each."""
    parts = ENTRY.split(ptx)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        body = re.sub(r"//[^\n]*", "", text[text.index("\n{") :])
        yield (
            name,
            [
                " ".join(line.split())
                for line in re.split(r"(?<=[;:{}])\s*\n", body)
                if line.split()
            ],
        )


def _early(lines: list[str]) -> list[str]:
    """On every path: each line is entered with each state that it can be entered with, once."""
    labels = {match[1]: i for i, line in enumerate(lines) if (match := LABEL.fullmatch(line))}
    found: dict[int, str] = {}
    seen: set[tuple[int, State]] = set()
    todo: deque[tuple[int, State]] = deque([(0, (Bundle(),))])
    while todo:
        at, state = todo.pop()
        while at < len(lines) and (at, state) not in seen:
            if LABEL.fullmatch(lines[at]):
                seen.add((at, state))
            if _touches(lines[at], state):
                found[at] = lines[at]
            state = _after(lines[at], state)
            if branch := BRANCH.fullmatch(lines[at]):
                todo.append((labels[branch[2]], state))
                if not branch[1]:
                    break
            at += 1
    return [found[at] for at in sorted(found)]


def _operands(line: str) -> Bundle:
    """The sums of a product, and the registers that its left factor is in."""
    lists = re.findall(r"\{([^}]*)\}", line)
    held = lists[1] if len(lists) > 1 else ""
    return Bundle(frozenset(REGISTER.findall(lists[0])), frozenset(REGISTER.findall(held)))


def _after(line: str, state: State) -> State:
    if line.startswith(PRODUCT):
        return (*state[:-1], state[-1] | _operands(line))
    if line.startswith("wgmma.commit_group"):
        oldest = state if len(state) < MOST_PENDING else (state[0] | state[1], *state[2:])
        return (*oldest, Bundle())
    if line.startswith("wgmma.wait_group"):
        pending = int(line.rstrip(";").split()[-1])
        assert pending + 1 < MOST_PENDING
        return state[-1 - pending :]
    return state


def _touches(line: str, state: State) -> bool:
    """Whether it reads or writes sums under way, or writes (its first operand) what they read."""
    busy = reduce(or_, state)
    if line.startswith(PRODUCT):
        return not busy.sums.isdisjoint(_operands(line).read)  # to the same sums they add in order
    used = REGISTER.findall(line)
    return not busy.sums.isdisjoint(used) or (bool(used) and used[0] in busy.read)
