"""Training scripts of peers, as their users write them."""
