"""The kernels that ship with portkern: ``backends/<name>/kernels/<op>.<suffix>``, and where one
source serves several backends, ``kernels`` of what they share (:attr:`Backend.shared`)."""

from __future__ import annotations

import importlib
import re
from importlib.resources import files
from pathlib import Path

from portkern.errors import ConfigError, no_such
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate

#: ``#define UNROLL 8  // knob: 1 2 4 8 (hip: 4)``: in one language it starts from another value.
_EXCEPTION = re.compile(
    r"^(?P<head>#define[ \t]+\w+[ \t]+)(?P<value>-?\d+)(?P<tail>[ \t]*// knob:[-\d \t]*\d)"
    r"[ \t]*\((?P<language>[\w+]+): (?P<other>-?\d+)\)[ \t]*$",
    re.MULTILINE,
)


def candidates(op: str, backend: Backend) -> list[Candidate]:
    """One candidate per language in which the backend has a kernel for ``op``: its own, else one
    that it shares."""
    package = importlib.import_module(type(backend).__module__).__name__
    sources: dict[str, str] = {}
    for home, languages in ((package, backend.languages), *backend.shared.items()):
        for suffix, language in languages.items():
            file = files(home) / "kernels" / f"{op}{suffix}"
            if language not in sources and file.is_file():
                sources[language] = _of_one(file.read_text(encoding="utf-8"), language)
    return [
        Candidate(op, backend.name, language, source, entry=op, style=backend.style)
        for language, source in sources.items()
    ]


def from_file(path: Path, *, op: str, backend: Backend, entry: str | None = None) -> Candidate:
    """A candidate read from anywhere; its suffix says the language. Raises ConfigError."""
    known = (*backend.shared.values(), backend.languages)
    languages = {suffix: language for one in known for suffix, language in one.items()}
    if path.suffix not in languages:
        raise no_such(f"{backend.name} source suffix", path.suffix, languages)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {path}: {error}") from error
    language = languages[path.suffix]
    return Candidate(
        op,
        backend.name,
        language,
        _of_one(source, language),
        entry or op,
        author=f"file:{path.name}",
        style=backend.style,
    )


def _of_one(source: str, language: str) -> str:
    """A source of several languages as that of one, whose values its knobs take."""

    def settle(knob: re.Match[str]) -> str:
        value = knob["other" if knob["language"] == language else "value"]
        return f"{knob['head']}{value}{knob['tail']}"

    return _EXCEPTION.sub(settle, source)
