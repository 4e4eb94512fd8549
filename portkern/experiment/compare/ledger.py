"""The ledger of a sweep: what it may spend and has spent, on disk before each request is sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, Literal

from portkern.agent.budget import GenerationBudget, Held, Meter, Spent
from portkern.errors import BudgetSpent, ConfigError, StorageError
from portkern.records.jsonl import JsonLine, LineFile

#: The ledger's file in a sweep's folder.
FILE: Final = "ledger.jsonl"


class LedgerEntry(JsonLine):
    """Line of ``ledger.jsonl``: what was put aside for request ``number``, or, once it is
    ``settled``, what it took."""

    SCHEMA: ClassVar[int] = 1

    schema_: Literal[1] = 1
    number: int
    tokens: int
    usd: float | None
    settled: bool = False


class Ledger(Meter):
    """The meter that all requests of a sweep are charged to, by every command that goes on with it.

    A process that is killed cannot say whether a request that was out has been charged, so the most
    that it can have been stays spent: ``lost`` counts such requests. ``refused`` says why nothing
    more can be asked. Raises RecordError for a file that is not portkern's.
    """

    def __init__(self, budget: GenerationBudget, path: Path) -> None:
        self._file = LineFile(path, LedgerEntry.from_json)
        entries = {entry.number: entry for entry in self._file.read()[0]}
        self.lost = sum(not entry.settled for entry in entries.values())
        self._next = max(entries, default=-1) + 1
        self.refused = ""
        priced = [entry.usd for entry in entries.values() if entry.usd is not None]
        super().__init__(
            budget,
            spent=Spent(
                tokens=sum(entry.tokens for entry in entries.values()),
                usd=sum(priced) if len(priced) == len(entries) else None,
            ),
        )

    def reserve(self, *, tokens: int = 0, usd: float | None = 0.0) -> Held:
        """Reserves as a meter does. Raises StorageError too."""
        try:
            held = super().reserve(tokens=tokens, usd=usd)
        except BudgetSpent as error:
            if not self.out:  # otherwise what others do not need may still be enough
                self.refused = str(error)
            raise
        number, self._next = self._next, self._next + 1
        try:
            self._file.append([LedgerEntry(number=number, tokens=tokens, usd=usd)])
        except StorageError:
            held.settle(tokens=0, usd=0.0)
            raise
        return Held(self._closing(number, held), tokens, usd)

    def charge(self, *, tokens: int = 0, usd: float | None = 0.0) -> None:
        """Does nothing: what a sample's own log holds was put aside here before it was asked."""

    @property
    def ended(self) -> str:
        """Why it allows no further request, empty while it does."""
        return self.refused or self.exhausted

    def _closing(self, number: int, held: Held) -> Callable[[int, float | None], None]:
        def close(tokens: int, usd: float | None) -> None:
            held.settle(tokens=tokens, usd=usd)
            self._file.append([LedgerEntry(number=number, tokens=tokens, usd=usd, settled=True)])

        return close


def budget_of(options: object) -> GenerationBudget:
    """The budget of a sweep. Raises ConfigError for anything but ``usd`` and ``tokens``."""
    if not isinstance(options, dict) or set(options) - {"usd", "tokens"}:
        raise ConfigError(
            f"Got budget={options}, expected {{usd: 5.0, tokens: 2000000}}, null being no limit; "
            "samples are counted by n="
        )
    return GenerationBudget.of(options)
