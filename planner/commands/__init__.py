"""What does each command do? One module for each group of commands; `planner.cli` reads options."""
