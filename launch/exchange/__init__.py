"""How do nodes agree on one gradient, and act as one job? Through their ranks, by MPI."""
