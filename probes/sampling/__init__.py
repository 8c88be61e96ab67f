"""Sampling: what processes, their machine and its GPUs use while they run."""
