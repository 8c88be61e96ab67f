"""Storage: file systems, and how fast files are read from them."""
