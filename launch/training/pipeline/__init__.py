"""Pipelined steps: a model cut into stages, and micro-batches that follow one another."""
