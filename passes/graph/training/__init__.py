"""From a model to the programs that train it: losses, updates, and a program for each entry."""
