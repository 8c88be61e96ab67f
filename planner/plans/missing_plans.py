"""Missing plans: one line that says of what and where there is none, with what finds one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from planner.errors import NoDatabaseError, NoPlanError


@contextmanager
def needing_plans(trained: str, db: str, remedy: str) -> Iterator[None]:
    """Let a database that is missing count as one without the plan that the block looks for.

    Raises:
        NoPlanError: There is no database; the message names the command.
    """
    try:
        yield
    except NoDatabaseError as error:
        if error.above is not None:
            remedy += f", or name the database of a folder above with {error.above}"
        raise make_missing_plan_error(trained, f"in {db}", remedy) from error


def make_missing_plan_error(trained: str, where: str, remedy: str) -> NoPlanError:
    """Make the error for a plan of a use case or command that is not stored ``on node1, node2``."""
    return NoPlanError(f"no plan for {trained} {where}: run {remedy}")
