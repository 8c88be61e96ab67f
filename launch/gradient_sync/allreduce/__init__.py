"""The rank's side of the gradient sync: all-reduces between nodes. Imports mpi4py, never torch."""
