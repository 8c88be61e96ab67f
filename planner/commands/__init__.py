"""Commands, one module for each group: they call the Python API and print what it gives."""
