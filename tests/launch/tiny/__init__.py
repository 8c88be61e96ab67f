"""What the tiny use cases are made of."""
