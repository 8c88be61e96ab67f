"""An MPI rank of a training: one process per node, which starts and watches the node's workers."""
