"""Several nodes in one job: the network between them, predicted speeds, which nodes to use."""
