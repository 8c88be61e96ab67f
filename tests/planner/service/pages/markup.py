"""Pages of a database, and their markup, checked as far as `html.parser` can."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from planner.service.pages.view import Context, Page, PageRequest
from planner.service.site import show_page

_VOID = {"br", "hr", "img", "input", "link", "meta", "col", "wbr"}
_SVG_EMPTY = {"path", "rect", "circle", "line"}


class Pages:
    """Pages of one database, as a browser gets them."""

    def __init__(self, db: Path, **context: Any) -> None:
        self._context = Context(db=str(db), **context)

    def get(self, address: str) -> Page:
        """Give the page of an address without its query, or with ``?name=value``."""
        path, _, query = address.partition("?")
        number = re.search(r"\d+", path)
        numbers = {} if number is None else {"id": int(number[0])}
        values = parse_qs(query, keep_blank_values=True)
        request = PageRequest(path=path, numbers=numbers, query=values)
        return show_page(re.sub(r"\d+", "{id}", path), request, self._context)

    def read(self, address: str) -> Markup:
        """Give the markup of a page that is there and sound."""
        page = self.get(address)
        assert page.status == 200
        markup = Markup(page.html)
        assert markup.wrong == []
        return markup


class Markup(HTMLParser):
    """Reads a page and keeps what is wrong with it, and what is in it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.headings: list[int] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        if self._open:
            self.wrong.append(f"never closed: {self._open}")
        self._check()

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.wrong.append(f"an attribute twice: {tag} {names}")
        values = {name: value or "" for name, value in attrs}
        self.elements.append((tag, values))
        self.wrong += [
            f"inline: {tag} {name}" for name in names if name == "style" or name[:2] == "on"
        ]
        if tag == "style" or (tag == "script" and "src" not in values):
            self.wrong.append(f"inline: {tag}")
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.headings.append(int(tag[1]))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in _SVG_EMPTY, f"{tag} ends itself, which HTML does not know"
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag):
        if not self._open or self._open[-1] != tag:
            self.wrong.append(f"</{tag}> closes {self._open[-3:]}")
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [values for name, values in self.elements if name == tag]

    def _check(self) -> None:
        ids = Counter(values["id"] for _, values in self.elements if "id" in values)
        self.wrong += [f"id twice: {name}" for name, count in ids.items() if count > 1]
        for _, values in self.elements:
            for name in ("for", "aria-labelledby", "data-into"):
                if name in values and values[name] not in ids:
                    self.wrong.append(f"{name}={values[name]} is no element's")
            for name in ("href", "src", "action"):
                value = values.get(name, "/")
                if not value.startswith(("/", "#")) or value.startswith("//"):
                    self.wrong.append(f"leads elsewhere: {name}={value}")
        labelled = {values.get("for") for values in self.all("label")}
        for tag in ("input", "select", "textarea"):
            for values in self.all(tag):
                is_named = values.get("id") in labelled or values.get("aria-label")
                if not is_named and values.get("type") != "hidden":
                    self.wrong.append(f"no label: {tag} {values}")
        if self.headings[:1] != [1] or self.headings.count(1) != 1:
            self.wrong.append(f"headings begin with {self.headings[:3]}")
        for before, after in zip(self.headings, self.headings[1:], strict=False):
            if after > before + 1:
                self.wrong.append(f"heading {after} below {before}")
        plots = sum(values.get("class") == "plot" for values in self.all("svg"))
        if plots != len(self.all("figure")) or plots > len(self.all("table")):
            self.wrong.append(f"{plots} plots, and not as many figures with tables")
        for values in self.all("svg"):
            if not values.get("aria-label") and values.get("aria-hidden") != "true":
                self.wrong.append("a plot without a name")
        for tag in ("main", "nav", "header", "footer"):
            if len(self.all(tag)) != 1:
                self.wrong.append(f"{len(self.all(tag))} times {tag}")
