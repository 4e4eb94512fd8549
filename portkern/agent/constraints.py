"""Constraints that people put on a kernel: told to whoever writes it, and enforced.

    must:    [{pattern: '__shfl', why: reduce within the wave}]
    never:   [atomicAdd, {pattern: 'asm', why: no inline assembly}]
    pinned:  ["#define LAYOUT 3"]
    precision: strict
    resources: {registers: 128, shared_bytes: 49152, spills: 0, threads: 512}
    advice:  [prefer one pass over the rows]

Patterns are regular expressions that are looked for in the source without its comments; ``^`` and
``$`` are the ends of a line. Pinned lines must stand in the source as they are, whatever the spaces
around them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from portkern.cuda_source import lexer
from portkern.errors import ConfigError, no_such
from portkern.guard import python
from portkern.records.record import BuildResources, Record
from portkern.spec.foreign_text import Malformed, place_of, read_text, yaml_value
from portkern.spec.op import Precision

_PYTHON = ("numba", "triton", "pallas", "pallas-tpu", "pallas-mosaic-gpu", "opencl")
_PYTHON_COMMENT = re.compile(
    r"#[^\n]*|(\"{3}.*?\"{3}|'{3}.*?'{3}"  # comments; strings are kept
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')",
    re.DOTALL,
)
_STRICTER: Sequence[Precision] = ("strict", "allow_tf32", "allow_reduced")
#: What a limit counts.
_UNITS = {
    "registers": "registers per thread",
    "shared_bytes": "bytes of shared memory per block",
    "spills": "spills per thread",
    "threads": "threads per block",
}
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ConstraintRule(_Part):
    """``pattern`` is a regular expression; ``why`` is told with it."""

    pattern: str
    why: str = ""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value

    def __str__(self) -> str:
        return f"{self.pattern} ({self.why})" if self.why else self.pattern


class Most(_Part):
    """The most of what a build may use, per thread or block; see BuildResources."""

    registers: Count | None = None
    shared_bytes: Count | None = None
    spills: Count | None = None
    threads: Count | None = None

    def exceeded(self, used: BuildResources) -> Iterator[str]:
        for name, most in self.model_dump(exclude_none=True).items():
            has = getattr(used, name)
            if has is not None and has > most:
                yield f"{used.kernel} uses {has} {_UNITS[name]}, the constraints allow {most}"


class Constraints(_Part):
    must: tuple[ConstraintRule, ...] = ()
    never: tuple[ConstraintRule, ...] = ()
    pinned: tuple[str, ...] = ()
    precision: Precision | None = None
    resources: Most = Most()
    advice: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Constraints:
        """Raises ConfigError."""
        try:
            data = yaml_value(read_text(path))
        except Malformed as error:
            raise ConfigError(f"Cannot read {path}: {error}") from error
        if not isinstance(data, dict):
            got = "nothing" if data is None else f"a {type(data).__name__}"
            raise ConfigError(f"{path}: got {got}, expected keys such as never:")
        for name in map(str, data):
            if name not in cls.model_fields:
                raise ConfigError(f"{path}: {no_such('constraint', name, cls.model_fields)}")
        try:
            return cls.model_validate(_spelled_out(data))
        except ValidationError as error:
            first = error.errors()[0]
            field = place_of(first["loc"])
            reason = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{path}: {field}: {reason}; got {first['input']!r}") from error

    @property
    def lines(self) -> list[str]:
        """The constraints as a prompt states them, a line each; none when nothing is asked."""
        lines = [f"The source must contain: {rule}" for rule in self.must]
        lines += [f"The source must not contain: {rule}" for rule in self.never]
        lines += [f"Keep this line as it is: {line}" for line in self._pinned_lines]
        lines += [
            f"Use at most {most} {_UNITS[name]}"
            for name, most in self.resources.model_dump(exclude_none=True).items()
        ]
        lines += [f"Precision: {self.precision}"] if self.precision else []
        return [*lines, *self.advice]

    def precision_of(self, policy: Precision) -> Precision:
        """The stricter one: people may ask for more than the op does, not for less."""
        if self.precision is None:
            return policy
        return min(self.precision, policy, key=_STRICTER.index)

    def broken_by(self, source: str, language: str) -> list[str]:
        """The constraints that the source disregards, a sentence each."""
        code = without_comments(source, language)
        broken = [
            f"the constraints ask for {rule}, which the source does not have"
            for rule in self.must
            if not re.search(rule.pattern, code, re.MULTILINE)
        ]
        for rule in self.never:
            match = re.search(rule.pattern, code, re.MULTILINE)
            if match:
                number = code.count("\n", 0, match.start()) + 1
                broken.append(
                    f"line {number} has {match[0]!r}, which the constraints forbid: {rule}"
                )
        lines = list(zip(source.split("\n"), code.split("\n"), strict=True))
        broken += [
            f"the pinned line {line!r} was changed or is missing"
            for line in self._pinned_lines
            if not _stands(line, lines, language)
        ]
        return broken

    @property
    def _pinned_lines(self) -> list[str]:
        return [line for text in self.pinned for line in text.splitlines() if line.strip()]

    def exceeded_by(self, records: Sequence[Record]) -> list[str]:
        """The resources that the builds use beyond what is allowed, a sentence each, without
        repetition."""
        return list(
            dict.fromkeys(
                text
                for record in records
                for used in record.resources
                for text in self.resources.exceeded(used)
            )
        )


def _spelled_out(data: dict[str, object]) -> dict[str, object]:
    """A rule may be written as its pattern alone, a list of one without brackets; YAML's lists are
    tuples here."""

    def rule(item: object) -> object:
        return {"pattern": item} if isinstance(item, str) else item

    spelled: dict[str, Any] = {key: value for key, value in data.items() if value is not None}
    for key in {"must", "never", "pinned", "advice"} & set(spelled):
        several = spelled[key] if isinstance(spelled[key], list) else [spelled[key]]
        spelled[key] = tuple(map(rule, several) if key in ("must", "never") else several)
    return spelled


def _stands(pinned: str, lines: Sequence[tuple[str, str]], language: str) -> bool:
    """``lines``: as they are, and without comments. One that only stands in a comment does not
    count, unless it is one."""
    is_comment = not without_comments(pinned, language).strip()
    return any(
        line.split() == pinned.split() and (is_comment or code.strip()) for line, code in lines
    )


def without_comments(source: str, language: str) -> str:
    """Blank where they were, docstrings too, so that what is left keeps its place. Other strings
    stay: OpenCL's and inline assembly are code."""
    if language not in _PYTHON:
        return "".join(_blank(token.gap) + token.text for token in lexer.tokenize(source))
    docstrings = set(_docstrings(source))

    def replaced(match: re.Match[str]) -> str:
        string = match[1]
        if string is None or match.start(1) in docstrings:
            return _blank(match[0])
        if language != "opencl" or string[:3] not in ('"""', "'''"):
            return string
        return string[:3] + without_comments(string[3:-3], "c++") + string[-3:]

    return _PYTHON_COMMENT.sub(replaced, source)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _docstrings(source: str) -> Iterator[int]:
    """Where the strings begin that are statements by themselves."""
    tree = python.parse(source)
    starts = [0, *(match.end() for match in re.finditer("\r\n?|\n", source))]
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            start = starts[node.lineno - 1]
            before = source[start:].encode()[: node.col_offset]  # ast counts bytes
            prefix = re.match(r"[a-zA-Z]*", source[start + len(before.decode()) :])
            yield start + len(before.decode()) + (prefix.end() if prefix else 0)
