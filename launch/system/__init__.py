"""The operating system's part: processes, signals, allocators, caches, folders of runs."""
