"""Kernels that try to be paid without the work, and honest ones that only look odd, from files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from portkern import guard, ops
from portkern.errors import ConfigError, no_such
from portkern.records.record import Verdict
from portkern.spec import companions, registry
from portkern.spec.candidate import Candidate, Style

#: The folders of a corpus.
CHEATS, HONEST = "cheats", "honest"
#: Where ``expect`` has this word, the kernel's answers may be right: it cheats for a time.
DEFEATED = "defeated"
COMMENT = {".cpp": "//", ".cu": "//", ".hip": "//", ".py": "#"}
_STYLES = ("dps", "return", "module")


@dataclass(frozen=True)
class Attack:
    """A kernel of a corpus. ``for_time``: its answers may be right, and what it is after is a time
    that it did not need; ``may_be_wrong``: it has a verdict of ``wrong`` to expect as well."""

    name: str
    mechanism: str
    candidate: Candidate
    torch_ops: guard.TorchOps
    honest: bool
    for_time: bool = False
    may_be_wrong: bool = False

    @classmethod
    def read(cls, path: Path) -> Attack:
        """Raises ConfigError, which names the file and what it lacks."""
        said = header(path, companions.read_text(path))
        missing = {"mechanism", "op"} - said.keys()
        if missing:
            raise ConfigError(
                f"{path}: its first lines say no {' and no '.join(sorted(missing))}; "
                f"expected '{COMMENT[path.suffix]} mechanism: …' and '{COMMENT[path.suffix]} op: …'"
            )
        if said["op"] not in ops.names():
            raise no_such(f"op in {path.name}", said["op"], ops.names())
        expected = alternatives(said.get("expect", ""))
        return cls(
            path.name,
            said["mechanism"],
            _candidate(path, said),
            guard.torch_ops(said.get("torch_ops", "forbid")),
            honest=path.parent.name == HONEST,
            for_time=DEFEATED in expected,
            may_be_wrong=str(Verdict.WRONG) in expected,
        )


def corpus(folder: Path, words: Sequence[str] = ()) -> list[Attack]:
    """The kernels in ``cheats`` and ``honest``, by name; those whose name has one of ``words``.
    Raises ConfigError."""
    found = [
        Attack.read(path)
        for heap in (CHEATS, HONEST)
        for path in sorted((folder / heap).glob("*"))
        if path.suffix in COMMENT
        and path.is_file()
        and not path.is_symlink()  # a corpus of others may point anywhere
        and (not words or any(word in path.name for word in words))
    ]
    if not found:
        asked = f" with {' or '.join(words)} in their names" if words else ""
        raise ConfigError(
            f"No kernels{asked} in {folder / CHEATS} and {folder / HONEST}; "
            "expected the folder of a corpus, such as tests/corpus of portkern's repository"
        )
    return found


def header(path: Path, text: str) -> Mapping[str, str]:
    """The lines ``// key: value`` or ``# key: value`` that a file opens with."""
    said: dict[str, str] = {}
    for line in text.splitlines():
        found = re.fullmatch(rf"{COMMENT[path.suffix]} ([a-z_]+): (.+)", line)
        if found is None:
            break
        said[found[1]] = found[2]
    return said


def alternatives(text: str) -> list[str]:
    """``wrong | crashed`` as a list."""
    return [word.strip() for word in text.split(" | ") if word.strip()]


def style_of(path: Path, said: Mapping[str, str]) -> Style:
    """``return`` for Python on a CPU, else ``dps``, unless told. Raises ConfigError."""
    usual = "return" if said.get("backend", "cpu") == "cpu" and path.suffix == ".py" else "dps"
    style = said.get("style", usual)
    if style not in _STYLES:
        raise no_such(f"style in {path.name}", style, _STYLES)
    return cast(Style, style)


def _candidate(path: Path, said: Mapping[str, str]) -> Candidate:
    backend = registry.load(said.get("backend", "cpu"))
    if path.suffix not in backend.languages:
        raise no_such(f"{backend.name} suffix of {path.name}", path.suffix, backend.languages)
    return Candidate(
        said["op"],
        backend.name,
        backend.languages[path.suffix],
        companions.read_text(path),
        said.get("entry", said["op"]),
        author=f"file:{path.name}",
        style=style_of(path, said),
    )
