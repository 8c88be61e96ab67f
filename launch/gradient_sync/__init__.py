"""Gradient sync: adding gradients over workers and nodes, one folder for each kind of process."""
