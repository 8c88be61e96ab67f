"""Bodies of requests: JSON that can be read in one way only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from planner.service.requests.documents import RequestError


def read_object(body: bytes) -> dict[str, Any]:
    """Read an object; nothing at all counts as an empty one.

    Readers of JSON differ in what they make of a key that is there twice, of NaN, of half a
    character and of other encodings than UTF-8: what one checks, another would do otherwise.

    Raises:
        RequestError: It is no such JSON.
    """
    if not body:
        return {}
    try:
        text = body.decode("utf-8")
        found = json.loads(text, object_pairs_hook=_make_object, parse_constant=_refuse_constant)
        json.dumps(found, ensure_ascii=False).encode("utf-8")  # or half a character is in it
    except UnicodeError as error:
        raise _error("it is no UTF-8") from error
    except RecursionError as error:
        raise _error("it is nested too deeply") from error
    except _RefusedError as error:
        raise _error(str(error)) from error
    except json.JSONDecodeError as error:
        raise _error(f"{error.msg.lower()} at character {error.pos}") from error
    except ValueError as error:  # Python refuses whole numbers of more than 4300 digits
        raise _error("a number has too many digits") from error
    if not isinstance(found, dict):
        raise _error("expected an object")
    return found


class _RefusedError(ValueError):
    """JSON that is not read in the same way everywhere."""


def _make_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _RefusedError("a key is there more than once")
    return made


def _refuse_constant(constant: str) -> NoReturn:
    raise _RefusedError(f"{constant} is no JSON number")


def _error(reason: str) -> RequestError:
    return RequestError(400, f"the body is no JSON that can be read: {reason}")
