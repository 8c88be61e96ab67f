"""How do the workers of a node start, speak and end?"""
