"""Signs of life: heartbeats, watchdogs, and the connections that break when a host is lost."""
