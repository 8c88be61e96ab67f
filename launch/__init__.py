"""How does a plan run? Use cases, strategies, workers, nodes and the MPI job."""
