"""The parts of pages that need no network: scripts and styles in the page, data as JSON."""

from __future__ import annotations

import json
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from portkern.printable import printable


def templates(package: str) -> Environment:
    """The HTML templates of ``package``."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    return environment


def asset(name: str, package: str = "portkern.report") -> Markup:
    """A script or a style, as it stands in its file."""
    return Markup((resources.files(package) / "templates" / name).read_text("utf-8"))


def embeddable(data: object) -> Markup:
    """JSON that cannot end a ``<script>`` element, whatever the strings in it say."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


class Interned(dict[str, int]):
    """Strings that many rows share, once each, with the numbers by which rows refer to them. They
    may be anything, and become printable where they are listed."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number

    @property
    def strings(self) -> list[str]:
        return list(map(printable, self))
