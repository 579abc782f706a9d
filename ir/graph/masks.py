"""The number that means "masked" in a program of the graph level, until a pass bounds it.

No ring holds it beside others, and in float32 a score that is added to it vanishes, as it does
beside minus infinity. It is a power of two, so that sums and products with truth values are exact.
"""

MASKED = 2.0**96
FAR = 1024.0  # what it becomes at the least: e^-FAR is nothing where scores lie less apart
