"""The four levels of intermediate representation: graph, secret, party, plan."""
