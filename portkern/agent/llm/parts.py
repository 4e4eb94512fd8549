"""The content of a message that a service sends as a list of parts instead of one text.

litellm's message takes a text alone and fails otherwise, so that parts are put aside before it is
made (:func:`put_aside`) and read afterwards (:func:`of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

#: The field of a message where litellm keeps what it does not know itself.
_ASIDE, _FIELD = "provider_specific_fields", "parts"
_REFUSAL = "refusal"
_THOUGHTS = ("thinking", "reasoning", "reasoning_content", "summary", "thought")
_TOOLS = ("tool_use", "tool_call", "function_call", "server_tool_use")
#: Where a part has its text.
_TEXTS = ("text", "value", "content", "output_text")
#: Parts in parts beyond this depth are nobody's.
_DEEPEST = 8


@dataclass(frozen=True)
class Parts:
    """The texts of all parts, by kind; ``tools``: there is a call of a tool among them."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tools: bool = False


def put_aside(message: type[Any]) -> None:
    """Lets litellm's class of messages take parts; does nothing the second time."""
    made: Callable[..., None] = message.__init__
    if getattr(made, "takes_parts", False):
        return

    def init(self: Any, content: object = None, *args: Any, **fields: Any) -> None:
        if isinstance(content, list | dict):
            fields[_ASIDE] = {**(fields.get(_ASIDE) or {}), _FIELD: content}
            content = None
        made(self, content, *args, **fields)

    init.takes_parts = True  # type: ignore[attr-defined]
    message.__init__ = init


def of(message: object) -> Parts:
    """The parts of a message of litellm's; empty where it has none."""
    aside = getattr(message, _ASIDE, None)
    content = aside.get(_FIELD) if isinstance(aside, dict) else None
    said: dict[str, list[str]] = {"text": [], "reasoning": [], _REFUSAL: [], "tools": []}
    for kind, text in _read(content, "text", _DEEPEST):
        said[kind].append(text)
    return Parts(
        "".join(said["text"]),
        "\n".join(said["reasoning"]),
        "".join(said[_REFUSAL]),
        bool(said["tools"]),
    )


def _read(value: object, kind: str, depth: int) -> Iterator[tuple[str, str]]:
    """Texts with their kinds, in their order."""
    if isinstance(value, str):
        yield kind, value
    if depth == 0:
        return
    if isinstance(value, list):
        for one in value:
            yield from _read(one, kind, depth - 1)
    elif isinstance(value, dict):
        named = str(value.get("type") or "").lower()
        own = _kind(named, kind)
        if own == "tools":
            yield own, ""
            return
        places = (_REFUSAL if own == _REFUSAL else "", *_THOUGHTS, *_TEXTS)
        for place in places:
            if value.get(place):
                yield from _read(value[place], _kind(place, own), depth - 1)
                return


def _kind(named: str, around: str) -> str:
    """The kind of a part by the name of its type, or as that which it stands in."""
    if named == _REFUSAL:
        return _REFUSAL
    if named in _TOOLS:
        return "tools"
    return "reasoning" if named in _THOUGHTS or "thinking" in named else around
