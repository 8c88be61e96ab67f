"""Which plan is best? Trials, search, store, reports and the command line."""
