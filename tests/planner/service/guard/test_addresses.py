"""Which origins are those of the server's own pages."""

from __future__ import annotations

import pytest
from unserved import unserved

from planner.service.guard.addresses import Addresses

PUBLIC = ("http://lab.example", "https://lab.example:8443", "https://other.example")
ADDRESSES = Addresses.of("127.0.0.1", PUBLIC)


def test_origins_of_a_name_are_its_public_addresses_and_its_own_where_it_has_none():
    assert ADDRESSES.find_origins("lab.example") == [PUBLIC[1], PUBLIC[0]]
    assert ADDRESSES.find_origins("Other.example:8000") == [PUBLIC[2]]
    assert ADDRESSES.find_origins("127.0.0.1:8000") == ["http://127.0.0.1:8000"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://lab.example", 401),
        ("https://lab.example:8443", 401),
        ("https://lab.example", 403),
        ("http://lab.example:8443", 403),
        ("https://other.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_pages_of_each_public_address_of_a_name_may_ask_and_no_others(tmp_path, origin, status):
    """The story: of two addresses one was chosen by chance, and pages of the other were refused."""
    ask = unserved(tmp_path, ADDRESSES)
    headers = {"host": "lab.example", "origin": origin, "authorization": "Bearer wrong"}
    assert ask("192.0.2.1", headers) == status
