"""What is this machine? Facts and measured limits of one node. Imports nothing of ours."""
