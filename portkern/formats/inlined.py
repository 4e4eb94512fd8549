"""A kernel's text as one file: portkern's own headers in the place of their includes."""

from __future__ import annotations

import importlib.resources
import re

from portkern.formats.exported import NoSuchForm
from portkern.spec import registry

# What only the executor compiles; a kernel that leaves portkern has the other way.
_FOR_EXECUTOR = re.compile(
    r"^#ifdef SIMT_\w+[^\n]*\n.*?^#else\n(?P<others>.*?)^#endif\n", re.MULTILINE | re.DOTALL
)
_INCLUDE = re.compile(r"[ \t]*#[ \t]*include[ \t]*<(portkern/[\w.]+)>")
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b")

#: The branches of conditions that a line stands in, outermost first.
_Branches = tuple[object, ...]


def inlined(source: str, backend: str) -> str:
    """``source`` with each of portkern's headers once; again, guarded, where the one before stands
    in a branch that is not always taken. Raises NoSuchForm for a header that is not portkern's."""
    headers = _Headers(backend)
    text = headers.put_in(source, ())
    return headers.guard_repeated(text)


class _Headers:
    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.branches: dict[str, list[_Branches]] = {}

    def put_in(self, source: str, branches: _Branches) -> str:
        lines = []
        for line in source.splitlines(keepends=True):
            if condition := _CONDITION.match(line):
                branches = _after(condition[1], branches)
            include = _INCLUDE.match(line)
            lines.append(self._text(include[1], branches) if include else line)
        return "".join(lines)

    def _text(self, name: str, branches: _Branches) -> str:
        before = self.branches.setdefault(name, [])
        if any(branches[: len(others)] == others for others in before):
            return "\n"
        before.append(branches)
        body = self.put_in(_header(name, self.backend).replace("#pragma once\n", ""), branches)
        return f"{_begin(name)}{body}{_end(name)}"

    def guard_repeated(self, text: str) -> str:
        for name, places in self.branches.items():
            guard = re.sub(r"\W", "_", name).upper()
            repeated = len(places) > 1
            opened = f"#ifndef {guard}\n#define {guard}\n" if repeated else ""
            text = text.replace(_begin(name), opened)
            text = text.replace(_end(name), "#endif\n" if repeated else "")
        return text


def _after(condition: str, branches: _Branches) -> _Branches:
    if condition == "endif":
        return branches[:-1]
    outside = branches[:-1] if condition in ("elif", "else") else branches
    return (*outside, object())


def _begin(name: str) -> str:
    return f"// begin <{name}>\n"


def _end(name: str) -> str:
    return f"// end <{name}>\n"


def _header(name: str, backend: str) -> str:
    packages = [f"portkern.backends.{backend}", *registry.load(backend).shared]
    packages += ["portkern.backends.cuda"]
    for package in packages:
        include = importlib.resources.files(package) / "include"
        folders = list(include.iterdir()) if include.is_dir() else []  # such as one of Hopper's
        for folder in (include, *folders):
            if (file := folder / name).is_file():
                return _FOR_EXECUTOR.sub(r"\g<others>", file.read_text(encoding="utf-8"))
    raise NoSuchForm(f"it includes <{name}>, which is not here")
