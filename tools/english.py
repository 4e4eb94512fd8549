"""Finds sentences that a newcomer reads twice: docstrings and `#:` comments that begin without a
subject, and "is no" for "is not a", in code, names, pages and prompts. `make lint` runs it; one is
too many."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_WITHOUT_SUBJECT = re.compile(
    r"(Of|Who|Whoever|Whom|Whose|Those|These|What|In|With|Without|By|From|Under|On|Not|None|That"
    r"|To|For|Until|Beside|Over|Nothing|At(?! most| least)|As(?! many| few))\b"
)
#: The first line of what is said of a name. Beside it, "What a limit counts." names the thing.
_COMMENT = re.compile(
    r"^(?![ \t]*#:).*\n[ \t]*#: (?!(?:What|These|Nothing|None)\b)(.*)", re.MULTILINE
)
#: Between words: spaces, a name's underscore, the end of a line and the next comment's mark.
_GAP = r"(?:_|\s+(?:(?:#:?|//|\*|>)\s+)?)"
#: "There is no file" is plain; so are comparisons.
_IS_NO = re.compile(
    rf"(?<![a-z])(there{_GAP}|there_)?(?:is|are|was|were){_GAP}no{_GAP}"
    r"(?!(?:longer|more|less|larger|better|other|such|faster|slower|shorter|fewer)(?![a-z]))[a-z]+",
    re.IGNORECASE,
)
_FOLDERS = (
    "backends",
    "benchmarks",
    "conf",
    "docs",
    "examples",
    "portkern",
    "targets",
    "tests",
    "tools",
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_TEXTS = {
    ".cl",
    ".cpp",
    ".cu",
    ".cuh",
    ".h",
    ".hip",
    ".j2",
    ".js",
    ".md",
    ".py",
    ".sh",
    ".toml",
    ".yaml",
}
#: Records and their pages are as they were made; a kernel's text, comments too, is what its records
#: are found by; the last have riddles to be found.
_AS_THEY_ARE = re.compile(
    r"(reports|benchmarks/results|backends/[a-z]+/(kernels|include))/|tests/test_english\.py"
)


def found(path: Path) -> Iterator[tuple[str, int, str]]:
    """The riddles of a file: kind, line and text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _without_subject(text)
        for match in _COMMENT.finditer(text):
            if _WITHOUT_SUBJECT.match(match[1]):
                yield "a comment without a subject", text.count("\n", 0, match.end()) + 1, match[1]
    for match in _IS_NO.finditer(text):
        if not match[1]:
            line = text.count("\n", 0, match.start()) + 1
            yield "'is no' for 'is not a'", line, " ".join(match[0].split())


def _without_subject(source: str) -> Iterator[tuple[str, int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            first = text.splitlines()[0]
            if _WITHOUT_SUBJECT.match(first):
                yield "a docstring without a subject", getattr(node, "lineno", 1), first


def read() -> Iterator[Path]:
    """The checkout's files that people wrote to be read; without git, those of the folders that
    have them."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = listed.splitlines()
    except (OSError, subprocess.CalledProcessError):
        found = (path for folder in _FOLDERS for path in (ROOT / folder).rglob("*"))
        names = [str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.*"), *found)]
    for name in names:
        path = ROOT / name
        if path.suffix in _TEXTS and not _AS_THEY_ARE.match(name) and path.is_file():
            yield path


def main() -> int:
    riddles = [(path.relative_to(ROOT), *riddle) for path in read() for riddle in found(path)]
    for path, kind, line, text in riddles:
        print(f"{path}:{line}: {kind}; say what the thing is: {text}")
    return int(bool(riddles))


if __name__ == "__main__":
    sys.exit(main())
