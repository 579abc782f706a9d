"""Which values are public, and who owns what comes in: from the owners that the user names.

x owned by alice, weights by bob:
    %a = matmul %x, %w      ->  secret
    %c = constant 2.0       ->  public
    %d = add %c, %c         ->  public
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph, name_of
from veilgraph.ir.plan.tables import COMMON, PUBLIC, STATE, WEIGHTS
from veilgraph.ir.secret.types import Secrecy


@dataclass(frozen=True)
class Visibility:
    """Owner of each input and weight, and secrecy of each operation, by name.

    Attributes:
        announced: inputs that their owner tells every party in each run.
    """

    owners: Mapping[str, str]
    operations: Mapping[str, Secrecy]
    announced: Collection[str] = ()

    def secrecy(self, argument: str) -> Secrecy:
        """Of an input or weight."""
        is_known = self.owners[argument] in (PUBLIC, COMMON)
        is_public = is_known or argument in self.announced
        return Secrecy.PUBLIC if is_public else Secrecy.SECRET


@dataclass(frozen=True)
class InferVisibility:
    """Marks what is public and what is secret.

    Before, with x owned by alice, weights by bob::

        %1 = constant
        %2 = add %1, %1
        %3 = mul %x, %2
        %4 = add %3, %w

    After::

        %1 public, %2 public, %3 secret, %4 secret

    Attributes:
        owners: the party that gives each input and weight, by name; "weights" stands for all
            weights, "public" for a party where everybody knows the value, "shared" where no party
            does.
        announced: inputs that their owner tells every party.
    """

    owners: Mapping[str, str]
    announced: Collection[str] = ()

    def run(self, graph: Graph) -> Visibility:
        """The visibility of every value of `graph`.

        Raises:
            UsageError: an owner of something that doesn't exist, or something without an owner.
        """
        visibility = Visibility(self._owners(graph), {}, self.announced)
        public = {
            value
            for name, value in (graph.inputs | graph.parameters).items()
            if visibility.secrecy(name) is Secrecy.PUBLIC
        }
        operations = {}
        for op in graph.operations:
            known = all(value in public for value in op.operation.operands)
            if known:
                public.add(op.operation.results[0])
            operations[name_of(op)] = Secrecy.PUBLIC if known else Secrecy.SECRET
        return replace(visibility, operations=operations)

    def _owners(self, graph: Graph) -> dict[str, str]:
        known = [*graph.inputs, *graph.parameters]
        for name in self.owners:
            if name != WEIGHTS and name not in known:
                raise UsageError(
                    f"An owner is given for {name!r}, which is no input and no weight.",
                    f"The inputs are {', '.join(graph.inputs)}.",
                )
        owners = {name: self.owners[name] for name in known if name in self.owners}
        owners |= dict.fromkeys(graph.states, STATE)
        if WEIGHTS in self.owners:
            owners |= {n: self.owners[WEIGHTS] for n in graph.parameters if n not in owners}
        for name in known:
            if name not in owners:
                raise UsageError(
                    f"Nobody is named as the owner of {name!r}.",
                    f"Name a party: --owner {name}=alice, or --owner weights=bob for all weights.",
                )
        return {name: owners[name] for name in known}
