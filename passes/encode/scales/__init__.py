"""The scale solver: constraints, accumulators, fraction bits, ring widths, and the search."""
