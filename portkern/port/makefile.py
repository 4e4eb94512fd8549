"""Include folders and definitions of a Makefile, read and never run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

_ASSIGNMENT = re.compile(r"^[ ]*(?:export\s+|override\s+)?([\w.-]+)[ ]*(\+|\?|::?|)=[ ]*(.*)$")
_CONDITION = re.compile(r"\s*(?:ifn?eq|ifn?def)\b")
_VARIABLE = re.compile(r"\$[({]([\w.-]+)[)}]")


def settings(text: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Of every ``-I`` and ``-D``, whatever target they are for. Conditions hold as they would for
    a ``make`` without arguments."""
    variables = {"CURDIR": str(folder), "PWD": str(folder), "srcdir": "."}
    include: list[Path] = []
    defines: list[str] = []
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
            value = f"{variables.get(name, '')} {value}"
        if kind != "?" or name not in variables:
            variables[name] = value.strip()
    for line in [*variables.values(), *recipes]:
        for flag, value in _flags(_expanded(line, variables)):
            if flag == "-D":
                defines.append(value)
            else:
                include.append(folder / value)
    return include, defines


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
    text = _VARIABLE.sub("", _expanded(rest.strip(), variables))  # others are empty
    inside = text[1:-1].split(",", 1) if text.startswith("(") else _words(text)
    same = len(inside) == 2 and inside[0].strip() == inside[1].strip()
    return same == (keyword == "ifeq")


def _expanded(text: str, variables: dict[str, str]) -> str:
    for _ in range(8):  # a variable may be of others, and of itself
        expanded = _VARIABLE.sub(lambda m: variables.get(m[1], m[0]), text)
        if expanded == text or len(expanded) > 100_000:
            break
        text = expanded
    return text


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
