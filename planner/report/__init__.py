"""Output for people and scripts: tables, lines, CSV, JSON documents, live displays."""
