"""Products of opened bits, which every member makes for itself."""

from __future__ import annotations

from collections.abc import Mapping

from veilgraph.ir.party.program import Value
from veilgraph.targets.blocks.digits import Factor, Term


class OpenedProducts(dict[Term, Value | None]):
    """Products of opened bits, each made once of a smaller one; of none: None, which is 1."""

    def __init__(self, public: Mapping[Factor, Value]) -> None:
        super().__init__({frozenset(): None})
        self._public = public

    def whole(self, term: Term) -> Value:
        """Of all factors of a term."""
        found = self[term]
        assert found is not None, "a term has factors"
        return found

    def __missing__(self, term: Term) -> Value:
        *fewer, last = sorted(term)
        rest = self[frozenset(fewer)]
        made = self._public[last] if rest is None else rest & self._public[last]
        self[term] = made
        return made
