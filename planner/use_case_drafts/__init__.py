"""Use cases written from scripts: what is sure is taken over, the rest is marked."""
