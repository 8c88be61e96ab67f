"""Scripts as they are, in the Python API: the search for their best plan, and their launch."""
