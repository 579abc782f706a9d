"""From the party level to each party's tables; lower.py is the door."""
