"""Papers' tables with this database's figures beside the published ones.

Example:
    >>> from planner.api import reports
    >>> [section.name for section in reports.make()]  # doctest: +SKIP
    ['lerat_2022', 'mnist_batches', 'cifar_scaling']
"""

from __future__ import annotations

from planner.api.reports.making import make, make_plot
from planner.api.reports.measuring import Measured, MeasureRequest, measure

__all__ = ["MeasureRequest", "Measured", "make", "make_plot", "measure"]
