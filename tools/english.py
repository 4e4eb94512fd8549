"""Finds sentences that a newcomer reads twice: docstrings that begin without a subject, and "is no
Y" for "is not a Y". `make lint` runs it; it fails when there are more than the tree had."""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: How many of each kind there may be: lower it whenever some are rewritten, never raise it.
MOST = {"a docstring without a subject": 0, "'is no' for 'is not a'": 0}
_WITHOUT_SUBJECT = re.compile(
    r"(Of|Who|Whoever|Whom|Whose|Those|These|What|In|With|Without|By|From|Under|On|Not|None|That"
    r"|To|For|Until|Beside|Over|Nothing|At(?! most| least)|As(?! many| few))\b"
)
#: "There is no file" is plain; so are comparisons.
_IS_NO = re.compile(
    r"(?<![Tt]here )\b(?:is|are) no (?!(?:longer|more|less|larger|better|other|such)\b)[a-z]+"
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def found(path: Path) -> Iterator[tuple[str, int, str]]:
    """The riddles of a file: kind, line and text."""
    source = path.read_bytes()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            first = text.splitlines()[0]
            if _WITHOUT_SUBJECT.match(first):
                yield "a docstring without a subject", getattr(node, "lineno", 1), first
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT) and (
                no := _IS_NO.search(token.string)
            ):
                yield "'is no' for 'is not a'", token.start[0], no[0]


def main() -> int:
    files = [
        path
        for folder in ("portkern", "backends")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "kernels" not in path.parts
    ]
    riddles = [(path.relative_to(ROOT), *one) for path in files for one in found(path)]
    failed = False
    for kind, most in MOST.items():
        of_kind = [(path, line, text) for path, its, line, text in riddles if its == kind]
        if len(of_kind) <= most:
            continue
        failed = True
        print(f"{len(of_kind)} times {kind}, expected at most {most}; say what the thing is:")
        for path, line, text in of_kind:
            print(f"  {path}:{line}: {text}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
