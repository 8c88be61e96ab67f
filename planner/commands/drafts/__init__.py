"""The command that writes a use case from a script."""
