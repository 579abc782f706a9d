"""Which protocol each op takes: calls and what they cost, the search over a program's graph."""
