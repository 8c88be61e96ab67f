"""The network: interfaces, links between nodes, and what an all-reduce takes."""
