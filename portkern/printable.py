"""Text from outside as a terminal, a page or an XML file may have it."""

from __future__ import annotations

import re

#: What compilers colour their logs with, and what a kernel could send to whoever reads its log:
#: titles, links and clipboards (OSC and the other strings, on one line), moves and colours (CSI).
_SEQUENCE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]"
)
#: C0 but tab and newline, C1, and what XML 1.0 cannot hold at all.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
#: Marks and overrides that change the order in which text is shown: a source may read otherwise
#: than it is compiled. They are named, as compilers do.
_BIDI = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


#: Spreadsheets run a cell that begins so, in some countries also by the wide forms.
_FORMULA = (*"=+-@\t\n", *"\uff1d\uff0b\uff0d\uff20")


def cell(text: str) -> str:
    """The text as a table that spreadsheets open may have it: no formula."""
    text = printable(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def printable(text: str) -> str:
    """``text`` without control characters, except newline and tab, and with the names of those
    that change the direction of writing."""
    if text.isprintable() and text.isascii():  # nearly always
        return text
    text = _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))
    return _BIDI.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)
