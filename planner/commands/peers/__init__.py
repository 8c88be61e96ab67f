"""The command that compares with peers."""
