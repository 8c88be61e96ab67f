"""Search for the plan that is soonest at a loss: the noise scale first, then plans by its worth."""
