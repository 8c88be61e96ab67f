"""Stored plans: their evidence, the plan file, and the software that they depend on."""
