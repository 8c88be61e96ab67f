"""Runs of peers: their processes on each host, in turns with ours, and what came of it."""
