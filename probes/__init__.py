"""Facts and measured limits of one machine. Imports nothing of ours."""
