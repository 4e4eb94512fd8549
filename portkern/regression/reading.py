"""Outcomes of cells out of columns of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from json import loads
from typing import NamedTuple

from portkern.errors import RecordError
from portkern.records.columns import Columns, Texts
from portkern.records.record import Counts, Environment, Evidence, Verdict
from portkern.regression.series import Series


class ReadTiming(NamedTuple):
    p20_us: float
    noisy: str
    method: str


class ReadOutcome(NamedTuple):
    """An outcome read from columns; ``detail`` is its first line, and of baselines there is
    eager alone."""

    time: str
    key: str
    venue: str
    source_hash: str
    verdict: Verdict
    evidence: Evidence
    detail: str
    missing: str
    environment: Environment
    timing: ReadTiming | None
    baselines: Mapping[str, ReadTiming]
    code: str = ""
    counts: Counts = Counts()
    carried: str = ""

    @property
    def comparable(self) -> bool:
        return self.timing is not None and not self.timing.noisy


_NO_BASELINES: Mapping[str, ReadTiming] = {}
_FETCHED = (
    *("file", *Series._fields, "time", "key", "venue", "source_hash", "verdict", "evidence"),
    *("detail", "missing", "p20_us", "noisy", "method", "eager_p20_us"),
    *("code", *Counts._fields, "carried"),
    *("machine", "device", "driver", "toolchain", "harness_version"),
)


def outcomes(columns: Columns) -> Iterator[tuple[int, Series, ReadOutcome]]:
    """The number of the file, the cell and the outcome of every line, in its order."""
    texts = Texts()
    environments: dict[tuple[str, ...], Environment] = {}
    cells: dict[tuple[str, ...], Series] = {}
    cursor = columns.connection.execute(
        f"SELECT {', '.join(_FETCHED)} FROM lines ORDER BY file, line"
    )
    while rows := cursor.fetchmany(10_000):
        for file, *rest in rows:
            cell, place = tuple(rest[:8]), tuple(rest[-5:])
            if cell not in cells:
                cells[cell] = Series(*(texts[text] for text in cell))
            if place not in environments:
                environments[place] = environment(*place)
            yield file, cells[cell], _outcome(texts, rest[8:-5], environments[place])


def environment(
    machine: str, device: str, driver: str, toolchain: str, harness_version: str
) -> Environment:
    """``toolchain`` is JSON. Raises RecordError."""
    try:
        tools = {str(name): str(version) for name, version in dict(loads(toolchain)).items()}
    except (TypeError, ValueError) as error:
        raise RecordError(f"environment.toolchain: {error}, got {toolchain[:60]}") from error
    return Environment(
        machine=machine,
        device=device,
        driver=driver,
        toolchain=tools,
        harness_version=harness_version,
    )


def _outcome(texts: Texts, values: list[object], where: Environment) -> ReadOutcome:
    """``values``: of :data:`_FETCHED` those between the cell and the environment."""
    *said, verdict, evidence, detail, missing, p20, noisy, method, eager = values[:12]
    code, *counted, carried = values[12:]
    time, key, venue, source = (texts[str(text)] for text in said)
    timing = None
    if isinstance(p20, float):
        timing = ReadTiming(p20, texts[str(noisy)], texts[str(method)])
    baselines = _NO_BASELINES
    if isinstance(eager, float):
        baselines = {"eager": ReadTiming(eager, "", "")}
    return ReadOutcome(
        time,
        key,
        venue,
        source,
        Verdict(str(verdict)),
        Evidence[str(evidence).upper()],
        texts[str(detail)],
        texts[str(missing)],
        where,
        timing,
        baselines,
        texts[str(code)],
        Counts(*(count if isinstance(count, int) else None for count in counted)),
        texts[str(carried)],
    )
