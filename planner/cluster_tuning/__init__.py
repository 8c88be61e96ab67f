"""Cluster tuning: all nodes of a job measure and search at once, in one MPI job."""
