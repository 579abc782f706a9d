"""Building blocks that suites share: linear maps, carry trees, maxima, functions of a masked
opening.
"""
