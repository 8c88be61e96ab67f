"""Where do probes, trials and plans stay? In one database, which only this package opens.

Only files in this folder import SQLAlchemy; what goes in and comes out are frozen values.
"""

from planner.store.store import Store

__all__ = ["Store"]
