"""The operating system's part: processes, signals, caches, folders of runs."""
