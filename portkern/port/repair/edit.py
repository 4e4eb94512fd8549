"""A model's reply as another text of the file: SEARCH/REPLACE edits, or functions whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from portkern.agent import replies
from portkern.agent.proposer import reading
from portkern.agent.replies import Unread
from portkern.cuda_source import syntax
from portkern.cuda_source.syntax import Syntax
from portkern.cuda_source.tree import TooLong
from portkern.port.repair.excerpt import Excerpt
from portkern.port.repair.functions import RepairFunction, functions

_BEGUN = re.compile(r"^<{5,}[ \t]*SEARCH[ \t]*$", re.M)
_TAGS = ("", *reading.TAGS["hip"])
_ASK = "answer with SEARCH/REPLACE edits"


@dataclass(frozen=True)
class Edited:
    """``text`` is the file's."""

    text: str


def edited(excerpt: Excerpt, reply: str, *, cut: bool = False) -> Edited | Unread:
    """The file after the reply."""
    spoken = replies.spoken(reply)
    if not spoken.strip():
        return Unread("the reply is empty")
    if _BEGUN.search(spoken):
        made = reading.edited(excerpt.shown, reply, cut=cut)
        if isinstance(made, Unread):
            return made
        text = excerpt.spliced(made.source)
        if text is None:
            return Unread("an edit changes a line that says which part of the file follows")
        return Edited(_ended(text, excerpt.text))
    try:
        return _with_functions(excerpt.text, spoken, cut=cut)
    except TooLong as error:
        return Unread(f"the reply's code cannot be parsed: {error}")


def _ended(text: str, before: str) -> str:
    return text if before.endswith("\n") else text.removesuffix("\n")


def _with_functions(text: str, spoken: str, *, cut: bool) -> Edited | Unread:
    blocks, _ = replies.blocks(spoken)
    fitting = [block for block in blocks if block.tag in _TAGS and block.code.strip()]
    if not fitting:
        return Unread("the reply holds neither a SEARCH/REPLACE edit nor a block of code")
    if cut and not blocks[-1].closed:
        return Unread("the reply was cut off at max_tokens, in the midst of its code")
    for block in fitting:
        made = _replaced(syntax.parse(text), syntax.parse(block.code))
        if isinstance(made, Unread):
            return made
        text = made.text
    return Edited(text)


def _replaced(source: Syntax, block: Syntax) -> Edited | Unread:
    """The file with each function of the block in the place of the one with its name, and what
    else is new in the block before the first of them."""
    given, own = functions(block), functions(source)
    changes: list[tuple[RepairFunction, RepairFunction]] = []
    for function in given:
        same = [other for other in own if other.name == function.name]
        if any(_squeezed(other.text) == _squeezed(function.text) for other in same):
            continue
        if len(same) > 1:
            return Unread(f"the file defines {function.name} {len(same)} times; {_ASK}")
        if same:
            changes.append((same[0], function))
    if not changes:
        return Unread(f"the reply's code changes no function of the file; {_ASK}")
    known = _squeezed(source.text)
    new = [piece for piece in _besides(block, given, own) if _squeezed(piece) not in known]
    first = min(place.start for place, _ in changes)
    text = source.text
    for place, function in sorted(changes, key=lambda change: -change[0].start):
        head = "".join(f"{piece}\n\n" for piece in new) if place.start == first else ""
        text = text[: place.start] + head + function.text + text[place.stop :]
    return Edited(text)


def _besides(
    block: Syntax, given: Sequence[RepairFunction], own: Sequence[RepairFunction]
) -> Sequence[str]:
    """New functions, and declarations beside functions, in their order."""
    names = {function.name for function in own}
    pieces = [(f.start, f.text) for f in given if f.name not in names]
    for node in block.root.children:
        start, stop = block.span(node)
        beside = not any(start < f.stop and f.start < stop for f in given)
        if beside and node.type not in ("comment", ";"):
            pieces.append((start, block.text[start:stop].strip()))
    return [piece for _, piece in sorted(pieces) if piece]


def _squeezed(text: str) -> str:
    return " ".join(text.split())
