"""Programs of the user's own: how they are started, watched from outside and ended."""
