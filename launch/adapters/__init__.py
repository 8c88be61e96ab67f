"""Adapters: a LightningModule, or a model of `transformers`, as a use case."""
