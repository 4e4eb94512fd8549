"""Results of earlier runs that stand: question, source and machine code are the same, on the same
device with the same driver. Such a cell is not timed again, but on a stated cycle."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from portkern.cells.selection import SelectedCell
from portkern.cells.to_record import environment_of
from portkern.evaluator.build import Built
from portkern.records.record import Environment, Record, Verdict
from portkern.spec.backend import Artifact, Venue
from portkern.toolchain import machine_code


@dataclass(frozen=True)
class CarriedCells:
    """``known``: the newest records of the last ``cycle`` runs that have a time or a bad verdict,
    by their questions; ``number``: of the run, by which each night another share of the cells is
    due."""

    known: dict[str, Record]
    cycle: int
    number: int

    @classmethod
    def of(cls, runs: Iterable[Sequence[Record]], cycle: int, number: int) -> CarriedCells:
        """``runs``: the newest first."""
        known: dict[str, Record] = {}
        for records in runs:
            for record in reversed(records):
                told = record.comparable or record.verdict.bad  # what failed since stands for none
                if record.asked and told and not record.carried:
                    known.setdefault(record.asked, record)
        return cls(known, cycle, number)

    def record(self, run: str, cell: SelectedCell, built: Built, rounds: int) -> Record | None:
        """The earlier record as one of this run; None where the cell is to be run."""
        one = self.known.get(cell.asked)
        if one is None or self._due(cell) or not isinstance(built.outcome, Artifact):
            return None
        now, code = environment_of(cell, ran=True), machine_code.of(built.outcome.path)
        venue = cell.venues.best
        same = (
            one.verdict is Verdict.PASSED
            and bool(one.code)
            # What is compiled as it is loaded is known later; equal tools make the same of it.
            and (code.digest == one.code if code else one.key == cell.key)
            and isinstance(venue, Venue)
            and str(venue) == one.venue
            and one.timing is not None
            and one.timing.rounds == rounds
            and same_place(one.environment, now)
        )
        return stands(one, run, cell) if same else None

    def _due(self, cell: SelectedCell) -> bool:
        return zlib.crc32(cell.asked.encode()) % self.cycle == self.number % self.cycle


def same_place(one: Environment, now: Environment) -> bool:
    """Whether times of the two may stand for each other: machine, device, driver, portkern and
    torch."""
    if one.toolchain.get("torch") != now.toolchain.get("torch"):
        return False
    places = ((e.machine, e.device, e.driver, e.harness_version) for e in (one, now))
    return len(set(places)) == 1


def stands(one: Record, run: str, cell: SelectedCell) -> Record:
    """An earlier record as one of this run."""
    said = {
        "run": run,
        "id": secrets.token_hex(8),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "key": cell.key,
        "environment": environment_of(cell, ran=True),
        "seconds": {},
        "carried": one.carried or one.run,
    }
    return one.model_copy(update=said)
