"""Workers of a node: how they start, report and end."""
