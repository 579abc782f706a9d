"""From a model to a plan; compile.py is the door."""
