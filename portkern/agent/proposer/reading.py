"""Finds the kernel in a model's reply, or says why there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from portkern.agent import replies
from portkern.agent.replies import CodeBlock, Unread
from portkern.agent.task import Task
from portkern.guard import python
from portkern.spec.module_form import defines_class

_EDIT = re.compile(
    r"^<{5,}[ \t]*SEARCH[ \t]*\n(.*?)^={5,}[ \t]*\n(.*?)^>{5,}[ \t]*REPLACE[ \t]*$", re.M | re.S
)
_BEGUN = re.compile(r"^<{5,}[ \t]*SEARCH[ \t]*$", re.M)
_C = ("c", "cc", "cpp", "c++", "cxx", "h", "hpp")
_PYTHON = ("python", "py", "python3")
#: Tags under which models give a language's files; the first is what they are asked for.
TAGS = {
    "c++": ("cpp", *_C),
    "cuda": ("cuda", "cu", *_C),
    "hip": ("hip", "cuda", "cu", *_C),
    "numba": (*_PYTHON, "numba"),
    "triton": (*_PYTHON, "triton"),
    "pallas": (*_PYTHON, "jax", "pallas"),
    "pallas-tpu": (*_PYTHON, "jax", "pallas"),
    "pallas-mosaic-gpu": (*_PYTHON, "jax", "pallas"),
    "opencl": (*_PYTHON, "opencl"),
}
#: A function's head up to its body; a call or a declaration has none.
_DEFINED_IN_C = r"[\w*&>]\s+[*&]*{name}\s*\([^;{{}}]*\)[^;{{}}]*\{{"
_DEFINED_IN_PYTHON = r"^[ \t]*(?:async[ \t]+)?def[ \t]+{name}\b|^{name}[ \t]*="
#: Where the words before a file without a fence end.
_BEGINS_IN_C = re.compile(
    r"^(?:#[ \t]*(?:include|define|pragma|if)|//|/\*|(?:extern|template|static|using|typedef"
    r"|namespace|const|constexpr|struct|int|__global__|__device__)\b)",
    re.M,
)
_BEGINS_IN_PYTHON = re.compile(
    r"^(?:import |from \w+(?:\.\w+)* import |def \w+\(|@\w|[A-Z][A-Z0-9_]* = )", re.M
)
#: Members of a JSON reply that hold the file, and the words.
_CODE, _WORDS = ("code", "kernel", "source"), ("thought", "rationale", "reasoning")
_CUT = "the reply was cut off at max_tokens"
#: So many of the words around a kernel are kept as its rationale.
MOST_RATIONALE = 2000


@dataclass(frozen=True)
class ReplyCode:
    """``rest``: what was said besides."""

    source: str
    rest: str = ""


def kernel(text: str, task: Task, *, cut: bool = False) -> ReplyCode | Unread:
    """The last block that defines the entry, else the longest one in the right language."""
    text = replies.spoken(text)
    if not text.strip():
        return Unread(f"{_CUT}, before its answer began" if cut else "the reply is empty")
    blocks, words = replies.blocks(text)
    if cut and blocks and not blocks[-1].closed:
        return Unread(f"{_CUT}, in the midst of its code")
    return (
        _in_blocks(blocks, words, task)
        or _in_json(text, task)
        or _bare(text, blocks, task, cut=cut)
        or Unread(_why_none(blocks, task, cut=cut))
    )


def edited(source: str, text: str, *, cut: bool = False) -> ReplyCode | Unread:
    """``source`` after the reply's SEARCH/REPLACE edits, one after the other; the lines of each
    must be found exactly once."""
    text = replies.spoken(text)
    edits = [(match[1], match[2]) for match in _EDIT.finditer(text)]
    if len(edits) < len(_BEGUN.findall(text)):
        return Unread(_CUT if cut else f"only {len(edits)} of its SEARCH/REPLACE edits have an end")
    if not edits:
        return Unread(_CUT if cut else "the reply holds no SEARCH/REPLACE edit")
    lines = source.splitlines()
    for number, (old, new) in enumerate(edits, 1):
        searched = old.splitlines()
        if not old.strip():
            return Unread(f"the text of edit {number} is empty")
        places = list(_places(searched, lines))
        if len(places) != 1:
            return Unread(f"the text of edit {number} is found {len(places)} times, expected once")
        lines[places[0] : places[0] + len(searched)] = new.splitlines()
    result = "".join(f"{line}\n" for line in lines)
    if not result.strip():
        return Unread("its edits leave nothing of the file")
    return ReplyCode(result, _shortened(_EDIT.sub(" ", text)))


def _places(searched: Sequence[str], lines: Sequence[str]) -> Iterator[int]:
    wanted = [line.rstrip() for line in searched]
    for start in range(len(lines) - len(wanted) + 1):
        if [line.rstrip() for line in lines[start : start + len(wanted)]] == wanted:
            yield start


def defines(code: str, task: Task) -> bool:
    """Whether the entry is defined there, as far as can be seen without a compiler."""
    if _is_module(code, task):
        return True
    form = _DEFINED_IN_PYTHON if _is_python(task) else _DEFINED_IN_C
    return re.search(form.format(name=re.escape(task.op.name)), code, re.M) is not None


def _is_module(code: str, task: Task) -> bool:
    """A class ModelNew is in Python, also where its kernels are in C++."""
    return bool(task.backend.modules) and defines_class(code)


def _is_python(task: Task) -> bool:
    """OpenCL's kernels are Python files, too."""
    return TAGS[task.language][0] == "python"


def _in_blocks(blocks: Sequence[CodeBlock], words: str, task: Task) -> ReplyCode | None:
    fitting = [
        block
        for block in blocks
        if block.code.strip()
        and (block.tag in ("", *TAGS[task.language]) or _is_module(block.code, task))
    ]
    if not fitting:
        return None
    entering = [block for block in fitting if defines(block.code, task)]
    chosen = entering[-1] if entering else max(fitting, key=lambda block: len(block.code))
    if not entering and _is_other_language(chosen.code, task):
        return None
    return ReplyCode(chosen.code, _shortened(words))


def _in_json(text: str, task: Task) -> ReplyCode | None:
    """The code in a reply in JSON: some models answer with ``{thought, code}``, the code fenced
    once more or not."""
    for answer in replies.objects(text):
        code = _member(answer, _CODE)
        blocks, _ = replies.blocks(code)
        rest = _shortened(_member(answer, _WORDS))
        fenced = _in_blocks(blocks, rest, task)
        if fenced:
            return fenced
        if code.strip() and not blocks and not _is_other_language(code, task):
            return ReplyCode(replies.spoken(code), rest)
    return None


def _member(answer: dict[str, object], names: Sequence[str]) -> str:
    return next((value for name in names if isinstance(value := answer.get(name), str)), "")


def _bare(text: str, blocks: Sequence[CodeBlock], task: Task, *, cut: bool) -> ReplyCode | None:
    """The code in a reply without fences: some models answer with nothing but the file, or with a
    few words before it."""
    if cut or blocks or not defines(text, task):
        return None
    if _is_module(text, task):
        return ReplyCode(text.rstrip() + "\n")
    begins = (_BEGINS_IN_PYTHON if _is_python(task) else _BEGINS_IN_C).search(text)
    code = text[begins.start() :] if begins else text
    if not defines(code, task) or _is_other_language(code, task):
        return None
    return ReplyCode(code.rstrip() + "\n", _shortened(text[: begins.start()] if begins else ""))


def _why_none(blocks: Sequence[CodeBlock], task: Task, *, cut: bool) -> str:
    if not blocks:
        return _CUT if cut else "the reply holds no code block"
    held = [block for block in blocks if block.code.strip()]
    if not held:
        return "the reply's code block is empty"
    tags = sorted({block.tag for block in held} - {"", *TAGS[task.language]})
    if tags:
        return f"the reply holds {' and '.join(tags)} code, expected {_expected(task)}"
    return f"the reply's code is not {_expected(task)}"


def _expected(task: Task) -> str:
    return f"a Python file for {task.language}" if _is_python(task) else task.language


def _shortened(words: str) -> str:
    return " ".join(words.split())[:MOST_RATIONALE]


def _is_other_language(code: str, task: Task) -> bool:
    """Python where C was asked for, or prose or C where Python was."""
    if _is_module(code, task):
        return False
    parsed = python.parse(code) is not None
    return parsed != _is_python(task) and (parsed or not _broken_python(code))


def _broken_python(code: str) -> bool:
    """A file of Python with a mistake is the compiler's to complain about."""
    return re.search(r"^(import |from \w+(\.\w+)* import |def \w+\(|@\w)", code, re.M) is not None
