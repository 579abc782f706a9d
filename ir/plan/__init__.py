"""The plan level: each party's table of steps, its checks, and its file."""
