"""What happens in a training step? Batches, replicas, averaging, weights. Imports torch."""
