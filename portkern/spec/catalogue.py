"""The kernels that ship with portkern: ``backends/<name>/kernels/<op>.<suffix>``."""

from __future__ import annotations

import importlib
from importlib.resources import files
from pathlib import Path

from portkern.errors import ConfigError, no_such
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate


def candidates(op: str, backend: Backend) -> list[Candidate]:
    """One candidate per language in which the backend has a kernel for ``op``."""
    package = importlib.import_module(type(backend).__module__).__name__
    folder = files(package) / "kernels"
    found = []
    for suffix, language in backend.languages.items():
        file = folder / f"{op}{suffix}"
        if file.is_file():
            source = file.read_text(encoding="utf-8")
            found.append(
                Candidate(op, backend.name, language, source, entry=op, style=backend.style)
            )
    return found


def from_file(path: Path, *, op: str, backend: Backend, entry: str | None = None) -> Candidate:
    """A candidate read from anywhere; its suffix says the language. Raises ConfigError."""
    if path.suffix not in backend.languages:
        raise no_such(f"{backend.name} source suffix", path.suffix, backend.languages)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {path}: {error}") from error
    return Candidate(
        op,
        backend.name,
        backend.languages[path.suffix],
        source,
        entry or op,
        author=f"file:{path.name}",
        style=backend.style,
    )
