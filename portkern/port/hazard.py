"""Pitfalls of a port as a numbered catalogue, and hazards: those that were seen in a file.

``pitfalls.yaml`` holds PK001 to PK057. PK101 and up are the translator's, in its ``codes.yaml``,
so that neither module imports the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast, get_args

from portkern.errors import no_such
from portkern.simt.diagnostics import Severity
from portkern.spec.foreign_text import yaml_value

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

#: The checks that can see a pitfall, the cheapest first.
Channel = Literal["lint", "build", "run", "hardware"]
_DETECTION: dict[Channel, str] = {
    "lint": "in the text",
    "build": "by the target's compiler",
    "run": "when it runs, in the emulator too",
    "hardware": "on a device",
}


@dataclass(frozen=True)
class Pitfall:
    """One way in which a port goes wrong; ``bad`` and ``good`` are code, of one to four lines."""

    title: str
    why: str
    bad: str
    good: str
    severity: Severity
    channel: tuple[Channel, ...]
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.channel or set(self.channel) - set(get_args(Channel)):
            raise ValueError(
                f"A pitfall is seen by some of {get_args(Channel)}, got {self.channel}"
            )


def _read(file: Traversable) -> dict[str, Pitfall]:
    if not file.is_file():
        return {}
    entries = yaml_value(file.read_text("utf-8"))
    return {code: _pitfall(cast("Mapping[str, object]", entry)) for code, entry in entries.items()}


def _pitfall(entry: Mapping[str, object]) -> Pitfall:
    title, why, bad, good = (str(entry[key]).strip() for key in ("title", "why", "bad", "good"))
    channel = tuple(cast("list[Channel]", entry["channel"]))
    severity = Severity(str(entry["severity"]))
    sources = tuple(map(str, cast("list[object]", entry.get("sources", []))))
    return Pitfall(title, why, bad, good, severity, channel, sources)


_HERE = resources.files("portkern.port")
PITFALLS: Mapping[str, Pitfall] = MappingProxyType(
    _read(_HERE / "pitfalls.yaml") | _read(_HERE / "translate" / "codes.yaml")
)


@dataclass(frozen=True, order=True)
class Hazard:
    """A pitfall at a place. ``level`` is there when this case weighs less or more than most."""

    code: str
    message: str
    path: str
    line: int
    column: int = 0
    kernel: str = ""
    level: Severity | None = None

    @property
    def severity(self) -> Severity:
        return self.level or PITFALLS[self.code].severity

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.code} {self.message}"

    def to_json(self) -> JsonObject:
        return {
            "code": self.code,
            "severity": str(self.severity),
            "message": self.message,
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "kernel": self.kernel,
        }


def explain(code: str) -> str:
    """All that is known of a pitfall, as text for a terminal. ``pk13`` is PK013. Raises ConfigError
    for another."""
    number = code.upper().removeprefix("PK")
    known = f"PK{number:0>3}"
    pitfall = PITFALLS.get(known)
    if pitfall is None:
        raise no_such("pitfall", code, PITFALLS)
    seen = ", ".join(f"{name} ({_DETECTION[name]})" for name in pitfall.channel)
    return "\n".join(
        [
            f"{known} ({pitfall.severity}): {pitfall.title}",
            "",
            pitfall.why,
            "",
            "  instead of",
            *(f"    {line}" for line in pitfall.bad.splitlines()),
            "  write",
            *(f"    {line}" for line in pitfall.good.splitlines()),
            "",
            f"Seen by: {seen}.",
            *([f"Sources: {'; '.join(pitfall.sources)}."] if pitfall.sources else []),
        ]
    )
