"""MPI jobs: one rank on each node, by mpirun or srun."""
