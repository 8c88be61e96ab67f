"""The search for the best plan of one node: what is tried, and the choice among results."""
