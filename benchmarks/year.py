"""A year of nights made of real records, with events that are known: what the gate says of each on
its first possible night, what it says where nothing happened, and what it forgets. Writes
results/year.json.

.venv/bin/python -m benchmarks.year [seed=1] [nights=365] [out=NAME.json]

Cells are of reports/records: C++ and Numba on a CPU, CUDA, HIP, Triton and OpenCL on an H100, and
what is emulated. A night has the real record of each with another time: noise from run to run as
deviations in docs/nightly.md are (0.3 to 1.5 % on the GPU, 1 to 4 % on the CPU), and of a race in a
hundred a time that is a third more. Suspects are timed again as ``matrix`` does. Events are drawn
with the seed; several of one toolchain do not overlap, busy nights and other machines come
whenever. A slowdown is possible to see from the night on which it is half more than what the cell
says that it would have seen, which is where nine of ten are found.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks import _script
from portkern.records.record import Evidence, Record, RecordFile, Verdict
from portkern.regression import rule
from portkern.regression.cell_change import Cause, CellChange
from portkern.regression.controls import CALIBRATION
from portkern.regression.decisions import Accepted, NightDecisions, Quarantined
from portkern.regression.judgement import Judgement
from portkern.regression.nights import Night
from portkern.regression.reference import IN_A_ROW, References
from portkern.regression.rule import ChangeKind
from portkern.regression.series import Series

RECORDS = Path(__file__).parents[1] / "reports" / "records"
#: The targets of each file that are taken.
CHOSEN = {"cpu-only.jsonl.gz": ("x86_64_avx512", "gfx942"), "h100.jsonl.gz": ("h100",)}
OPS = ("add", "cumsum", "gelu", "layernorm", "matmul", "relu", "softmax", "sum")
MOST_SIZES = 2
BEGIN = datetime(2026, 1, 1, 3, tzinfo=UTC)
#: Nights before anything happens, and between events of one toolchain.
QUIET, APART = 14, 4
OUTLIER, OUTLIERS = 1.33, 0.01
POSSIBLE = 1.5
#: How often each kind happens.
KINDS = {
    "driver worse": 2,
    "kernel slower": 20,
    "unrecorded": 3,
    "drift": 5,
    "toolchain worse": 7,
    "toolchain better": 4,
    "evaluator": 2,
    "lost backend": 6,
    "failure": 6,
    "quarantine": 3,
    "killed run": 4,
    "one-off run": 3,
    "busy night": 8,
    "other machine": 4,
    "framework": 3,
}
_ALARMS = (ChangeKind.SLOWER, ChangeKind.NEW_FAILURE, ChangeKind.LOST, ChangeKind.STILL_FAILING)


def tool(cell: Series) -> str:
    return f"{cell.backend}/{cell.language}"


@dataclass
class Event:
    """Something that happens to ``cells`` from night ``start`` until night ``end``, on which it is
    over."""

    kind: str
    start: int
    end: int
    cells: frozenset[Series]
    cause: Cause | None
    factor: float = 1.0
    eager: float = 1.0
    accepted: int = 0
    told: int | None = None
    possible: int | None = None
    said: set[Series] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    forgotten: int = 0
    mended: bool | None = None

    def active(self, night: int) -> bool:
        return self.start <= night < self.end

    def slower(self, night: int) -> float:
        """The factor by which a kernel's time is multiplied."""
        if not self.active(night):
            return 1.0
        if self.kind == "drift":
            return self.factor ** min(night - self.start + 1, 20)
        return self.factor

    def felt(self, night: int) -> bool:
        """Whether what is said of its cells may be of it; where nobody goes back, until it is
        accepted, or the reference."""
        last = self.accepted or self.end
        if self.factor < 1:
            last = self.start + IN_A_ROW
        return self.start <= night <= last

    @property
    def label(self) -> str:
        first = min(self.cells)
        of = tool(first) if len(self.cells) > MOST_SIZES else f"{tool(first)} {first.op}"
        return f"{self.kind}, {of}, x{self.factor:.2f}, nights {self.start} to {self.end}"


class Year:
    def __init__(self, seed: int, nights: int) -> None:
        self.nights = nights
        self.random = random.Random(seed)
        self.cells = {Series.of(record): record for record in _real()}
        self.calibrations = [_calibration(self.cells, which) for which in _CALIBRATED]
        self.deviation = {
            cell: self.random.uniform(0.003, 0.015)
            if cell.target == "h100"
            else self.random.uniform(0.01, 0.04)
            for cell in self.cells
        }
        self.tools = sorted({tool(one) for one, r in self.cells.items() if r.timing})
        self.events = sorted(self._drawn(), key=lambda one: one.start)
        self.entries: list[Accepted] = []
        self.quarantines: list[Quarantined] = []
        self.references = References(NightDecisions())
        self.judged, self.false = 0, []

    # ---- what happens

    def _drawn(self) -> Iterator[Event]:
        busy: dict[str, list[tuple[int, int]]] = {one: [] for one in self.tools}
        for kind, count in KINDS.items():
            for _ in range(count):
                yield self._one(kind, busy)

    def _one(self, kind: str, busy: Mapping[str, list[tuple[int, int]]]) -> Event:
        draw = self.random
        if kind in ("killed run", "one-off run", "busy night"):
            start = self._night(1)
            return Event(kind, start, start + 1, self._whole(kind), _CAUSES[kind])
        if kind == "framework":
            start = self._night(10)
            cells = frozenset(one for one, record in self.cells.items() if record.timing)
            event = Event(kind, start, self.nights, cells, Cause.METHOD)
            event.eager = math.exp(draw.choice((-1, 1)) * draw.uniform(0.08, 0.3))
            return event
        if kind == "other machine":
            start = self._night(6)
            return Event(kind, start, start + 5, self._of_machine("x86_64_avx512"), Cause.MACHINE)
        length = draw.randint(8, 16) + (20 if kind == "drift" else 0)
        for _ in range(10_000):
            mine, start = draw.choice(self.tools), self._night(length)
            if kind == "driver worse":
                mine = "cuda/cuda"
            others = self.tools if kind == "driver worse" else [mine]
            spans = [span for one in others if one == mine or self._gpu(one) for span in busy[one]]
            if all(start > last + APART or start + length < first - APART for first, last in spans):
                break
        else:
            raise SystemExit(f"no room for {kind}: fewer events or more nights")
        for name in self.tools if kind == "driver worse" else [mine]:
            if kind != "driver worse" or self._gpu(name):
                busy[name].append((start, start + length))
        event = Event(kind, start, start + length, self._of(kind, mine), _CAUSES[kind])
        factors = {"kernel slower": (1.05, 1.5), "toolchain worse": (1.1, 3.0)}
        factors |= {"driver worse": (1.08, 1.3), "evaluator": (1.1, 1.3)}
        factors |= {
            "unrecorded": (1.05, 1.5),
            "drift": (1.02, 1.02),
            "toolchain better": (0.7, 0.9),
        }
        event.factor = draw.uniform(*factors.get(kind, (1.0, 1.0)))
        if kind in ("toolchain worse", "driver worse", "evaluator", "toolchain better"):
            event.end = self.nights  # nobody goes back
        if kind in ("toolchain worse", "driver worse", "evaluator"):
            event.accepted = event.start + draw.randint(4, 7)
        return event

    def _gpu(self, name: str) -> bool:
        return any(tool(one) == name and one.target == "h100" for one in self.cells)

    def _night(self, length: int) -> int:
        return self.random.randrange(QUIET, self.nights - length - 2)

    def _whole(self, kind: str) -> frozenset[Series]:
        machine = self.random.choice(("x86_64_avx512", "h100"))
        if kind == "busy night":
            return self._of_machine(machine)
        several = self.random.sample(sorted(self.cells), len(self.cells) // 2)
        return frozenset(several)

    def _of_machine(self, target: str) -> frozenset[Series]:
        return frozenset(one for one, r in self.cells.items() if one.target == target and r.timing)

    def _of(self, kind: str, mine: str) -> frozenset[Series]:
        ours = {one for one, r in self.cells.items() if tool(one) == mine and r.timing}
        if kind == "driver worse":
            return self._of_machine("h100")
        if kind in ("kernel slower", "unrecorded", "drift", "failure", "quarantine"):
            op = self.random.choice(sorted({one.op for one in ours}))
            return frozenset(one for one in ours if one.op == op)
        return frozenset(ours)

    # ---- a night

    def records(self, night: int, seed: int) -> list[Record]:
        """All that the night's run has."""
        draw = random.Random(f"{night} {seed}")
        active = [one for one in self.events if one.active(night)]
        past = [one for one in self.events if one.end <= night and one.cause is Cause.REGRESSION]
        pace = self._pace(night, draw)
        found = []
        for cell, real in self.cells.items():
            mine = [one for one in active if cell in one.cells]
            if any(one.kind in ("killed run", "one-off run") for one in mine):
                continue
            record = self._changed(cell, real, night, mine, past)
            found.append(self._timed(cell, record, night, pace.get(cell.target, 1.0), draw))
        return found

    def _pace(self, night: int, draw: random.Random) -> dict[str, float]:
        """The factors by which a busy machine is slower, each named by one of its targets."""
        busy = (one for one in self.events if one.kind == "busy night" and one.active(night))
        pace: dict[str, float] = {}
        for one in busy:
            where = min(one.cells).target
            pace[where] = pace.get(where, 1.0) * draw.uniform(1.25, 2.0)
        return pace

    def calibrated(self, night: int) -> list[Record]:
        """Two races of the calibration kernel of each machine, one of which nothing but the
        machine, its driver and its toolchains can change."""
        pace, draw = self._pace(night, random.Random(f"{night} 0")), random.Random(f"{night} fixed")
        found = []
        for cell, real in self.calibrations:
            mine = [one for one in self.events if one.active(night) and cell in one.cells]
            if any(one.kind == "killed run" for one in mine):
                continue
            around = [one for one in mine if one.kind in _AROUND]
            record = self._changed(cell, real, night, around, ())
            for _ in range(2):
                found.append(self._timed(cell, record, night, pace.get(cell.target, 1.0), draw))
        return found

    def _changed(
        self, cell: Series, real: Record, night: int, mine: Sequence[Event], past: Sequence[Event]
    ) -> Record:
        """The record with another source, toolchain, driver, evaluator, verdict or machine."""
        at = (BEGIN + timedelta(days=night)).isoformat(timespec="seconds")
        mended = sum(cell in one.cells for one in past)
        changes: dict[str, Any] = {"time": at, "run": f"night-{night:03}", "id": f"{night}"}
        source, key, place = real.source_hash + "+" * mended, real.key, real.environment
        torch = sum(one.kind == "framework" for one in mine)
        tools = {**place.toolchain, "torch": f"2.{torch}"}
        place = place.model_copy(update={"toolchain": tools})
        for one in mine:
            if one.cause is Cause.REGRESSION and one.kind != "other machine":
                source += f"-{one.start}" + (f".{night}" if one.kind == "drift" else "")
            if one.kind.startswith("toolchain"):
                tools = {**place.toolchain, tool(cell): f"{one.start}"}
                place = place.model_copy(update={"toolchain": tools})
            if one.kind == "driver worse":
                place = place.model_copy(update={"driver": f"{600 + one.start}"})
            if one.kind == "evaluator":
                place = place.model_copy(update={"harness_version": f"0.{one.start}"})
                key += f"-{one.start}"
            if one.kind == "other machine":
                machine = {"machine": "Linux x86_64, another processor", "device": "another"}
                place = place.model_copy(update=machine)
            if one.kind in ("failure", "quarantine"):
                changes |= _without_time(Verdict.WRONG, Evidence.BUILT, "12 elements are off")
            if one.kind == "lost backend":
                changes |= _without_time(Verdict.UNAVAILABLE, Evidence.NONE, "it is not installed")
        changes |= {"source_hash": source, "key": key, "environment": place}
        return real.model_copy(update=changes)

    def _timed(
        self, cell: Series, record: Record, night: int, machine: float, draw: random.Random
    ) -> Record:
        if record.timing is None:
            return record
        wide = self.deviation[cell] * (3 if machine != 1 else 1)
        mine = [one for one in self.events if cell in one.cells and one.active(night)]
        if record.variant == CALIBRATION:
            mine = [one for one in mine if one.kind == "driver worse"]
        slower = math.prod(one.slower(night) for one in mine)
        eager = math.prod(one.eager for one in mine)

        def noise() -> float:
            outlier = OUTLIER if draw.random() < OUTLIERS else 1.0
            return machine * math.exp(draw.gauss(0, wide)) * outlier

        timing = record.timing.model_copy(
            update={"p20_us": record.timing.p20_us * slower * noise(), "noisy": ""}
        )
        baselines = {
            name: one.model_copy(update={"p20_us": one.p20_us * eager * noise()})
            for name, one in record.baselines.items()
        }
        return record.model_copy(update={"timing": timing, "baselines": baselines})

    def run(self) -> None:
        """All nights, one after another."""
        for night in range(self.nights):
            self._decide(night)
            records = self.records(night, 0)
            beside = self.calibrated(night)
            one = Night.of(f"night-{night:03}", records, (), beside)
            judgement = Judgement(self.references, one)
            suspects = {said.series for said in judgement.cells if said.doubtful}
            if suspects:
                again = [r for n in (1, 2) for r in self.records(night, n)]
                again = [r for r in again if Series.of(r) in suspects]
                one = Night.of(f"night-{night:03}", records, again, beside)
                judgement = Judgement(self.references, one)
            cells = [said for said in judgement.cells if self._asked(said, night)]
            self._count(night, cells, judgement.machine)
            self.references.learn(one, judgement.learnt, one.day)

    def _asked(self, said: CellChange, night: int) -> bool:
        """A one-off run leaves out what its command line does."""
        return not any(
            one.kind == "one-off run" and one.active(night) and said.series in one.cells
            for one in self.events
        )

    def _decide(self, night: int) -> None:
        for one in self.events:
            named: dict[str, Any]
            if one.accepted == night and any(self.hidden(one, night, cell) for cell in one.cells):
                one.accepted += 1  # people accept what a night shows
            if one.accepted == night and night:
                for cell in one.cells:
                    named = {"from": f"night-{night:03}", "why": "worth it", **cell._asdict()}
                    self.entries.append(Accepted(**named))
            if one.kind == "quarantine" and one.start == night:
                last = BEGIN.date() + timedelta(days=(one.start + one.end) // 2)
                for cell in one.cells:
                    named = {"until": date.isoformat(last), "why": "known", **cell._asdict()}
                    self.quarantines.append(Quarantined(**named))
        self.references.decisions = NightDecisions(
            accepted=tuple(self.entries), quarantine=tuple(self.quarantines)
        )

    # ---- what is said of it

    def _count(self, night: int, cells: Sequence[CellChange], machine: Sequence[str]) -> None:
        said = {one.series: one for one in cells}
        self.judged += sum(one.change is not ChangeKind.INSUFFICIENT for one in cells)
        active = [one for one in self.events if one.felt(night) and one.kind != "framework"]
        explained: set[Series] = {cell for event in active for cell in event.cells}
        for one in cells:
            if (one.regressed or one.change is ChangeKind.FASTER) and one.series not in explained:
                self.false.append(f"night {night}: {one}"[:300])
        for event in self.events:
            if event.active(night):
                _CHECKS.get(event.kind, _slower)(self, event, night, said, machine)
            elif event.end <= night < event.end + IN_A_ROW and not event.accepted:
                back = [not said[cell].regressed for cell in event.said if cell in said]
                event.mended = event.mended or (all(back) if back else None)

    def hidden(self, event: Event, night: int, cell: Series) -> bool:
        """Whether the night cannot show the cell: it is not in the run, on another machine, or
        that is busy."""
        kinds = ("killed run", "one-off run", "other machine", "busy night")
        return any(
            one.kind in kinds and one.active(night) and cell in one.cells
            for one in self.events
            if one is not event
        )


_CAUSES: Mapping[str, Cause | None] = {
    "kernel slower": Cause.REGRESSION,
    "unrecorded": Cause.UNEXPLAINED,
    "drift": Cause.REGRESSION,
    "toolchain worse": Cause.TOOLCHAIN,
    "toolchain better": Cause.TOOLCHAIN,
    "driver worse": Cause.TOOLCHAIN,
    "evaluator": Cause.METHOD,
    "lost backend": Cause.TOOLCHAIN,
    "failure": Cause.REGRESSION,
    "quarantine": Cause.REGRESSION,
    "killed run": None,
    "one-off run": None,
    "busy night": Cause.MACHINE,
    "other machine": Cause.MACHINE,
}


def _slower(
    year: Year, event: Event, night: int, said: Mapping[Series, CellChange], _: Sequence[str]
) -> None:
    if not event.felt(night) or night == event.accepted:
        return
    change = ChangeKind.FASTER if event.factor < 1 else ChangeKind.SLOWER
    true = abs(math.log(event.slower(night)))
    seen = [
        one
        for cell in event.cells
        if (one := said.get(cell))
        and not year.hidden(event, night, cell)
        and (cell in event.said or true >= POSSIBLE * (rule.log_of(one.visible) or math.inf))
    ]
    if seen and event.possible is None:
        event.possible = night
    right = [one for one in seen if one.change is change and one.cause is event.cause]
    if seen and event.told is None and 2 * len(right) >= len(seen):
        event.told = night
    event.wrong += [
        f"night {night}: {one}"[:200]
        for one in seen
        if one.change is change and one.cause is not event.cause
    ]
    if change is ChangeKind.SLOWER:
        known = event.said & {one.series for one in seen}
        event.forgotten += sum(not said[cell].regressed for cell in known)
        event.said |= {one.series for one in right}


def _bad(
    year: Year, event: Event, night: int, said: Mapping[Series, CellChange], _: Sequence[str]
) -> None:
    seen = [
        said[cell] for cell in event.cells if cell in said and not year.hidden(event, night, cell)
    ]
    excused = event.kind == "quarantine" and night <= (event.start + event.end) // 2
    good = [
        one
        for one in seen
        if one.change in _ALARMS and one.cause is event.cause and one.regressed is not excused
    ]
    if seen and event.possible is None:
        event.possible = night
    if seen and event.told is None and len(good) == len(seen):
        event.told = night
    if event.told is not None:
        event.forgotten += len(seen) - len(good)
    event.said |= {one.series for one in good}


def _killed(
    year: Year, event: Event, night: int, said: Mapping[Series, CellChange], _: Sequence[str]
) -> None:
    event.possible = night
    lost = [cell in said and said[cell].change is ChangeKind.LOST for cell in event.cells]
    event.told = night if all(lost) else None


def _one_off(
    year: Year, event: Event, night: int, said: Mapping[Series, CellChange], _: Sequence[str]
) -> None:
    """Expects that nothing is said; what is said is a false alarm."""
    event.possible = event.told = night


def _busy(
    year: Year, event: Event, night: int, said: Mapping[Series, CellChange], machine: Sequence[str]
) -> None:
    event.possible = night
    place = next(iter(year.cells[cell] for cell in event.cells)).environment.machine
    if any(place in line and "busy" in line for line in machine):
        event.told = night
    for cell in event.cells:
        if cell in said and said[cell].regressed and not _open(year, event, night, cell):
            year.false.append(f"night {night}: {said[cell]}"[:300])


def _swapped(
    year: Year, event: Event, night: int, said: Mapping[Series, CellChange], _: Sequence[str]
) -> None:
    if night > event.start:
        return
    event.possible = night
    shown = [said[cell] for cell in event.cells if cell in said]
    if shown and not any(one.change is ChangeKind.LOST for one in shown):
        machine = [one for one in shown if one.cause is Cause.MACHINE]
        event.told = night if 2 * len(machine) >= len(shown) or _known(year, event) else None


def _framework(
    year: Year, event: Event, night: int, said: Mapping[Series, CellChange], machine: Sequence[str]
) -> None:
    """Expects that no machine is called busy and no kernel slower, but that eager moved; what is
    said of kernels is a false alarm."""
    seen = [said[cell] for cell in event.cells if cell in said]
    hidden = any(year.hidden(event, night, cell) for cell in event.cells)
    if night > event.start + 2 * IN_A_ROW or hidden or not seen:
        return
    if event.possible is None:
        event.possible = event.told = night
    event.wrong += [f"night {night}: {line}"[:300] for line in machine if "busy" in line]


def _known(year: Year, event: Event) -> bool:
    """Whether the other machine was there before, and has references of its own."""
    return any(one.kind == event.kind and one.start < event.start for one in year.events)


def _open(year: Year, event: Event, night: int, cell: Series) -> bool:
    others = (one for one in year.events if one is not event and one.kind != "busy night")
    return any(one.active(night) and cell in one.cells for one in others)


_CHECKS: Mapping[str, Callable[..., None]] = {
    **dict.fromkeys(("lost backend", "failure", "quarantine"), _bad),
    "killed run": _killed,
    "one-off run": _one_off,
    "busy night": _busy,
    "other machine": _swapped,
    "framework": _framework,
}


def _without_time(verdict: Verdict, evidence: Evidence, why: str) -> dict[str, Any]:
    gone = {"timing": None, "baselines": {}, "speedup": {}}
    return {"verdict": verdict, "evidence": evidence, "detail": why, "missing": why, **gone}


#: The cell of each machine that its calibration kernel is made of, and the kinds of events that are
#: around it.
_CALIBRATED = (("cpu", "c++", "x86_64_avx512"), ("cuda", "cuda", "h100"))
_AROUND = ("toolchain worse", "toolchain better", "driver worse", "other machine", "framework")


def _calibration(
    cells: Mapping[Series, Record], which: tuple[str, str, str]
) -> tuple[Series, Record]:
    """A cell and the record of a calibration kernel that is on the same device."""
    cell = next(one for one in cells if (one.backend, one.language, one.target) == which)
    fixed = {"variant": CALIBRATION, "baselines": {}, "speedup": {}, "code": "fixed"}
    return cell, cells[cell].model_copy(update=fixed)


def _real() -> Iterator[Record]:
    """Yields records of a few float32 sizes for each op and column."""
    for name, targets in CHOSEN.items():
        sizes: Counter[tuple[str, ...]] = Counter()
        for record in RecordFile(RECORDS / name).read()[0]:
            kept = record.op in OPS and record.target in targets and record.evidence
            if not kept or record.workload.dtype != "float32" or record.verdict.bad:
                continue
            column = record.op, record.backend, record.language, record.target
            sizes[column] += 1
            if sizes[column] <= MOST_SIZES:
                yield record


def summary(year: Year, seconds: float) -> dict[str, Any]:
    possible = [one for one in year.events if one.possible is not None]
    right = [one for one in possible if one.told == one.possible and not one.wrong]
    return {
        "nights": year.nights,
        "cells": len(year.cells),
        "cell_nights": year.judged,
        "events": len(year.events),
        "kinds": dict(Counter(one.kind for one in year.events)),
        "never possible": [one.label for one in year.events if one.possible is None],
        "possible": len(possible),
        "first night, right cause": len(right),
        "later or otherwise": [
            {"event": one.label, "possible": one.possible, "told": one.told, "wrong": one.wrong[:2]}
            for one in possible
            if one not in right
        ],
        "false alarms": len(year.false),
        "false alarms, %": round(100 * len(year.false) / year.judged, 3),
        "of them": year.false[:10],
        "cell-nights forgotten": sum(one.forgotten for one in year.events),
        "forgotten": [one.label for one in year.events if one.forgotten],
        "mended and told": sum(one.mended is True for one in year.events),
        "mended and not told in three nights": [
            one.label for one in year.events if one.mended is False
        ],
        "seconds": round(seconds, 1),
    }


def main() -> None:
    words = _script.words(("seed", "nights", "out"), __doc__)
    began = time.perf_counter()
    year = Year(int(words.get("seed", 1)), int(words.get("nights", 365)))
    year.run()
    said = {"seed": int(words.get("seed", 1)), **summary(year, time.perf_counter() - began)}
    _script.write(words.get("out", "year.json"), said)
    print(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
