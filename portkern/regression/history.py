"""One cell over many runs: its times, verdicts, what changed when, and where its times step."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from portkern.errors import RecordError
from portkern.records.columns import Columns, Texts
from portkern.records.record import Environment, Evidence, Verdict
from portkern.regression import rule
from portkern.regression.reading import environment
from portkern.regression.series import Series, moved_on
from portkern.spec.backend import Missing

#: Comparable times before steps are looked for, and the fewest on either side of one.
LEAST, SIDE = 10, 3
#: Cells that are in memory together.
AT_ONCE = 500
#: What a further step must explain, in variances of the noise: with noise alone at most one history
#: in a hundred has a step (tests/test_history.py).
PENALTY = 25.0


class SeriesPoint(NamedTuple):
    """A cell in one run; times in microseconds, None where it was not timed. ``commit`` is the
    run's; ``circumstances``: only where they are equal may times be compared."""

    run: str
    time: str
    verdict: Verdict
    evidence: Evidence
    time_us: float | None
    p20_us: float | None
    ratio: float | None
    noise: float | None
    noisy: str
    source_hash: str
    circumstances: tuple[str, ...]
    environment: Environment

    @property
    def comparable(self) -> bool:
        return self.p20_us is not None and self.p20_us > 0 and not self.noisy


@dataclass(frozen=True)
class TimeStep:
    """A step of a cell's times, which from ``run`` on differ by ``moved``; +0.2 is 20 % more."""

    run: str
    moved: float

    def __str__(self) -> str:
        return f"{abs(self.moved):.0%} {'slower' if self.moved > 0 else 'faster'} from here on"


@dataclass(frozen=True)
class CellHistory:
    """``points``: the oldest first, one for each run that has the cell."""

    series: Series
    points: Sequence[SeriesPoint]

    @cached_property
    def alike(self) -> Sequence[SeriesPoint]:
        """The points whose times may be compared with the newest one's."""
        timed = [point for point in self.points if point.comparable]
        return [point for point in timed if point.circumstances == timed[-1].circumstances]

    @cached_property
    def times(self) -> Sequence[float]:
        return [point.p20_us for point in self.alike if point.p20_us is not None]

    @cached_property
    def ratios(self) -> Sequence[float]:
        return [point.ratio for point in self.alike if point.ratio]

    @cached_property
    def events(self) -> Sequence[tuple[str, str]]:
        """The changes by run and in order: verdicts, machines, sources, tools."""
        found: list[tuple[str, str]] = []
        for old, new in itertools.pairwise(self.points):
            if (old.verdict, old.evidence) != (new.verdict, new.evidence):
                found.append((new.run, f"{_standing(old)} → {_standing(new)}"))
            if old.environment.machine != new.environment.machine:
                one, two = old.environment.machine, new.environment.machine
                found.append((new.run, f"machine {one} → {two}"))
            for what in moved_on(
                old.source_hash, old.environment, new.source_hash, new.environment
            ):
                found.append((new.run, what if "→" in what else f"{what} changed"))
        return found

    def steps(self) -> Sequence[TimeStep] | Missing:
        """The steps in the times or the ratios, whichever are steadier."""
        if len(self.alike) < LEAST:
            return ()
        points = self.alike
        logs = [math.log(time) for time in self.times]
        against = [math.log(ratio) for ratio in self.ratios]
        if len(against) == len(logs) and _noise(against) < _noise(logs):
            logs = against
        starts = change_points(logs)
        if isinstance(starts, Missing):
            return starts
        edges = [0, *starts, len(logs)]
        middles = [statistics.median(logs[a:b]) for a, b in itertools.pairwise(edges)]
        return [
            TimeStep(points[start].run, math.expm1(after - before))
            for start, before, after in zip(starts, middles, middles[1:], strict=False)
            if abs(after - before) >= rule.floor(_noise(logs))
        ]


def deviation(values: Sequence[float]) -> float | None:
    """Relative, from run to run; None of fewer than two."""
    logs = [math.log(value) for value in values]
    return math.expm1(math.sqrt(rule.variance(logs))) if len(logs) > 1 else None


def change_points(logs: Sequence[float]) -> list[int] | Missing:
    """The places at which another level begins: PELT with squared deviations."""
    try:
        import ruptures
    except ImportError:
        return Missing("change points need ruptures", "pip install 'portkern[nightly]'")
    import numpy as np

    width = max(_noise(logs), 1e-3)
    scaled = np.asarray(logs, dtype=float).reshape(-1, 1) / width
    # Of a linear kernel the cost is that of squared deviations; ruptures.Pelt is Python's
    search = ruptures.KernelCPD(kernel="linear", min_size=SIDE)
    found = search.fit(scaled).predict(pen=PENALTY)
    return [int(place) for place in found[:-1]]


def _noise(logs: Sequence[float]) -> float:
    """The deviation of neighbours, in which a step counts once: as large as half of them are
    below. Of few values that may be far too small, so that it is at least a third of all."""
    differences = [abs(b - a) for a, b in itertools.pairwise(logs)]
    if not differences:
        return 0.0
    robust = statistics.median(differences) / (0.6745 * math.sqrt(2))
    return max(robust, statistics.pstdev(logs) / 3)


def _standing(point: SeriesPoint) -> str:
    return f"{point.verdict} ({point.evidence})"


def histories(columns: Columns, runs: Sequence[str]) -> Iterator[CellHistory]:
    """The history of each cell in ``columns``, whose files are those of ``runs``, one after the
    other. Raises RecordError."""
    texts = Texts()
    known = _environments(columns)
    columns.sql(
        "CREATE TABLE runs AS SELECT file, max(time) AS ended FROM lines GROUP BY file ORDER BY 1"
    )
    cell = ", ".join(Series._fields)
    values = (
        "file, time, verdict, evidence, median_us, p20_us, p20_us / nullif(eager_p20_us, 0), "
        "noise, CASE WHEN carried = '' THEN noisy ELSE 'carried over from ' || carried END, "
        "source_hash, venue, method, "
        "hash(machine, device, driver, toolchain, harness_version)"
    )
    cursor = columns.connection.execute(
        f"SELECT {cell}, list(row({values}) ORDER BY ended, file, line) "
        f"FROM lines JOIN runs USING (file) GROUP BY {cell} ORDER BY {cell}"
    )
    while rows := cursor.fetchmany(AT_ONCE):
        for *names, lines in rows:
            newest = {line[0]: line for line in lines}  # of each run the last
            points = [_point(runs, known, texts, line) for line in newest.values()]
            yield CellHistory(Series(*(texts[name] for name in names)), points)


def _environments(columns: Columns) -> Mapping[int, Environment]:
    fields = "machine, device, driver, toolchain, harness_version"
    rows = columns.sql(f"SELECT DISTINCT hash({fields}), {fields} FROM lines")
    found: dict[int, Environment] = {}
    for number, *said in rows:
        found[int(str(number))] = environment(*map(str, said))
    return found


def _point(
    runs: Sequence[str], known: Mapping[int, Environment], texts: Texts, line: Sequence[object]
) -> SeriesPoint:
    file, time, verdict, evidence, *numbers, noisy, source, venue, method, where = line
    place = known.get(int(str(where)))
    if place is None:
        raise RecordError(f"{runs[int(str(file))]}: a record without its environment")
    time_us, p20_us, ratio, noise = (n if isinstance(n, float) else None for n in numbers)
    finite = ratio is not None and math.isfinite(ratio) and ratio > 0
    return SeriesPoint(
        runs[int(str(file))],
        str(time),
        Verdict(str(verdict)),
        Evidence[str(evidence).upper()],
        time_us,
        p20_us,
        ratio if finite else None,
        noise,
        texts[str(noisy)],
        str(source),
        (place.machine, place.device, texts[str(venue)], texts[str(method)]),
        place,
    )
