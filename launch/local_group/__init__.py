"""Groups of workers of one node, and what they share: barriers, memory, parameters."""
