"""Results of earlier runs that stand: question, source and machine code are the same, on the same
device with the same driver. Such a cell is not timed again, but on a stated cycle."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from portkern.cells.selection import Cell
from portkern.cells.to_record import environment_of
from portkern.evaluator.build import Built
from portkern.records.record import Record, Verdict
from portkern.spec.backend import Artifact, Venue
from portkern.toolchain import machine_code


@dataclass(frozen=True)
class Carried:
    """``known``: timed records of the last ``cycle`` runs, by their questions; ``number``: of the
    run, by which each night another share of the cells is due."""

    known: dict[str, Record]
    cycle: int
    number: int

    @classmethod
    def of(cls, runs: Iterable[Sequence[Record]], cycle: int, number: int) -> Carried:
        """``runs``: the newest first."""
        known: dict[str, Record] = {}
        for records in runs:
            for record in records:
                if record.asked and record.comparable and not record.carried:
                    known.setdefault(record.asked, record)
        return cls(known, cycle, number)

    def record(self, run: str, cell: Cell, built: Built, rounds: int) -> Record | None:
        """As a record of this run; None where the cell is to be run."""
        one = self.known.get(cell.asked)
        if one is None or self._due(cell) or not isinstance(built.outcome, Artifact):
            return None
        now, code = environment_of(cell, ran=True), machine_code.of(built.outcome.path)
        venue = cell.venues.best
        same = (
            one.verdict is Verdict.PASSED
            and code is not None
            and code.digest == one.code
            and isinstance(venue, Venue)
            and str(venue) == one.venue
            and one.timing is not None
            and one.timing.rounds == rounds
            and (now.machine, now.device, now.driver, now.harness_version)
            == (
                one.environment.machine,
                one.environment.device,
                one.environment.driver,
                one.environment.harness_version,
            )
            and now.toolchain.get("torch") == one.environment.toolchain.get("torch")
        )
        if not same:
            return None
        said = {
            "run": run,
            "id": secrets.token_hex(8),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "key": cell.key,
            "environment": now,
            "seconds": {},
            "carried": one.run,
        }
        return one.model_copy(update=said)

    def _due(self, cell: Cell) -> bool:
        return zlib.crc32(cell.asked.encode()) % self.cycle == self.number % self.cycle
