"""Papers' tables with this database's figures beside the published ones."""

from __future__ import annotations

from planner.api.reports.making import StoredReport, make
from planner.api.reports.measuring import Measured, MeasureRequest, measure

__all__ = ["MeasureRequest", "Measured", "StoredReport", "make", "measure"]
