"""The workers' side of the gradient sync. Imports torch, never mpi4py."""
