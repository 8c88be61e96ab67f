"""Sweeps: the same training with many batches on several device settings, and what that shows."""
