"""Registers of a fused program: which are in use, and runs of them that have one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Held:
    """Where a value is: one word register, or one bit register a plane."""

    registers: tuple[int, ...]
    is_word: bool
    clean: bool = False  # word: nothing above the ring's width


@dataclass
class Registers:
    """One register file: who uses each register, and how many there ever were, at most `most`."""

    most: int
    references: list[int] = field(default_factory=list)

    def take(self, count: int) -> tuple[int, ...]:
        """`count` neighbouring free registers.

        Raises:
            ValueError: a program that no kernel runs; the text of a stranger's plan may ask for it.
        """
        used = self.references
        first, end = 0, len(used)
        while (first := _index(used, first)) < end:
            length = 1
            while length < count and first + length < end and not used[first + length]:
                length += 1
            if length == count:
                return tuple(range(first, first + count))
            if first + length == end:
                break
            first += length
        if first + count > self.most:
            raise ValueError(f"a fused program takes more than {self.most} registers")
        used.extend([0] * (first + count - end))
        return tuple(range(first, first + count))


def _index(used: list[int], start: int) -> int:
    """The first register from `start` on that nobody uses, or how many there are."""
    try:
        return used.index(0, start)
    except ValueError:
        return len(used)


def runs(registers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(start, step, count) of the runs of a list of registers that have one step."""
    for start, steps, count in common_runs([registers]):
        yield start, steps[0], count


def common_runs(lists: Sequence[Sequence[int]]) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """(start, steps, count) of the runs in which each list of registers has one step."""
    start, length = 0, len(lists[0])
    if length == 1:  # as most are
        yield 0, (1,) * len(lists), 1
        return
    while start < length:
        steps = tuple(x[start + 1] - x[start] if start + 1 < length else 1 for x in lists)
        end = start + 1
        while end < length and all(
            x[end] - x[end - 1] == step for x, step in zip(lists, steps, strict=True)
        ):
            end += 1
        yield start, steps, end - start
        start = end
