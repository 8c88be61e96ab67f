"""The search for the best plan of one node: trials, results, and the choice among them."""
