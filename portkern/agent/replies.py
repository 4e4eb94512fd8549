"""Reads what language models write: code in blocks, JSON in whatever words it comes with,
thoughts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from portkern.spec.foreign_text import json_value

_THINK = r"think(?:ing)?|thought"
#: The last alternative is a thought that the reply ends in.
_THOUGHT = re.compile(rf"<({_THINK})>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
#: Thoughts whose opening is the last word of the model's own prompt template.
_THOUGHT_BEFORE = re.compile(rf"\A.*</(?:{_THINK})>", re.DOTALL | re.IGNORECASE)
#: What editors put at the begin of a file, and so at the begin of code that was copied from one.
_MARK = re.compile("^\ufeff+", re.MULTILINE)
#: ``in``: its indentation; ``mark``: three or more of ` or ~; ``info``: the tag and whatever else.
_FENCE = re.compile(r"(?P<in>[ \t]*+)(?P<mark>`{3,}+|~{3,}+)(?P<info>[^`]*+)")
_TAG = re.compile(r"[\w+#-]*")
#: Blocks that hold a reply rather than code.
_PROSE = ("markdown", "md")
#: What a JSON object or list may begin with; most brackets of C do not.
_BEGUN = re.compile(r"""\{(?=\s*["},])|\[(?=\s*[]\[{"\d,tfnNI-])""")
#: Commas that end an object or a list, of which each costs another look at the text.
_MOST_COMMAS = 1_000
_TRAILING_COMMA = re.compile(r",\s*[\]}]")


@dataclass(frozen=True)
class Unread:
    """The reason why a reply does not hold what was looked for."""

    why: str


@dataclass(frozen=True)
class CodeBlock:
    """``tag`` in lower case, empty where there is none; ``closed``: the reply goes on after it."""

    tag: str
    code: str
    closed: bool


def spoken(text: str) -> str:
    """The text without thoughts and marks of byte order, in lines that end as Python's do, and in
    characters that a file can hold."""
    text = _MARK.sub("", _storable(text).replace("\r\n", "\n").replace("\r", "\n"))
    return _THOUGHT_BEFORE.sub("", _THOUGHT.sub("", text))


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()


def blocks(text: str) -> tuple[list[CodeBlock], str]:
    """The blocks of code, without the indentation of a list that they stand in, and the words
    around them. A fence with a tag begins a block even where the one before has no end."""
    kept: list[CodeBlock] = []
    words: list[str] = []
    opened: re.Match[str] | None = None
    code: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if opened and not _ends(fence, opened):
            code.append(_unindented(line, len(opened["in"])))
            continue
        if opened:
            closed = bool(fence) and not _tag(fence)
            kept.append(CodeBlock(_tag(opened), _joined(code), closed))
            opened, code = None, []
            if closed:
                continue
        if fence and _tag(fence) not in _PROSE:
            opened = fence
        elif not fence:
            words.append(line)
    if opened and "".join(code).strip():
        kept.append(CodeBlock(_tag(opened), _joined(code), closed=False))
    return kept, "\n".join(words)


def _ends(fence: re.Match[str] | None, opened: re.Match[str]) -> bool:
    """Whether the block that ``opened`` began ends here: with a fence like it, or with one that
    begins another. Those further in are the code's own, as in a docstring."""
    if fence is None or len(fence["in"]) > len(opened["in"]) + 3:
        return False
    if _tag(fence):
        return fence["mark"] == opened["mark"]
    return fence["mark"].startswith(opened["mark"])


def _tag(fence: re.Match[str] | None) -> str:
    """``python`` of ``python``, ``{.python}`` and ``python:softmax.py``."""
    match = _TAG.match(fence["info"].strip().lstrip("{.")) if fence else None
    return match[0].lower() if match else ""


def _unindented(line: str, most: int) -> str:
    blanks = len(line) - len(line.lstrip(" \t"))
    return line[min(blanks, most) :]


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def values(text: str) -> Iterator[object]:
    """The outermost JSON objects and lists, in their order, fenced or not. Commas that end them
    are forgiven."""
    end = 0
    for match in _BEGUN.finditer(text):
        if match.start() < end:
            continue
        try:
            value, end = _decoded(text, match.start())
            written = json.dumps(value, ensure_ascii=False)
            if _storable(written) != written:  # escapes can name half a character
                value = json_value(_storable(written))
        except RecursionError:
            return  # nobody who means something nests so deep
        except ValueError:
            continue
        yield value


def objects(text: str) -> Iterator[dict[str, object]]:
    """The objects among :func:`values`, also those that stand in a list."""
    for value in values(text):
        todo = [value]
        while todo:
            item = todo.pop()
            if isinstance(item, dict):
                yield item
            elif isinstance(item, list):
                todo += reversed(item)


def _decoded(text: str, start: int) -> tuple[object, int]:
    """One JSON value that begins at ``start``, and where it ends. Raises ValueError, also for a
    number that Python finds too long."""
    decoder = json.JSONDecoder(strict=False)
    for _ in range(_MOST_COMMAS):
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            comma = text.rfind(",", start, error.pos + 1)
            match = _TRAILING_COMMA.match(text, max(comma, 0))
            if match is None or match.end() <= error.pos:
                raise
            text = f"{text[:comma]} {text[comma + 1 :]}"
        else:
            return value, end
    raise ValueError(f"it has {_MOST_COMMAS} commas too many")
