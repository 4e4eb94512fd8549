"""The log of a run's attempts, and what strategies and prompts want to know of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from portkern.agent.attempt import Attempt
from portkern.errors import ConfigError
from portkern.records.jsonl import LineFile

#: The attempts of a run, a file in its folder.
FILE = "attempts.jsonl"


class Log:
    """Attempts in the order in which they were committed; in memory without a ``path``.

    What the file holds already was left by an interrupted run: :meth:`left` has it, and it enters
    the log when it is added again. Raises RecordError.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file = LineFile(path, Attempt.from_json) if path else None
        self._known: dict[str, Attempt] = {}
        self._digests: dict[str, str] = {}
        self._left: dict[int, list[Attempt]] = defaultdict(list)
        for attempt in self._file.read()[0] if self._file else ():
            self._left[attempt.slot].append(attempt)

    @classmethod
    def read(cls, path: Path) -> Log:
        """Reads the attempts that a run left, as its log. Raises RecordError."""
        log = cls(path)
        for attempts in list(log._left.values()):
            log._enter(attempts)
        return log

    @property
    def left_count(self) -> int:
        """How many attempts an earlier session left."""
        return sum(map(len, self._left.values()))

    def left(self, slot: int) -> list[Attempt]:
        """The slot's attempts of an earlier session; none when it was not committed whole."""
        attempts = self._left.get(slot, [])
        return attempts if attempts and len(attempts) == attempts[0].siblings else []

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Adds attempts, which are on disk when this returns. Raises StorageError, and
        ConfigError when the file holds another attempt of this name: then something that decides
        the run has changed."""
        held = {
            attempt.id: attempt for some in attempts for attempt in self._left.get(some.slot, ())
        }
        for attempt in attempts:
            if attempt.id in held and held[attempt.id].digest != attempt.digest:
                raise ConfigError(
                    f"Attempt {attempt.id} is not the one of this run's log; use fresh=true "
                    "or another run=NAME: something that decides the run has changed"
                )
        new = [attempt for attempt in attempts if attempt.id not in held]
        if self._file and new:
            self._file.append(new)
        self._enter(attempts)

    def _enter(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self._known[attempt.id] = attempt
            if attempt.digest:
                self._digests.setdefault(attempt.digest, attempt.id)

    def snapshot(self) -> Log:
        """A copy of the log as it is now: what is added later does not show."""
        copy = Log()
        copy._known, copy._digests = dict(self._known), dict(self._digests)
        return copy

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> Attempt:
        return self._known[name]

    def some(self, names: Iterable[str]) -> list[Attempt]:
        """The attempts of these names, as far as the log has them."""
        return [self._known[name] for name in names if name in self._known]

    def by_digest(self, digest: str) -> Attempt | None:
        """The first attempt with this candidate."""
        return self._known.get(self._digests.get(digest, ""))

    @property
    def correct(self) -> list[Attempt]:
        return [attempt for attempt in self if attempt.correct]

    def best(
        self, k: int = 1, among: Callable[[Attempt], object] = lambda _: True
    ) -> list[Attempt]:
        """The k fastest correct attempts, the fastest first; of equals the older."""
        return sorted(filter(among, self.correct), key=lambda attempt: -attempt.score)[:k]

    def children(self, name: str) -> list[Attempt]:
        return [attempt for attempt in self if name in attempt.parents]

    def ancestors(self, name: str) -> list[Attempt]:
        """The attempts from the oldest ancestor to ``name`` itself, along first parents."""
        line: list[Attempt] = []
        while name in self._known:
            line.append(self._known[name])
            name = (*line[-1].parents, "")[0]
        return line[::-1]

    def curve(self) -> list[float]:
        """The best score so far, after each attempt."""
        curve: list[float] = []
        for attempt in self:
            curve.append(max(attempt.score, curve[-1] if curve else 0.0))
        return curve
