"""What people ask of a kernel: told to whoever writes it, and enforced.

    must:    [{pattern: '__shfl', why: reduce within the wave}]
    never:   [atomicAdd, {pattern: 'asm', why: no inline assembly}]
    pinned:  ["#define LAYOUT 3"]
    precision: strict
    resources: {registers: 128, shared_bytes: 49152, spills: 0, threads: 512}
    advice:  [prefer one pass over the rows]

Patterns are regular expressions that are looked for in the source without its comments. Pinned
lines must stand in the source as they are, whatever the spaces around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from portkern.errors import ConfigError
from portkern.op import Precision
from portkern.record import BuildResources, Record

_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\])*\")", re.DOTALL)
_PYTHON_COMMENT = re.compile(
    r"#[^\n]*|(\"{3}.*?\"{3}|'{3}.*?'{3}"  # comments; strings are kept
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')",
    re.DOTALL,
)
_STRICTER: Sequence[Precision] = ("strict", "allow_tf32", "allow_reduced")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Rule(_Part):
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

    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None
    threads: int | None = None

    def exceeded(self, used: BuildResources) -> Iterator[str]:
        for name, most in self.model_dump(exclude_none=True).items():
            has = getattr(used, name)
            if has is not None and has > most:
                yield f"{used.kernel} uses {has} {name}, the constraints allow {most}"


class Constraints(_Part):
    must: tuple[Rule, ...] = ()
    never: tuple[Rule, ...] = ()
    pinned: tuple[str, ...] = ()
    precision: Precision | None = None
    resources: Most = Most()
    advice: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Constraints:
        """Raises ConfigError."""
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"Cannot read {path}: {' '.join(str(error).split())}") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{path}: got {type(data).__name__}, expected keys such as never:")
        try:
            return cls.model_validate(_spelled_out(data))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{path}: {field}: {first['msg']}; got {first['input']!r}") from error

    @property
    def told(self) -> list[str]:
        """For a prompt, a line each; none when nothing is asked."""
        lines = [f"The source must contain: {rule}" for rule in self.must]
        lines += [f"The source must not contain: {rule}" for rule in self.never]
        lines += [f"Keep this line as it is: {line}" for line in self.pinned]
        lines += [
            f"Use at most {most} {name.replace('_', ' ')}"
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
        """What the source disregards, a sentence each."""
        code = _without_comments(source, language)
        lines = {" ".join(line.split()) for line in source.splitlines()}
        told = [
            f"the constraints ask for {rule}, which the source does not have"
            for rule in self.must if not re.search(rule.pattern, code)
        ]  # fmt: skip
        for rule in self.never:
            found = re.search(rule.pattern, code)
            if found:
                number = code.count("\n", 0, found.start()) + 1
                told.append(f"line {number} has {found[0]!r}, which the constraints forbid: {rule}")
        told += [
            f"the pinned line {line!r} was changed or is missing"
            for line in self.pinned if " ".join(line.split()) not in lines
        ]  # fmt: skip
        return told

    def exceeded_by(self, records: Sequence[Record]) -> list[str]:
        """What the builds use beyond what is allowed, each once."""
        return list(
            dict.fromkeys(
                text
                for record in records
                for used in record.resources
                for text in self.resources.exceeded(used)
            )
        )


def _spelled_out(data: dict[str, Any]) -> dict[str, Any]:
    """A rule may be written as its pattern alone; YAML's lists are tuples here."""

    def rule(item: Any) -> Any:
        return {"pattern": item} if isinstance(item, str) else item

    spelled = dict(data)
    for key in ("must", "never"):
        if isinstance(data.get(key), list):
            spelled[key] = tuple(map(rule, data[key]))
    for key in ("pinned", "advice"):
        if isinstance(data.get(key), list):
            spelled[key] = tuple(data[key])
    return spelled


def _without_comments(source: str, language: str) -> str:
    """Blank where they were, so that lines keep their numbers. Strings stay: OpenCL's are code."""
    python = language in ("numba", "triton", "pallas", "opencl")
    pattern = _PYTHON_COMMENT if python else _C_COMMENT

    def blank(match: re.Match[str]) -> str:
        return match[1] if match[1] is not None else re.sub(r"[^\n]", " ", match[0])

    return pattern.sub(blank, source)
