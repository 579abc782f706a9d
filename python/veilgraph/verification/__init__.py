"""Plans are held to their programs where they run; verify.py is the door."""
