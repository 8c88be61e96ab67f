"""Execution of plans: use cases, strategies, workers, ranks and the MPI job."""
