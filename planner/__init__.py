"""Top floor: search for the best plan, its store, reports, jobs and the command line."""
