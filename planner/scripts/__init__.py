"""Scripts as they are: what is varied of them, their trials, and how they are launched."""
