"""Trainings as the database holds them: rows while they run, use of their hosts, their logs."""
