"""What of decision trees everybody may learn."""

from __future__ import annotations

from enum import Enum


class Trees(Enum):
    """Whether the structure of trees is a plan's, for every party to read, or the model owner's."""

    PUBLIC = "public-structure"
    SECRET = "secret-structure"
