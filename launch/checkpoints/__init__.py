"""Checkpoints: folders from which any plan can resume a training."""
