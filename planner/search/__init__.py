"""Search: which plan is tried next, from what earlier trials showed."""
