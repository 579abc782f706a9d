"""The derivative of each operation of the graph level, as operations of the graph level."""
