"""``portkern.yaml``: what a project is made of, checked with the line of each mistake."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from portkern.errors import ConfigError
from portkern.spec import companions
from portkern.spec.foreign_text import check_yaml

FILE = "portkern.yaml"
#: Mistakes that are named at once.
MOST_MISTAKES = 20

#: Where a value stands: keys and numbers of list items from the top.
Place = tuple[str | int, ...]


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _entry(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


#: A name or a list of names.
Names = Annotated[tuple[str, ...], BeforeValidator(_several)]
EvidenceName = Literal["built", "emulated", "executed", "verified", "measured"]


class DocumentPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class KernelEntry(DocumentPart):
    """One kernel, or a folder of kernels as ``source``. What is empty follows from its name."""

    source: str = Field(min_length=1)
    op: str = ""
    backend: str = ""
    variant: str = ""
    entry: str = ""
    style: Literal["dps", "return"] | None = None
    include: Names = ()
    defines: Names = ()
    sources: Names = ()


class Expected(DocumentPart):
    """The coverage that is expected: each op by each backend for each target, at the evidence or
    above; of the workloads and dtypes that are run, or of these alone."""

    op: Names
    backend: Names
    target: Names
    workloads: Names = ()
    dtypes: Names = ()
    variant: str = ""
    evidence: EvidenceName = "emulated"


Entry = Annotated[KernelEntry, BeforeValidator(_entry)]


class ProjectDocument(DocumentPart):
    kernels: Annotated[tuple[Entry, ...], BeforeValidator(_several)] = ()
    include: Names = ()
    defines: Names = ()
    ops: Names = ()
    targets: Names = ()
    backends: Names = ()
    workloads: Names = ()
    dtypes: Names = ()
    expect: tuple[Expected, ...] = ()
    track: bool = True


@dataclass(frozen=True)
class ProjectFile:
    """``lines`` are of each key and list item."""

    path: Path
    document: ProjectDocument
    lines: Mapping[Place, int]

    @property
    def folder(self) -> Path:
        return self.path.parent

    def at(self, *place: str | int) -> str:
        """``portkern.yaml:7``: the line of the nearest thing that has one."""
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.path}:{self.lines.get(place, 1)}"

    @classmethod
    def read(cls, path: Path) -> ProjectFile:
        """Raises ConfigError, with a line for each mistake."""
        text = companions.read_text(path)
        lines: dict[Place, int] = {(): 1}
        try:
            check_yaml(text)
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            data = _value(node, (), lines) if node is not None else {}
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            why = " ".join(filter(None, (error.context, error.problem)))
            raise ConfigError(f"{path}:{mark.line + 1 if mark else 1}: no YAML: {why}") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{path}:1: no YAML: {' '.join(str(error).split())}") from error
        except _Mistake as error:
            raise ConfigError(f"{path}:{error.line}: {error}") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{path}:1: got {_brief(data)}, expected keys such as 'kernels:'")
        try:
            return cls(path, ProjectDocument.model_validate(data), lines)
        except ValidationError as error:
            mistakes = list(_mistakes(error, path, lines))
            raise ConfigError("\n".join(mistakes[:MOST_MISTAKES])) from error


class _Mistake(ValueError):
    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def _value(node: yaml.Node, place: Place, lines: dict[Place, int]) -> object:
    """Plain values of YAML's nodes, whose lines go to ``lines``; lists are tuples."""
    line = node.start_mark.line + 1
    lines.setdefault(place, line)
    if isinstance(node, yaml.SequenceNode):
        return tuple(_value(n, (*place, k), lines) for k, n in enumerate(node.value))
    if not isinstance(node, yaml.MappingNode):
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node)
        except (ValueError, AttributeError) as error:  # 2020-13-45 is a date to YAML
            raise _Mistake(line, f"a value that cannot be: {error}") from error
    data: dict[str, object] = {}
    for key_node, value_node in node.value:
        key, at = str(key_node.value), key_node.start_mark.line + 1
        if key in data:
            raise _Mistake(at, f"{key!r} is there twice; keep one")
        lines[(*place, key)] = at
        data[key] = _value(value_node, (*place, key), lines)
    return data


_PARTS: Mapping[str, type[DocumentPart]] = {"kernels": KernelEntry, "expect": Expected}


def _mistakes(error: ValidationError, path: Path, lines: Mapping[Place, int]) -> Iterator[str]:
    mistakes: list[tuple[int, str]] = []
    details = error.errors()
    misspelt = {tuple(d["loc"][:-1]) for d in details if d["type"] == "extra_forbidden"}
    for detail in details:
        place: Place = tuple(detail["loc"])
        if detail["type"] == "missing" and place[:-1] in misspelt:
            continue  # it is there under the other name
        known = place
        while known and known not in lines:
            known = known[:-1]
        mistakes.append((lines.get(known, 1), _message(place, dict(detail))))
    yield from (f"{path}:{line}: {text}" for line, text in sorted(mistakes))


def _message(place: Place, detail: Mapping[str, Any]) -> str:
    name, got = _spelt(place), _brief(detail["input"])
    context = detail.get("ctx", {})
    if detail["type"] == "extra_forbidden":
        part = _PARTS.get(str(place[0]), ProjectDocument) if len(place) > 1 else ProjectDocument
        return f"no option {name!r}; {_hint(str(place[-1]), list(part.model_fields))}"
    if detail["type"] == "missing":
        return f"{_spelt(place[:-1])} has no {place[-1]!r}"
    if detail["type"] == "literal_error":
        choices = [choice.strip("'") for choice in _quoted(str(context.get("expected", "")))]
        return f"got {name}: {got}; {_hint(str(detail['input']), choices)}"
    expected = {
        "string_type": "a text (in quotation marks if it looks like something else)",
        "tuple_type": "a list",
        "bool_type": "true or false",
        "model_type": "keys such as 'source:'",
        "string_too_short": "a text that is not empty",
    }.get(detail["type"], detail["msg"])
    return f"got {name}: {got}, expected {expected}"


def _hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"available: {', '.join(known)}"


def _quoted(expected: str) -> list[str]:
    return expected.replace(" or ", ", ").split(", ")


def _spelt(place: Place) -> str:
    """``kernels[0].style``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    return "".join(parts).removeprefix(".")


def _brief(value: object) -> str:
    if isinstance(value, bool | None):
        return {True: "true", False: "false", None: "nothing"}[value]
    text = repr(list(value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
