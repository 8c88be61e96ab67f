"""Trainings as jobs: made from stored plans, run, resumed, and how they ended."""
