"""Include folders, definitions and programs of a Makefile, read and never run."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from portkern.port.build_variables import MOST_CHARACTERS, expanded

_ASSIGNMENT = re.compile(r"^[ ]*(?:export\s+|override\s+)?([\w.-]+)[ ]*(\+|\?|::?|)=[ ]*(.*)$")
_CONDITION = re.compile(r"\s*(?:ifn?eq|ifn?def)\b")
_VARIABLE = re.compile(r"\$[({]([\w.-]+)[)}]")


_WILDCARD = re.compile(r"\$\(wildcard\s++([^$()]++)\)")
#: Where a command of a shell ends.
_SHELL = re.compile(r"(?<!\d)\d*+[<>|;&]|#")
#: What a source may be called; of objects, the first of these that is there.
_SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c", ".hip")


def settings(text: str, folder: Path) -> tuple[list[Path], list[str]]:
    """The include folders and macros of every ``-I`` and ``-D``, whatever target they are for.
    Conditions hold as they would for a ``make`` without arguments."""
    include: list[Path] = []
    defines: list[str] = []
    for line in _lines(text, folder):
        for flag, value in _flags(line):
            if flag == "-D":
                defines.append(value)
            else:
                include.append(folder / value)
    return include, defines


def programs(text: str, folder: Path) -> list[tuple[Path, ...]]:
    """Lists of sources, or of their objects, that stand together, in a variable or in a line: what
    may be linked. Each has two files or more, which are there."""
    found: dict[tuple[Path, ...], None] = {}
    for line in _lines(text, folder):
        globbed = _WILDCARD.sub(lambda m: _globbed(m[1], folder), line)
        files = (_source(word, folder) for word in _words(globbed))
        listed = tuple(dict.fromkeys(file for file in files if file is not None))
        if len(listed) > 1:
            found[listed] = None
    return list(found)


def arguments(text: str, folder: Path) -> tuple[str, ...]:
    """The arguments of the program that the target ``run`` starts first; none where make has to
    compute one."""
    running = False
    for line in _lines(text, folder):
        if not line.startswith("\t"):
            running = re.match(r"run\s*:(?!=)", line) is not None
            continue
        words = _words(line) if running else []
        program = next((n for n, word in enumerate(words) if word.startswith("./")), None)
        if program is None:
            continue
        given = words[program + 1 :]
        ends = (n for n, word in enumerate(given) if _SHELL.match(word))
        given = given[: next(ends, None)]
        return () if any("$" in word for word in given) else tuple(given)
    return ()


def _globbed(patterns: str, folder: Path) -> str:
    plain = [p for p in patterns.split() if not p.startswith("/")]
    return " ".join(str(file) for p in plain for file in sorted(folder.glob(p)))


def _source(word: str, folder: Path) -> Path | None:
    path = folder / word.rstrip(":")
    if "$" in word or "%" in word or path.suffix not in (*_SOURCES, ".o"):
        return None
    names = [path] if path.suffix != ".o" else [path.with_suffix(end) for end in _SOURCES]
    there = next((name for name in names if name.is_file()), None)
    return Path(os.path.normpath(there)) if there else None


def _lines(text: str, folder: Path) -> list[str]:
    """Values of variables, then recipes and rules, each with its variables put in."""
    variables = {"CURDIR": str(folder), "PWD": str(folder), "srcdir": "."}
    recipes: list[str] = []
    branches: list[bool] = []  # of each open condition: whether its lines count
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = re.sub(r"(^|\s)#.*", "", line)
        if _is_condition(line, branches, variables) or not all(branches):
            continue
        match = _ASSIGNMENT.match(line)
        if match is None:
            recipes.append(line)
            continue
        name, kind, value = match.groups()
        if kind == "+":
            value = f"{variables.get(name, '')} {value}"[:MOST_CHARACTERS]
        if kind != "?" or name not in variables:
            variables[name] = value.strip()
    return [expanded(line, _VARIABLE, variables) for line in [*variables.values(), *recipes]]


def _is_condition(line: str, branches: list[bool], variables: dict[str, str]) -> bool:
    """Whether the line is ``ifeq``, ``else`` or their like, which ``branches`` follow."""
    words = line.split(None, 1)
    keyword = words[0] if words else ""
    if keyword == "else" and branches:
        branches[-1] = not branches[-1]
        rest = words[1] if len(words) > 1 else ""
        if branches[-1] and _CONDITION.match(rest):
            branches[-1] = _holds(rest, variables)
    elif keyword == "endif" and branches:
        branches.pop()
    elif _CONDITION.match(line):
        branches.append(_holds(line, variables))
    else:
        return False
    return True


def _holds(condition: str, variables: dict[str, str]) -> bool:
    keyword, _, rest = condition.strip().partition(" ")
    if keyword in ("ifdef", "ifndef"):
        return (rest.strip() in variables) == (keyword == "ifdef")
    text = _VARIABLE.sub("", expanded(rest.strip(), _VARIABLE, variables))  # others are empty
    inside = text[1:-1].split(",", 1) if text.startswith("(") else _words(text)
    same = len(inside) == 2 and inside[0].strip() == inside[1].strip()
    return same == (keyword == "ifeq")


def _flags(line: str) -> list[tuple[str, str]]:
    """Each ``-I``, ``-isystem`` or ``-D`` and its value; those that make has to compute are out."""
    words = _words(line)
    flags: list[tuple[str, str]] = []
    for n, word in enumerate(words):
        for flag in ("-isystem", "-I", "-D"):
            if word.startswith(flag):
                value = word.removeprefix(flag) or next(iter(words[n + 1 : n + 2]), "")
                if value and "$" not in value and (flag != "-D" or re.match(r"[A-Za-z_]", value)):
                    flags.append(("-D" if flag == "-D" else "-I", value))
                break
    return flags


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
