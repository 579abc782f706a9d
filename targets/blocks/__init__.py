"""Building blocks that suites share: linear maps, truncations, comparisons by a window, maxima."""
