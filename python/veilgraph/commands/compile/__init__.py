"""`veilgraph compile`: verb.py has its command."""

from veilgraph.commands.compile.verb import command

__all__ = ["command"]
