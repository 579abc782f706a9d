"""The version of what makes tables, by itself: a host that has verified a plan asks for no more."""

# Raised by whoever changes a table that an unchanged program is lowered to: a plan is verified by
# hosts of its own version alone. tests/suites/test_golden.py holds both together.
LOWERING_VERSION = 3
