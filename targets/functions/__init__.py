"""Building blocks for real functions: how a function is fitted, for a suite to choose from."""
