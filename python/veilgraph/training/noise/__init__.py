"""The noise of a step: each party's part of it, and what it has to hide."""
