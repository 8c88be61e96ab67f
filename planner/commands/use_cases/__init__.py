"""The commands that write a use case from a script, and that try one."""
