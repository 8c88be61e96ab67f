"""Scripts as they are, for the command line: the search for their best plan, and their launch."""
