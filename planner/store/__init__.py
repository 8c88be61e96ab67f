"""Database of probes, trials, plans and links.

Only this folder imports SQLAlchemy; its arguments and results are frozen values.
"""

from planner.store.databases.location import is_postgres, whole_name
from planner.store.databases.opening import check_location, find_hazard, find_missing_file
from planner.store.store import Store

__all__ = [
    "Store",
    "check_location",
    "find_hazard",
    "find_missing_file",
    "is_postgres",
    "whole_name",
]
