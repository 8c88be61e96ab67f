"""Channel between a rank and its workers: memory and requests. Imports neither mpi4py nor torch."""
