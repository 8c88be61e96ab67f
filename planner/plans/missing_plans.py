"""Missing plans: one line where not even their database is there, with what finds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from planner.errors import NoDatabaseError, NoPlanError


@contextmanager
def needing_plans(trained: str, db: str, remedy: str) -> Iterator[None]:
    """Let a database that is missing count as one without the plan that the block looks for.

    Args:
        trained: Use case or command whose plan it is.
        db: Database that the block opens.
        remedy: Command that finds a plan.

    Raises:
        NoPlanError: There is no database; the message names the command.
    """
    try:
        yield
    except NoDatabaseError as error:
        raise NoPlanError(f"no plan for {trained} in {db}: run {remedy}") from error
