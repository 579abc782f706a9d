"""Plans are held to their programs where they run, by verify.py; who signed what; consent."""
