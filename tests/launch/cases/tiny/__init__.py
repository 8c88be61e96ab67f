"""What the use cases of tests are made of."""
