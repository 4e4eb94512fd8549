"""A job of an experiment: one run of ``portkern generate``, and what it left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.agent import outcome
from portkern.agent.llm.calls import FILE as CALLS
from portkern.agent.llm.calls import Calls
from portkern.agent.log import FILE as ATTEMPTS
from portkern.agent.log import Log
from portkern.agent.run import RECORDS
from portkern.errors import ConfigError, RecordError
from portkern.experiment.ending import AttemptEnding, endings
from portkern.records.record import Record
from portkern.spec import foreign_text
from portkern.spec.foreign_text import json_value
from portkern.spec.safe_name import SafeName

#: The file in a job's folder that says what was asked for when it was done.
ASKED = "asked.json"
#: The characters that a folder's name cannot have, which arms' names (those of models) may.
_UNFIT = re.compile(r"[^\w.+-]+")


@dataclass(frozen=True)
class ExperimentJob:
    """Jobs with equal ``op``, ``place`` and ``seed`` differ in what their ``arm`` says and in
    nothing else."""

    arm: str
    op: str
    seed: int
    overrides: tuple[str, ...]
    #: ``backend.target`` where an experiment asks for several, else empty.
    place: str = ""

    @property
    def operator(self) -> str:
        """``op`` may be a file that defines it, or one of several that a file does."""
        _, several, name = self.op.rpartition(".py:")
        return name if several else Path(self.op).stem

    @property
    def name(self) -> SafeName:
        parts = (self.operator, self.place, _UNFIT.sub("_", self.arm), str(self.seed))
        return SafeName.like("-".join(filter(None, parts)))

    def finished(self, folder: Path) -> bool:
        """Whether ``folder``, the experiment's, has it as it is asked for now."""
        try:
            asked = json_value(foreign_text.content(folder / self.name / ASKED))
        except (OSError, ValueError):
            return False
        return bool(asked == list(self.overrides))


@dataclass(frozen=True)
class FinishedJob:
    """``device`` is where kernels ran, empty when none did; ``answered`` as in :func:`endings`."""

    job: ExperimentJob
    log: Log
    summary: outcome.RunSummary
    device: str = ""
    answered: frozenset[str] = frozenset()

    @classmethod
    def read(cls, job: ExperimentJob, folder: Path) -> FinishedJob:
        """Reads what the job left when it came to its end. Raises RecordError."""
        own = folder / job.name
        summary = outcome.read(own)
        answered = frozenset(call.id for call in Calls(own / CALLS) if not call.error)
        return cls(job, Log.read(own / ATTEMPTS), summary, _device(own / RECORDS), answered)

    @property
    def endings(self) -> list[AttemptEnding]:
        return endings(self.log, self.answered)

    @property
    def why_nothing(self) -> str:
        """Why it tells nothing, or empty: a single attempt that was evaluated tells something."""
        if any(end.status for end in self.endings):
            return ""
        first = next(
            (attempt.detail for attempt in self.log if attempt.detail), "there is no attempt"
        )
        return f"nothing could be evaluated: {first.partition(chr(10))[0]}"


def _device(records: Path) -> str:
    """The device, from the first record alone, as the file may be large."""
    try:
        with foreign_text.opened(records) as file:
            line = file.readline(foreign_text.MOST_BYTES).decode(errors="replace")
        return Record.from_json(line).environment.device
    except (OSError, RecordError):
        return ""


@dataclass(frozen=True)
class StudyQuestion:
    """``count`` is each job's number of attempts; ``model`` the one that writes, empty when the
    catalogue does. ``given`` are overrides of ``portkern generate`` for all jobs, ``settings``
    those of single arms; ``places``: a backend and a target each, where there are several."""

    ops: tuple[str, ...]
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    count: int
    model: str = ""
    given: tuple[str, ...] = ()
    settings: Mapping[str, tuple[str, ...]] | None = None
    places: tuple[tuple[str, str], ...] = ()

    def jobs(self, choices: Mapping[str, Sequence[str]]) -> list[ExperimentJob]:
        """``choices`` are what makes each arm, as overrides that the user's go before. Seed by
        seed, so that an experiment that was cut compares what it has. Raises ConfigError."""
        settings = self.settings or {}
        jobs = [
            ExperimentJob(
                arm,
                op,
                seed,
                latest(
                    [
                        *choices[arm],
                        *self.given,
                        *settings.get(arm, ()),
                        *where,
                        f"op={op}",
                        f"seed={seed}",
                        f"budget.attempts={self.count}",
                    ]
                ),
                place,
            )
            for seed in self.seeds
            for op in self.ops
            for place, where in self._places()
            for arm in self.arms
        ]
        names = [job.name for job in jobs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ConfigError(f"Two jobs are {twice}; name each op, arm and seed once")
        return jobs

    def _places(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The places by name, each with the overrides that choose it."""
        if not self.places:
            yield "", ()
        for backend, target in self.places:
            yield f"{backend}.{target}", (f"backend={backend}", f"target={target}")


def key_of(override: str) -> str:
    """The key in ``key=value``, without Hydra's marks."""
    return override.partition("=")[0].lstrip("+~")


def latest(overrides: Sequence[str]) -> tuple[str, ...]:
    """The last override of each key; Hydra takes a group's choice only once."""
    return tuple({key_of(override): override for override in overrides}.values())
