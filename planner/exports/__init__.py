"""Plans as files that run without ddlplan: command lines, scripts, a Python module."""
