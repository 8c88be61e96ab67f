"""Averaging of gradients and update of parameters by the workers of a node, piece by piece."""
