"""From the secret level to the party level, and passes over it."""
