"""The seeded-bug suite: small programs that are right, and wrong in one place with -DBUG.

Each file in bugs/ is a case. It opens with lines of ``// key: value``:

    what        the defect, in one sentence
    expect      how it may show, any of several: ``SX201 | wrong`` (see Sign)
    widths      the warp widths at which it must show
    twin-widths where the correct twin must pass; by default ``widths`` and 32
    pitfall     its number in the list of porting pitfalls, when it is one
    sanitizer   the tool of compute-sanitizer that should see it on hardware, or ``none``
    group       races, memory, convergence, width, launch, arithmetic or porting
    checks      hints for the runner (see CHECKS)
    arch        the least NVIDIA architecture that compiles it, sm_75 unless told
    target      the device at width 32 whose limits it is about
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

BUGS = Path(__file__).parent / "bugs"
WRONG, FAILED = 1, 2  # exit statuses of a case: a wrong result, a failed API call

SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
CHECKS: Mapping[str, str] = {
    "lockstep": "right where the lanes of a warp advance together: run without lockstep",
    "cooperative": "launches a grid that synchronises",
    "hangs": "may never end on hardware: run it under a short limit",
    "schedule": "shows under a random or unfair schedule only",
    "strict": "at width 64, 0xffffffff means 32 lanes: run without widening masks",
}
_DEFAULT_TARGET = {(".cu", 32): "sm_90", (".hip", 32): "gfx1100"}
_WIDE_TARGET = "gfx942"
_KEYS = (
    "what",
    "expect",
    "widths",
    "twin-widths",
    "pitfall",
    "sanitizer",
    "group",
    "checks",
    "arch",
    "target",
)
_CODE = re.compile(r"SX\d{3}")


class Group(StrEnum):
    RACES = "races"
    MEMORY = "memory"
    CONVERGENCE = "convergence"
    WIDTH = "width"
    LAUNCH = "launch"
    ARITHMETIC = "arithmetic"
    PORTING = "porting"


@dataclass(frozen=True)
class Seen:
    """The ending of a mutant: refused at build time, or run. ``codes`` are those of its findings,
    ``status`` the program's exit status, None where it did not end by itself."""

    refused: bool = False
    codes: frozenset[str] = frozenset()
    status: int | None = None


@dataclass(frozen=True)
class Sign:
    """One way for a defect to show. ``SX201``: that finding; ``wrong``: the program says that its
    result is; ``error``: an API call failed; ``build`` or ``build SX001``: it was refused."""

    kind: Literal["finding", "wrong", "error", "build"]
    code: str = ""

    @classmethod
    def parse(cls, text: str) -> Sign:
        match text.split():
            case ["wrong" | "error" | "build" as kind]:
                return cls(kind)
            case ["build", code] if _CODE.fullmatch(code):
                return cls("build", code)
            case [code] if _CODE.fullmatch(code):
                return cls("finding", code)
        raise ValueError(
            f"Unknown sign {text!r}; expected one such as SX201, wrong, error, build or build SX001"
        )

    def __str__(self) -> str:
        return self.code if self.kind == "finding" else f"{self.kind} {self.code}".rstrip()

    def shows(self, seen: Seen) -> bool:
        if self.kind == "build":
            return seen.refused and (not self.code or self.code in seen.codes)
        if self.kind == "finding":
            return not seen.refused and self.code in seen.codes
        return seen.status == (WRONG if self.kind == "wrong" else FAILED)


@dataclass(frozen=True)
class Case:
    """A program with one defect, and its twin without. ``expect`` are alternatives."""

    path: Path
    what: str
    group: Group
    expect: tuple[Sign, ...]
    widths: tuple[int, ...]
    twin_widths: tuple[int, ...]
    pitfall: int | None
    sanitizer: str | None
    checks: frozenset[str]
    arch: str
    limits_of: str

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def language(self) -> Literal["cuda", "hip"]:
        return "hip" if self.path.suffix == ".hip" else "cuda"

    def target(self, width: int) -> str:
        """The device that the case runs as at a width of 32 or 64."""
        if width == 64:
            return _WIDE_TARGET
        return self.limits_of or _DEFAULT_TARGET[self.path.suffix, width]

    def caught(self, seen: Seen) -> bool:
        return any(sign.shows(seen) for sign in self.expect)

    @classmethod
    def parse(cls, path: Path) -> Case:
        header = _header(path)
        try:
            widths = _widths(header["widths"])
            twin_widths = header.get("twin-widths")
            return cls(
                path=path,
                what=header["what"],
                group=Group(header["group"]),
                expect=tuple(Sign.parse(one.strip()) for one in header["expect"].split("|")),
                widths=widths,
                twin_widths=_widths(twin_widths or header["widths"] + " 32"),
                pitfall=int(header["pitfall"]) if "pitfall" in header else None,
                sanitizer=_sanitizer(header["sanitizer"]),
                checks=_checks(header.get("checks", "")),
                arch=header.get("arch", "sm_75"),
                limits_of=header.get("target", ""),
            )
        except KeyError as missing:
            raise ValueError(f"{path.name}: its header lacks {missing}") from None
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None


def _header(path: Path) -> dict[str, str]:
    header: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"// ([a-z-]+): (.+)", line)
        if found is None:
            break
        if found[1] not in _KEYS or found[1] in header:
            raise ValueError(f"{path.name}: unknown or repeated key {found[1]!r}; known: {_KEYS}")
        header[found[1]] = found[2]
    return header


def _widths(text: str) -> tuple[int, ...]:
    widths = tuple(sorted({int(one) for one in text.split()}))
    if not widths or not set(widths) <= {32, 64}:
        raise ValueError(f"widths {text!r}; expected 32, 64 or both")
    return widths


def _checks(text: str) -> frozenset[str]:
    words = frozenset(text.split())
    if not words <= set(CHECKS):
        raise ValueError(f"checks {text!r}; known: {', '.join(CHECKS)}")
    return words


def _sanitizer(word: str) -> str | None:
    if word not in (*SANITIZERS, "none"):
        raise ValueError(f"sanitizer {word!r}; expected one of {', '.join(SANITIZERS)} or none")
    return None if word == "none" else word


@cache
def cases() -> tuple[Case, ...]:
    """All cases, by name."""
    files = [path for path in BUGS.iterdir() if path.suffix in (".cu", ".hip")]
    return tuple(Case.parse(path) for path in sorted(files))


def version(case: Case, *, bug: bool) -> list[str]:
    """The lines that the compiler sees with and without -DBUG. Other conditions are left alone."""
    lines: list[str] = []
    keeping: list[bool | None] = []  # None: a condition that is not about BUG
    for line in case.path.read_text(encoding="utf-8").splitlines():
        if line in ("#ifdef BUG", "#ifndef BUG"):
            keeping.append(bug == (line == "#ifdef BUG"))
        elif line.startswith("#if"):
            keeping.append(None)
        elif line == "#else" and keeping[-1] is not None:
            keeping[-1] = not keeping[-1]
        elif line == "#endif" and keeping.pop() is not None:
            pass
        elif False not in keeping:
            lines.append(line)
    if keeping:
        raise ValueError(f"{case.path.name}: #if without #endif")
    return lines
