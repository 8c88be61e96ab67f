"""Training steps of a worker: batches, replicas, averaging. Imports torch."""
