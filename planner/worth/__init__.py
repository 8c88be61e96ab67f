"""What a stored plan is worth: where its time goes, what else was tried, and what tuning cost."""
