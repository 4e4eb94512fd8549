"""Decisions of people on regressions, in ``decisions.yaml`` beside the runs: changes that are
accepted from a run on, and cells in quarantine until a day::

    accepted:
      - {op: softmax, backend: cpu, from: nightly-2026-11-20, why: exact at the edges costs 8 %}
      - {target: gfx90a, from: nightly-2026-11-21, until: 2026-12-24, why: no runner has one}
    quarantine:
      - {target: gfx1100, until: 2026-12-24, why: the runner is being moved}

The fields of a cell that an entry does not name may be any.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portkern.errors import ConfigError
from portkern.regression.series import Series
from portkern.spec.foreign_text import Malformed, content, place_of, yaml_value

FILE = "decisions.yaml"


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    op: str | None = None
    workload_set: str | None = None
    workload: str | None = None
    dtype: str | None = None
    backend: str | None = None
    language: str | None = None
    variant: str | None = None
    target: str | None = None
    why: str = Field(min_length=1)

    def covers(self, series: Series) -> bool:
        said = ((getattr(self, name), value) for name, value in series._asdict().items())
        return all(wanted is None or wanted == value for wanted, value in said)


class Accepted(_Entry):
    """A cell that is to be as it is in this run, be it slower, lost or failing; until that day,
    which is included, where there is one."""

    since: str = Field(alias="from", min_length=1)
    until: date | None = None

    def ended(self, day: str) -> bool:
        """Whether it is over on a day in ISO form."""
        return self.until is not None and day > self.until.isoformat()


class Quarantined(_Entry):
    """A cell in quarantine: whatever becomes of it until that day, the day included, fails
    nothing."""

    until: date


class NightDecisions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    accepted: tuple[Accepted, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> NightDecisions:
        """The decisions in a folder; empty where there is no file. Raises ConfigError for one that
        cannot be read."""
        path = folder / FILE
        try:
            text = content(path).decode()
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Cannot read {path}: {error}") from error
        try:
            return cls.model_validate(yaml_value(text) or {})
        except Malformed as error:
            raise ConfigError(f"{path} is not YAML: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = place_of(first["loc"]) or "the file"
            raise ConfigError(
                f"{path}: {place}: {first['msg']}; expected "
                "accepted: [{op: …, from: RUN, why: …}] and "
                "quarantine: [{op: …, until: 2026-12-24, why: …}]"
            ) from error

    def accepts(self, series: Series, run: str, day: str) -> str:
        """Why what the cell is in ``run`` is accepted on a day in ISO form, '' if it is not."""
        for entry in self.accepted:
            if entry.since == run and not entry.ended(day) and entry.covers(series):
                return entry.why
        return ""

    def quarantined(self, series: Series, day: str) -> str:
        """Why the cell fails nothing on a day in ISO form, '' if it may."""
        for entry in self.quarantine:
            if entry.covers(series) and day <= entry.until.isoformat():
                return f"in quarantine until {entry.until}: {entry.why}"
        return ""
