"""Hosts: which machines take part in a job, and whether they can."""
