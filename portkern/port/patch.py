"""One unified diff over a tree, byte for byte, as ``git apply`` and ``patch -p1`` take it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import groupby

#: Lines around a change.
CONTEXT = 3
#: Lines of a file up to which the smallest difference is looked for where lines come or go; that
#: takes the square of it.
_MOST_LINES = 20_000

Opcode = tuple[str, int, int, int, int]


def of_file(path: str, before: bytes, after: bytes) -> bytes:
    """Empty where they are equal. ``path`` is from the tree's root."""
    if before == after:
        return b""
    old, new = _lines(before), _lines(after)
    names = f"a/{path}", f"b/{path}"
    head = "diff --git {} {}\n".format(*map(_quoted, names))
    if not before:  # of a file that is there, nothing is changed by an empty one
        head += "new file mode 100644\n"
    old_name = _quoted(names[0], ends_line=True) if before else "/dev/null"
    head += f"--- {old_name}\n+++ {_quoted(names[1], ends_line=True)}\n"
    return head.encode() + b"".join(_hunks(old, new))


def _lines(text: bytes) -> list[bytes]:
    """The lines of a text, split at newlines only: bytes.splitlines parts at a lone carriage
    return too."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _quoted(name: str, *, ends_line: bool = False) -> str:
    """A name as git writes it: in quotes, with octal escapes, where it is not plain ASCII."""
    data = name.encode(errors="surrogateescape")
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in data):
        # ``patch`` ends a name at a blank unless a tab does
        return name + ("\t" if ends_line and " " in name else "")
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in data
    )
    return f'"{"".join(plain)}"'


def _hunks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    for group in _grouped(_opcodes(old, new)):
        first, last = group[0], group[-1]
        spans = _span(first[1], last[2]), _span(first[3], last[4])
        yield "@@ -{} +{} @@\n".format(*spans).encode()
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                yield from (_line(b" ", line) for line in old[i:i_end])
                continue
            yield from (_line(b"-", line) for line in old[i:i_end])
            yield from (_line(b"+", line) for line in new[j:j_end])


def _line(mark: bytes, line: bytes) -> bytes:
    return (
        mark + line if line.endswith(b"\n") else mark + line + b"\n\\ No newline at end of file\n"
    )


def _span(start: int, stop: int) -> str:
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _opcodes(old: Sequence[bytes], new: Sequence[bytes]) -> list[Opcode]:
    """Line by line where as many stay, which a translation mostly keeps; a file may have 1 MB."""
    if len(old) != len(new) and max(len(old), len(new)) <= _MOST_LINES:
        return list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    common = min(len(old), len(new))
    same = next((n for n in range(common) if old[n] != new[n]), common)
    more = len(new) - len(old)
    if more > 0:  # as when an include was added
        inserted: list[Opcode] = [
            ("equal", 0, same, 0, same),
            ("insert", same, same, same, same + more),
        ]
        return inserted + _by_line(old, new, same, same + more)
    codes = _by_line(old, new[: len(old)], 0, 0)
    return codes if not more else [*codes, ("delete", len(new), len(old), len(new), len(new))]


def _by_line(old: Sequence[bytes], new: Sequence[bytes], i: int, j: int) -> list[Opcode]:
    codes: list[Opcode] = []
    common = min(len(old) - i, len(new) - j)
    for equal, run in groupby(range(common), key=lambda n: old[i + n] == new[j + n]):
        count = sum(1 for _ in run)
        last = codes[-1] if codes else ("", i, i, j, j)
        tag = "equal" if equal else "replace"
        codes.append((tag, last[2], last[2] + count, last[4], last[4] + count))
    return codes


def _grouped(codes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Groups of changes as difflib makes them, with :data:`CONTEXT` lines around each."""
    group: list[Opcode] = []
    for tag, i, i_end, j, j_end in codes:
        if tag != "equal":
            group.append((tag, i, i_end, j, j_end))
            continue
        if group and i_end - i > 2 * CONTEXT:
            group.append((tag, i, i + CONTEXT, j, j + CONTEXT))
            yield group
            group = []
        if not group:
            start = max(i, i_end - CONTEXT)
            group = [(tag, start, i_end, j_end - (i_end - start), j_end)]
        else:
            group.append((tag, i, i_end, j, j_end))
    if group and any(code[0] != "equal" for code in group):
        if group[-1][0] == "equal":
            tag, i, i_end, j, j_end = group[-1]
            kept = min(CONTEXT, i_end - i)
            group[-1] = (tag, i, i + kept, j, j + kept)
        yield group
