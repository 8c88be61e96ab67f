"""The commands ``ddlplan tune -- ...`` and ``ddlplan launch -- ...``."""
