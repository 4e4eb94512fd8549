"""One source for HIP's compiler and CUDA's.

Lines that the two need differently stand in both forms, under ``#if defined(__HIPCC__)``: CUDA's
compiler sees the original's, HIP's what the translation made of them. Names of CUDA's that HIP has
under another name stay, and one header of the library says what HIP calls them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from portkern.cuda_source.lexer import ELSES, IFS, SourceCode

HEADER = "portkern_portable.h"
#: Macros of compilers: conditions ask for them, and headers of others would take the wrong branch.
_COMPILERS = frozenset(["__CUDACC__", "__NVCC__"])
_IF, _ELSE, _END = "#if defined(__HIPCC__)", "#else", "#endif"
_CONDITION = re.compile(rf"\s*#\s*(?:{'|'.join([*IFS, *ELSES, 'endif'])})\b")
_GUARD = re.compile(r"#(\s*)if(n?)def\s+(\w+)\s*$")
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")


def combined(original: str, hip: str, name: str, names: Mapping[str, str]) -> str:
    """``hip`` is the translation with the ``names`` left as they are; ``name`` is the file's path
    from the library's root, where the header lies."""
    if original == hip and not names:
        return original
    end = "\r\n" if "\r\n" in original else "\n"
    old, new = _lines(original), _lines(hip)
    lines = list(_merged(old, new, names))
    if names:
        up = "../" * (len(PurePosixPath(name).parts) - 1)
        lines = _with_include(lines, f'#include "{up}{HEADER}"')
    return "\n".join(lines).replace("\n", end)


def header(names: Mapping[str, str]) -> str:
    """The names of a whole library."""
    defines = "\n".join(
        f"#define {cuda} {hip}" for cuda, hip in sorted(names.items()) if cuda not in _COMPILERS
    )
    return (
        "// What HIP calls the names of CUDA's that this library uses.\n"
        f"#pragma once\n{_IF}\n#include <hip/hip_runtime.h>\n{defines}\n{_END}\n"
    )


def _lines(text: str) -> list[str]:
    """Whole directives: one that goes on over several lines is one of these."""
    lines = text.replace("\r\n", "\n").split("\n")
    code = SourceCode("\n".join(lines))
    joined: list[str] = []
    until = 0
    last = {code.tokens[d.begin].line: code.last_line(d.end - 1) for d in code.directives}
    for number, line in enumerate(lines, 1):
        if number <= until:
            joined[-1] += f"\n{line}"
        else:
            joined.append(line)
        until = max(until, last.get(number, 0))
    return joined


def _merged(old: Sequence[str], new: Sequence[str], names: Mapping[str, str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal":
            yield from (_for_both(line, names) for line in old[i:i_end])
        else:
            yield from _differing(old[i:i_end], new[j:j_end], names)


def _differing(old: Sequence[str], new: Sequence[str], names: Mapping[str, str]) -> Iterator[str]:
    """The lines for both vendors, in pieces between conditions, which are the translation's,
    made to hold in both."""
    before = _pieces(old)
    after = _pieces(new)
    for n, (condition, lines) in enumerate(after):
        if condition:
            yield _for_both(condition, names)
        cuda = before[n][1] if n < len(before) else []
        if lines == cuda:
            yield from lines
            continue
        yield _IF
        yield from lines
        if cuda:
            yield _ELSE
            yield from cuda
        yield _END


def _pieces(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The pieces of a text: each condition with the lines up to the next; '' before the first."""
    pieces: list[tuple[str, list[str]]] = [("", [])]
    for line in lines:
        if _CONDITION.match(line):
            pieces.append((line, []))
        else:
            pieces[-1][1].append(line)
    return pieces


def _for_both(line: str, names: Mapping[str, str]) -> str:
    """A condition asks for a macro of either compiler's."""
    if not _CONDITION.match(line):
        return line
    if (guard := _GUARD.search(line)) and guard[3] in names:
        not_, join = ("!", "&&") if guard[2] else ("", "||")
        hip = names[guard[3]]
        return f"#{guard[1]}if {not_}defined({guard[3]}) {join} {not_}defined({hip})"

    def either(match: re.Match[str]) -> str:
        hip = names.get(match[1] or match[2])
        return f"({match[0]} || defined({hip}))" if hip else match[0]

    return _DEFINED.sub(either, line)


def _with_include(lines: Sequence[str], include: str) -> list[str]:
    """The lines with the include after what HIP includes first, which the file has by then."""
    at = next((n for n, line in enumerate(lines) if "#include <hip/" in line), None)
    if at is None:
        return [include, *lines]
    end = next((n for n in range(at, len(lines)) if lines[n] == _END), at)
    return [*lines[: end + 1], include, *lines[end + 1 :]]
