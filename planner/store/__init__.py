"""Database of probes, trials, plans and links.

Only this folder imports SQLAlchemy; its arguments and results are frozen values.
"""

from planner.store.store import Store

__all__ = ["Store"]
