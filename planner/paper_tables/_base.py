"""Contract of every paper whose tables are made again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from planner.paper_tables._evidence import StoredEvidence
from planner.paper_tables._values import PaperPlot, PaperSection, PaperTable
from planner.paper_tables._wanted import Wanted
from probes.hardware import Hardware


class Paper(ABC):
    """A paper, or several that ask the same. It has no state.

    A table has a row for everything that the paper shows, also where this hardware cannot do it:
    then its cell says why. A published figure stands there only with the place it is from.
    """

    name: str
    """Of its file."""

    order: int
    """Where it stands in a report, the smallest first."""

    title: str
    citation: str

    use_cases: tuple[str, ...]
    """Built-in use cases whose studies and trainings it needs."""

    @abstractmethod
    def tables(self, held: StoredEvidence) -> Sequence[PaperTable]:
        """Give the tables."""

    @abstractmethod
    def plots(self, held: StoredEvidence) -> Sequence[PaperPlot]:
        """Give the plots."""

    @abstractmethod
    def wanted(self, held: StoredEvidence, node: Hardware) -> Sequence[Wanted]:
        """Say what is to be measured on this machine, in order; what is held is not wanted again.

        It is asked anew after each measurement.
        """

    def section(self, held: StoredEvidence) -> PaperSection:
        """Give all of it."""
        return PaperSection(
            name=self.name,
            title=self.title,
            citation=self.citation,
            tables=tuple(self.tables(held)),
            plots=tuple(self.plots(held)),
        )
