"""`veilgraph doctor`: verb.py has its command."""

from veilgraph.commands.doctor.verb import command

__all__ = ["command"]
