"""How does a program get onto the nodes, one rank on each?"""
