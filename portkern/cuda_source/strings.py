"""Kernels in the strings of host files, which are compiled when the program runs: of C++ by NVRTC,
of Python by CuPy, PyTorch and others."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from portkern.cuda_source.lexer import Kind, SourceCode
from portkern.cuda_source.syntax import parse

_RAW = re.compile(r'(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\(')
_QUOTED = re.compile(r"(?P<prefix>[a-zA-Z]*)(?P<quote>\"\"\"|'''|\"|')")
_ESCAPE = re.compile(r"\\(?:\r?\n|.)", re.DOTALL)
_KERNEL = re.compile(r"__global__\s[^;{}()]*\(")
_NUMBA = re.compile(r"(?m)^[ \t]*@(?:numba\.)?cuda\.jit\b")
_OF_NUMBA = "a kernel of numba.cuda is not ported: it is Python for NVIDIA's GPUs; write it in HIP"
_ELSE = "put the kernel into a raw string of its own, or into a file"
_PIECES = f"a kernel in a string with escapes, or of several pieces, is not ported; {_ELSE}"
_AT_RUN_TIME = f"a kernel in an f-string, known when the program runs, is not ported; {_ELSE}"


@dataclass(frozen=True)
class KernelText:
    """Source in a string: ``begin`` and ``end`` are offsets in its file, ``line`` is its first.
    With a ``problem`` its text is not what the compiler gets."""

    begin: int
    end: int
    line: int
    problem: str = ""


def of_cxx(text: str) -> tuple[KernelText, ...]:
    """The kernels in strings of a C++ file, in order."""
    return tuple(_of_cxx(text)) if "__global__" in text else ()


def of_python(text: str) -> tuple[KernelText, ...]:
    """The kernels in strings of a Python file, in order, with kernels of Numba, which have no
    source that a port could read; a file that does not parse has none."""
    found = list(_of_numba(text))
    try:
        found += _of_python(text) if "__global__" in text else ()
    except (SyntaxError, tokenize.TokenError):
        pass
    return tuple(sorted(found, key=lambda place: place.begin))


def alone(text: str, place: KernelText) -> str:
    """The source by itself, on the lines and in the columns that it has in the file."""
    inside = text[place.begin : place.end]
    above, below = text.count("\n", 0, place.begin), text.count("\n", place.end)
    return "\n" * above + " " * _column(text, place.begin) + inside + "\n" * below


def put_back(text: str, place: KernelText, changed: str) -> str | None:
    """The file with a string's source as it stands in ``changed``, which is :func:`alone` with
    edits that keep its lines, but for headers before it; None where they do not fit the place."""
    inside = text[place.begin : place.end]
    first, column = text.count("\n", 0, place.begin), _column(text, place.begin)
    lines = changed.split("\n")
    added = len(lines) - (text.count("\n") + 1)
    if added < 0 or not all(line.startswith("#include") for line in lines[:added]):
        return None
    mine = lines[added + first : added + first + inside.count("\n") + 1]
    if not inside.partition("\n")[0].strip():  # a header may stand there, which the string has not
        mine[0] = " " * column + inside.partition("\n")[0]
    if mine[0][:column].strip():
        return None
    mine[0] = mine[0][column:]
    tail = inside[len(inside.rstrip()) :].rpartition("\n")[2]
    mine[-1] = mine[-1].rstrip() + tail
    return text[: place.begin] + "\n".join(mine) + text[place.end :]


def _column(text: str, at: int) -> int:
    return at - (text.rfind("\n", 0, at) + 1)


def _of_cxx(text: str) -> Iterator[KernelText]:
    code = SourceCode(text)
    i = 0
    while i < len(code.tokens):
        first = i
        while code.tokens[i].kind is Kind.STRING:
            i += 1
        group = code.tokens[first:i]
        raw = _RAW.match(group[0].text) if len(group) == 1 else None
        line = group[0].line if group else 0
        if raw is not None:
            begin = group[0].begin + raw.end()
            end = group[0].end - len(raw["mark"]) - 2
            yield from _kernels(text, KernelText(begin, end, line))
        elif group and _KERNEL.search("".join(_plain(token.text) for token in group)):
            yield KernelText(group[0].begin, group[-1].end, line, _PIECES)
        i = max(i, first + 1)


def _plain(literal: str) -> str:
    """The text that a literal stands for, roughly: the kernel in it has to be found, not
    compiled."""
    text = literal[literal.find('"') + 1 : -1]
    return _ESCAPE.sub(lambda m: {"\\n": "\n", '\\"': '"'}.get(m[0], " "), text)


def _of_numba(text: str) -> Iterator[KernelText]:
    for match in _NUMBA.finditer(text) if "numba" in text else ():
        yield KernelText(*match.span(), text.count("\n", 0, match.start()) + 1, _OF_NUMBA)


def _of_python(text: str) -> Iterator[KernelText]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name not in ("STRING", "FSTRING_MIDDLE") or "__global__" not in token.string:
            continue
        begin = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        quoted = _QUOTED.match(token.string)
        prefix = quoted["prefix"].lower() if quoted else "f"
        if quoted is None or "f" in prefix:
            if _KERNEL.search(token.string):
                yield KernelText(begin, end, token.start[0], _AT_RUN_TIME)
            continue
        content = KernelText(begin + quoted.end(), end - len(quoted["quote"]), token.start[0])
        if "r" not in prefix and len(quoted["quote"]) == 1 and "\\" in token.string:
            found = _KERNEL.search(_ESCAPE.sub(" ", token.string))
            yield from [KernelText(begin, end, token.start[0], _PIECES)] if found else []
        else:
            yield from _kernels(text, content)


def _kernels(text: str, place: KernelText) -> Iterator[KernelText]:
    """The place, if a kernel is defined there."""
    inside = text[place.begin : place.end]
    if "__global__" in inside and parse(inside).kernels:
        yield place
