"""python -m veilgraph: the command line."""

from veilgraph.cli import main

if __name__ == "__main__":
    main()
