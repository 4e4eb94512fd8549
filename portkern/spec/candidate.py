"""A kernel source proposed for one operation, addressed by its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from portkern.errors import ConfigError, no_such
from portkern.spec.companions import Companions

#: ``#define BLOCK 256  // knob: 128 256 512`` in C, ``BLOCK = 256  # knob: 128 256`` in Python.
_KNOB = re.compile(
    r"^(?P<head>(?:#define[ \t]+)?(?P<name>[A-Z][A-Z0-9_]*)(?:[ \t]*=)?[ \t]+)"
    r"(?P<value>-?[0-9]{1,18})"
    r"(?P<tail>[ \t]*(?://|\#)[ \t]*knob:(?P<choices>(?:[ \t]+-?[0-9]{1,18})+)[ \t]*)$",
    re.MULTILINE,
)

Style = Literal["dps", "return", "module"]


@dataclass(frozen=True)
class Knob:
    """A constant of the source that may be turned: its value now, and the values worth trying."""

    name: str
    value: int
    choices: tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """``entry`` is the function to call (the op's name unless said otherwise).

    ``style`` is ``dps`` (the evaluator's poisoned outputs are passed in), ``return``, or
    ``module``: ``entry`` is a class of torch.nn, whose parameters are those of the op's inputs that
    stand for its own (:mod:`portkern.spec.module_form`).
    ``variant`` tells kernels apart that are for the same op in the same language. ``headers``:
    portkern's own that it was evaluated with, by name, where they are known to differ from today's.
    """

    op: str
    backend: str
    language: str
    source: str
    entry: str
    author: str = "catalogue"
    parents: tuple[str, ...] = ()
    style: Style = "dps"
    companions: Companions = field(default_factory=Companions)
    variant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def digest(self) -> str:
        """Identity: what is built and called counts, who wrote it does not."""
        h = hashlib.sha256()
        beside = self.companions.parts if self.companions else ()
        for part in (self.op, self.language, self.entry, self.style, self.source, *beside):
            h.update(len(part).to_bytes(8, "little") + part.encode())
        return h.hexdigest()[:16]

    @cached_property
    def family(self) -> str:
        """Equal for all settings of one kernel."""
        blank = _KNOB.sub(lambda match: f"{match['head']}?{match['tail']}", self.source)
        return replace(self, source=blank).digest

    @cached_property
    def knobs(self) -> dict[str, Knob]:
        knobs = {}
        for match in _KNOB.finditer(self.source):
            choices = tuple(int(text) for text in match["choices"].split())
            knobs[match["name"]] = Knob(match["name"], int(match["value"]), choices)
        return knobs

    def turn(self, settings: Mapping[str, int]) -> Candidate:
        """The same kernel with other knob values; raises ConfigError for one it does not offer."""
        for name, value in settings.items():
            if name not in self.knobs:
                raise no_such("knob", name, self.knobs)
            if value not in self.knobs[name].choices:
                offered = " ".join(map(str, self.knobs[name].choices))
                raise ConfigError(
                    f"Knob {name} of {self.op!r} cannot be {value}; offered: {offered}"
                )

        def rewrite(match: re.Match[str]) -> str:
            value = settings.get(match["name"], int(match["value"]))
            return f"{match['head']}{value}{match['tail']}"

        source = _KNOB.sub(rewrite, self.source)
        return replace(self, source=source, parents=(self.digest,))
