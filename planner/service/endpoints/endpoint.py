"""Endpoints: addresses of the API as values, each with its function and the shape of its data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from launch.errors import LaunchError
from planner.errors import (
    ConflictError,
    NoDatabaseError,
    NoJobError,
    NoPlanError,
    NoSweepError,
    NoTrainingError,
    PlannerError,
    RefusedError,
    RunDirectoryError,
    StalePlanError,
    StoreError,
    SupervisorError,
)
from planner.exit_codes import BUG, classify_error
from planner.quantities import printable
from planner.service.endpoints.shapes import NOTHING, Shape
from planner.service.requests.answers import Answer
from planner.service.requests.bodies import read_object
from planner.service.requests.calls import Call
from planner.service.requests.documents import RequestError, data_document
from planner.service.requests.terminal import tell_terminal
from probes.errors import InvalidDocumentError

_STATUS = {
    NoPlanError: 404,
    NoJobError: 404,
    NoTrainingError: 404,
    NoSweepError: 404,
    ConflictError: 409,
    RefusedError: 403,
    StalePlanError: 409,
}
"""Of errors that are not the request's own fault, which is 400."""

_OWN_FAULTS: Mapping[type[Exception], str] = {
    StoreError: "the database cannot be used",
    InvalidDocumentError: "something in the database cannot be read",
    RunDirectoryError: "there is no place for the files of a job",
    SupervisorError: "the job could not be started",
}
"""Errors whose messages say more than a request should be told, and what is said instead."""

_NUMBER = re.compile(r"-?[0-9]{1,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value in the query of an address."""

    name: str
    about: str
    is_number: bool = False
    least: int | None = 1
    """Smallest number; ``None`` allows those below 0."""

    choices: Sequence[str] = ()
    is_needed: bool = False


def in_state(states: Iterable[str]) -> Parameter:
    """Give the value that asks for things in one of these states."""
    return Parameter(name="state", about="only in this state", choices=[str(one) for one in states])


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an endpoint has found."""

    data: Any
    warnings: Sequence[str] = ()
    next_before: int | None = None
    """Where the rest of a list begins; ``None`` where this is its end."""

    address: str | None = None
    """Of what an action has made."""


Values = Mapping[str, Any]
"""Checked values: those of the query and of the address by their names, ``body`` and ``key``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address of the API."""

    path: str
    """Below ``/api/v1``, with ``{id}`` in it."""

    command: str
    """What would print its document."""

    about: str
    answer: Callable[[Values], Found]
    shape: Shape
    parameters: Sequence[Parameter] = ()
    body: Shape | None = None
    """Of an action; ``None`` where it changes nothing."""

    has_key: bool = False
    """Whether a request may name itself by a key, so that it is done once."""

    status: int = 200
    """Of an answer that is no error."""

    @property
    def is_list(self) -> bool:
        """Whether its answer is a list, of which a part may be given."""
        return "items" in self.shape

    @property
    def is_action(self) -> bool:
        """Whether it changes something."""
        return self.body is not None

    @property
    def method(self) -> str:
        """GET, or POST of an action."""
        return "POST" if self.is_action else "GET"

    def call(self, call: Call) -> Answer:
        """Answer a request.

        Raises:
            RequestError: It cannot be.
        """
        values = self._read(call)
        try:
            found = self.answer(values)
        except NoDatabaseError as error:
            if not self.is_list:
                raise refuse(error) from error
            found = Found(data=[], warnings=["nothing is stored yet: run ddlplan tune first"])
        except (PlannerError, LaunchError, InvalidDocumentError) as error:
            raise refuse(error) from error
        next_page = None
        if found.next_before is not None:
            given = {p.name: values[p.name] for p in self.parameters if values[p.name] is not None}
            query = urlencode({**given, "before": found.next_before})
            next_page = f"{call.path}?{query}"
        body = data_document(
            self.command,
            found.data,
            warnings=found.warnings,
            next_page=next_page,
            is_list=self.is_list,
        )
        address = {} if found.address is None else {b"location": found.address.encode()}
        return Answer(status=self.status, body=body, headers=address)

    def _read(self, call: Call) -> dict[str, Any]:
        known = {one.name: one for one in self.parameters}
        if unknown := sorted(call.query.keys() - known):
            names = ", ".join(known) or "none"
            raise RequestError(400, f"{printable(unknown[0][:60])} is no parameter here: {names}")
        values: dict[str, Any] = {
            one.name: _read_value(one, call.query.get(one.name, ())) for one in self.parameters
        }
        body = read_object(call.body)
        if body and self.body is NOTHING:
            raise RequestError(400, "nothing is expected in the body but {}")
        return {**values, **call.numbers, "key": call.key, "body": body}


def _read_value(parameter: Parameter, given: Sequence[str]) -> str | int | None:
    name = parameter.name
    if len(given) > 1:
        raise RequestError(400, f"{name} is there more than once")
    if not given or not given[0]:
        if parameter.is_needed:
            raise RequestError(400, f"{name} is missing: {parameter.about}")
        return None
    text = given[0]
    if parameter.is_number:
        number = int(text) if _NUMBER.fullmatch(text) else None
        if number is None or (parameter.least is not None and number < parameter.least):
            above = "" if parameter.least is None else f" of at least {parameter.least}"
            raise RequestError(400, f"{name}: expected a whole number{above}")
        return number
    if parameter.choices and text not in parameter.choices:
        raise RequestError(400, f"{name}: choose one of {', '.join(parameter.choices)}")
    return text


def refuse(error: Exception) -> RequestError:
    """Give the answer for an error; the terminal is told what a request is not."""
    code, kind = classify_error(error) or (BUG, "bug")
    for base, said in _OWN_FAULTS.items():
        if isinstance(error, base):
            tell_terminal(f"error: {printable(str(error))}\n")
            message = f"{said}: the terminal of ddlplan serve says why"
            return RequestError(503, message, code=code, kind=kind)
    status = next((_STATUS[base] for base in type(error).__mro__ if base in _STATUS), 400)
    return RequestError(status, str(error), code=code, kind=kind)
