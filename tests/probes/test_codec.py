"""Values go through JSON and come back the same; what is wrong with a document is said exactly."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

import numpy as np
import pytest

from probes import codec
from probes.codec import Count, Positive
from probes.errors import InvalidDocumentError


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class NoRoomError(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    number: int
    width_m: float = 1.0
    doors: tuple[int, ...] = ()
    owner: str | None = None
    colour: Colour = Colour.RED
    notes: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __post_init__(self):
        if self.number == 13:
            raise NoRoomError("number=13: nobody wants it")
        if self.number < 0:
            raise ValueError(f"number={self.number}: count from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    rooms: tuple[Room, ...]
    floors: Count = 1
    height_m: Positive = 3.0
    built_at: datetime | None = None
    names: Mapping[str, str] = field(default_factory=dict)


HOUSE = House(
    rooms=(
        Room(number=1, doors=(1, 2), colour=Colour.BLUE, notes={"a": 1, "b": True, "c": 0.5}),
        Room(number=2, owner="no name \udc80"),
    ),
    built_at=datetime(2026, 11, 20, 12, tzinfo=UTC),
    names={"a\udc80": "x"},
)


def test_value_is_the_same_after_its_way_through_json():
    assert codec.decode(codec.encode(HOUSE), House, source="house") == HOUSE
    assert codec.convert(codec.to_builtins(HOUSE), House, source="house") == HOUSE


def test_builtins_are_what_json_holds():
    assert codec.to_builtins(HOUSE)["rooms"][0] == {
        "number": 1,
        "width_m": 1.0,
        "doors": [1, 2],
        "owner": None,
        "colour": "blue",
        "notes": {"a": 1, "b": True, "c": 0.5},
    }


def test_numbers_that_are_none_survive():
    document = codec.encode(Room(number=1, width_m=math.nan))
    assert math.isnan(codec.decode(document, Room, source="room").width_m)
    endless = codec.encode(Room(number=1, width_m=math.inf))
    assert codec.decode(endless, Room, source="room").width_m == math.inf


def test_number_of_numpy_is_a_number():
    assert codec.to_builtins(Room(number=1, width_m=np.float64(2.5)))["width_m"] == 2.5


def test_whole_number_may_stand_where_a_fraction_could():
    width_m = codec.convert({"number": 1, "width_m": 2}, Room, source="room").width_m
    assert (width_m, type(width_m)) == (2.0, float)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"rooms": [], "roof": 1}, "roof"),
        ({"rooms": [{"number": 1}, {"number": 2, "size": 4}]}, r"rooms\[1\].size"),
        ({"rooms": [{"number": 1, "a\nb": 4}]}, r"rooms\[0\].a\\nb"),
    ],
)
def test_unknown_keys_are_left_out_unless_they_are_forbidden_at_every_depth(values, path):
    """Only those of the outermost object were."""
    assert codec.convert(values, House, source="house")
    with pytest.raises(InvalidDocumentError, match=rf"^house: {path} is no key of it$"):
        codec.convert(values, House, source="house", allow_unknown_keys=False)


def test_keys_of_a_mapping_are_values_and_no_keys_of_a_type():
    values = codec.to_builtins(HOUSE)
    assert codec.convert(values, House, source="house", allow_unknown_keys=False) == HOUSE


def test_value_error_of_a_class_is_told_with_its_place():
    with pytest.raises(InvalidDocumentError, match=r"^house: rooms\[0\]: number=-1: count from 0$"):
        codec.convert({"rooms": [{"number": -1}]}, House, source="house")


def test_invariant_of_a_class_speaks_for_itself():
    with pytest.raises(NoRoomError, match="number=13"):
        codec.convert({"rooms": [{"number": 13}]}, House, source="house")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "house: rooms is missing"),
        ({"rooms": [{}]}, "house: rooms[0].number is missing"),
        (3, "house: 3: expected an object"),
        ({"rooms": 3}, "house: rooms=3: expected a list"),
        (
            {"rooms": [{"number": 1}, {"number": "2"}]},
            "house: rooms[1].number='2': expected a whole number",
        ),
        ({"rooms": [{"number": True}]}, "house: rooms[0].number=True: expected a whole number"),
        ({"rooms": [{"number": 1.0}]}, "house: rooms[0].number=1.0: expected a whole number"),
        (
            {"rooms": [{"number": 1, "owner": 2}]},
            "house: rooms[0].owner=2: expected a text or null",
        ),
        (
            {"rooms": [{"number": 1, "colour": "green"}]},
            "house: rooms[0].colour='green': Invalid enum value 'green'",
        ),
        ({"rooms": [], "floors": 0}, "house: floors=0: expected a whole number of at least 1"),
        ({"rooms": [], "height_m": -1}, "house: height_m=-1: expected a number above 0"),
        (
            {"rooms": [], "height_m": math.inf},
            "house: height_m=infinity: expected a number of at most 1e+300",
        ),
        (
            {"rooms": [], "floors": 10**5000},
            "house: floors=a very long number: expected a whole number of at most 9007199254740992",
        ),
        (
            {"rooms": [], "built_at": "yesterday"},
            "house: built_at='yesterday': expected a time with its zone, such as "
            "2026-11-20T12:00:00Z",
        ),
        (
            {"rooms": [], "names": {"a": "x", "b": None}},
            "house: names.b=None: expected a text",
        ),
        (
            {"rooms": [], "names": {"a": 1, "b": 2}},
            "house: names[...]=...: expected a text",
        ),
        (
            {"rooms": [{"number": "x" * 500}]},
            f"house: rooms[0].number='{'x' * 56}...: expected a whole number",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_what_was_expected(values, message):
    with pytest.raises(InvalidDocumentError) as refused:
        codec.convert(values, House, source="house")
    assert str(refused.value) == message


@pytest.mark.parametrize("document", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_said(document):
    with pytest.raises(InvalidDocumentError, match=r"^house: no JSON \("):
        codec.decode(document, House, source="house")


MEANWHILE = """
import threading
from dataclasses import dataclass
from probes import codec

begun, goes_on = threading.Event(), threading.Event()

def annotation():
    begun.set()
    goes_on.wait()
    return int

@dataclass
class Inner:
    number: "annotation()"

@dataclass
class Outer:
    inner: Inner

def convert():
    assert codec.convert({"inner": {"number": 1}}, Outer, source="") == Outer(Inner(1))

first = threading.Thread(target=convert)
first.start()
begun.wait()
threading.Timer(0.1, goes_on.set).start()
convert()
first.join()
"""


def test_a_type_may_come_in_two_threads_at_once():
    # The first requests of a server, several at a time, ended it: it read from address 0.
    subprocess.run([sys.executable, "-c", MEANWHILE], check=True)
