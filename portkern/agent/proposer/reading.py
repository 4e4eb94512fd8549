"""Finds the kernel in a model's reply, or says why there is none."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from portkern.agent.task import Task

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)  # fmt: skip  # noqa: E501
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S)
_EDIT = re.compile(
    r"^<{5,}[ \t]*SEARCH[ \t]*\n(.*?)^={5,}[ \t]*\n(.*?)^>{5,}[ \t]*REPLACE[ \t]*$", re.M | re.S
)
_C = ("c", "cc", "cpp", "c++", "cxx", "h", "hpp")
_PYTHON = ("python", "py", "python3")
#: Tags under which models give a language's files; the first is what they are asked for.
TAGS = {
    "c++": ("cpp", *_C), "cuda": ("cuda", "cu", *_C), "hip": ("hip", "cuda", "cu", *_C),
    "numba": (*_PYTHON, "numba"), "triton": (*_PYTHON, "triton"),
    "pallas": (*_PYTHON, "jax", "pallas"), "opencl": (*_PYTHON, "opencl"),
}  # fmt: skip
#: Of the words around a kernel so many are kept as its rationale.
MOST_RATIONALE = 2000


@dataclass(frozen=True)
class Reading:
    """``source`` is empty when there is no kernel; then ``why`` says so. ``rest``: what was said
    besides."""

    source: str = ""
    why: str = ""
    rest: str = ""


def kernel(text: str, task: Task, *, cut: bool = False) -> Reading:
    """The last block that defines the entry, else the longest one in the right language."""
    text = _THOUGHT.sub("", text)
    if not text.strip():
        return Reading(why="the reply was cut off at max_tokens" if cut else "the reply is empty")
    blocks = list(_blocks(text))
    rest = " ".join(_FENCE.sub(" ", text).split())[:MOST_RATIONALE]
    if not blocks:
        return _without_blocks(text, task, cut=cut)
    if cut and not blocks[-1].closed:
        return Reading(why="the reply was cut off at max_tokens, in the midst of its code")
    fitting = [one for one in blocks if one.tag in ("", *TAGS[task.language]) and one.code.strip()]
    if not fitting:
        tags = sorted({one.tag or "no" for one in blocks})
        if all(not one.code.strip() for one in blocks):
            return Reading(why="the reply's code block is empty", rest=rest)
        return Reading(why=f"the reply holds {', '.join(tags)} code, expected {task.language}", rest=rest)  # fmt: skip  # noqa: E501
    entering = [one for one in fitting if defines(one.code, task)]
    chosen = entering[-1] if entering else max(fitting, key=lambda one: len(one.code))
    if not entering and _is_other_language(chosen.code, task):
        return Reading(why=f"the reply's code is not {task.language}", rest=rest)
    return Reading(chosen.code, rest=rest)


def document(text: str) -> Any:
    """The first JSON value in a reply, fenced or not; None when there is none."""
    text = _THOUGHT.sub("", text)
    decoder = json.JSONDecoder(strict=False)
    for start in [match.start() for match in re.finditer(r"[\[{]", text)]:
        for candidate in (text[start:], re.sub(r",(\s*[\]}])", r"\1", text[start:])):
            try:
                return decoder.raw_decode(candidate)[0]
            except json.JSONDecodeError:
                continue
    return None


def edited(source: str, text: str) -> Reading:
    """``source`` after the reply's SEARCH/REPLACE edits; each must find its place exactly once."""
    edits = [(match[1], match[2]) for match in _EDIT.finditer(_THOUGHT.sub("", text))]
    rest = " ".join(_EDIT.sub(" ", text).split())[:MOST_RATIONALE]
    if not edits:
        return Reading(why="the reply holds no SEARCH/REPLACE edit", rest=rest)
    for number, (old, new) in enumerate(edits, 1):
        times = source.count(old) if old.strip() else 0
        if times != 1:
            where = "is empty" if not old.strip() else f"is found {times} times, expected once"
            return Reading(why=f"the text of edit {number} {where}", rest=rest)
        source = source.replace(old, new)
    return Reading(source, rest=rest)


def defines(code: str, task: Task) -> bool:
    """Whether the entry's name is called or defined somewhere."""
    return re.search(rf"\b{re.escape(task.op.name)}\s*\(", code) is not None


@dataclass(frozen=True)
class _Block:
    tag: str
    code: str
    closed: bool


def _blocks(text: str) -> Iterator[_Block]:
    for match in _FENCE.finditer(text):
        yield _Block(match[2].lower(), match[3], match[0].rstrip().endswith(match[1]))


def _without_blocks(text: str, task: Task, *, cut: bool) -> Reading:
    """Some models answer with JSON that has a ``code``, or with nothing but the file."""
    told = document(text)
    if isinstance(told, dict) and isinstance(told.get("code"), str) and told["code"].strip():
        thought = str(told.get("thought") or told.get("rationale") or "")
        return Reading(told["code"], rest=thought[:MOST_RATIONALE])
    if cut:
        return Reading(why="the reply was cut off at max_tokens")
    if defines(text, task) and not _is_other_language(text, task) and "\n" in text.strip():
        return Reading(text)
    return Reading(why="the reply holds no code block", rest=" ".join(text.split())[:MOST_RATIONALE])  # fmt: skip  # noqa: E501


def _is_other_language(code: str, task: Task) -> bool:
    """Python where C was asked for, or prose or C where Python was."""
    try:
        ast.parse(code)
        python = True
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        python = False
    return python != (TAGS[task.language][0] == "python") and (python or not _broken_python(code))


def _broken_python(code: str) -> bool:
    """A file of Python with a mistake is the compiler's to complain about."""
    return re.search(r"^(import |from \w+ import |def \w+\(|@\w)", code, re.M) is not None
