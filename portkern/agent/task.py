"""The task of an author: one op to write for one target in one backend's language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Literal

from portkern.agent import guide
from portkern.agent.constraints import Constraints
from portkern.errors import ConfigError, no_such
from portkern.guard import Library, TorchOps
from portkern.spec import catalogue
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate
from portkern.spec.companions import Companions
from portkern.spec.op import Op, Workload
from portkern.spec.target import Target

#: Where kernels are judged: on the target, on a model of it that executes objects, in an
#: emulator of it, or no further than their build.
Ends = Literal["hardware", "object", "emulator", "build"]


@dataclass(frozen=True)
class Task:
    """``workloads`` are those that kernels are evaluated on and their authors may know, by set.
    ``torch_ops``: whether libraries may do the work, ``library``: whether portkern's own headers
    may. ``start`` is the kernel that the search begins
    with, in place of the catalogue's; what is built with it is built with all others. ``ends`` says
    where kernels are judged, ``checkers`` what looks on there, ``unseen`` whether the best ones
    meet sizes that no author was told.
    """

    op: Op
    target: Target
    backend: Backend
    language: str
    dtype: str = "float32"
    workloads: Mapping[str, tuple[Workload, ...]] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    torch_ops: TorchOps = "forbid"
    library: Library = "allow"
    start: Candidate | None = None
    ends: Ends = "hardware"
    checkers: tuple[str, ...] = ()
    unseen: bool = True
    #: Kernels that do the same in other ways, for the author that turns knobs.
    others: tuple[Candidate, ...] = ()

    def __post_init__(self) -> None:
        known = self.backend.languages_on(self.target)
        if self.language not in known:
            raise no_such("language", self.language, known)
        if self.start is not None:
            _startable(self.start, self)

    @property
    def scored(self) -> str:
        """The set whose workloads are timed for the score: the last one."""
        return list(self.workloads)[-1]

    @property
    def suffix(self) -> str:
        """The suffix of source files in the task's language, with its dot."""
        known = self.backend.languages
        return next((s for s, name in known.items() if name == self.language), next(iter(known)))

    @cached_property
    def guide(self) -> str:
        """The backend's guide for those who write in the task's language."""
        package = type(self.backend).__module__
        file = files(package) / "guide.md"
        if not file.is_file():
            return ""
        text = file.read_text(encoding="utf-8")
        library = self.library == "allow"
        return guide.chosen(text, language=self.language, ends=self.ends, library=library)

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Features of the target that a kernel cannot use where it is judged."""
        return self.backend.unmodelled if self.ends == "emulator" else ()

    def candidate(self, source: str, author: str, parents: tuple[str, ...] = ()) -> Candidate:
        """A candidate of this source, in the form that the source has, if that can be called.
        ``parents`` are digests."""
        made = Candidate(
            self.op.name,
            self.backend.name,
            self.language,
            source,
            entry=self.op.name,
            author=author,
            parents=parents,
            style=self.backend.style,
            companions=self.start.companions if self.start else Companions(),
        )
        return catalogue.in_its_form(made, self.op.signature, self.backend)


def _startable(start: Candidate, task: Task) -> None:
    """Raises ConfigError where what is written after it could not be called like it."""
    called, expected = (start.entry, start.style), (task.op.name, task.backend.style)
    if called != expected:
        raise ConfigError(
            f"Got a kernel to start from with entry={called[0]} style={called[1]}, expected "
            f"entry={expected[0]} style={expected[1]}, as all kernels of a run have; rename it"
        )
