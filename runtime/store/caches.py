"""Where this user's programs keep what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Veilgraph's part of the user's cache (XDG base directories)."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "veilgraph"
