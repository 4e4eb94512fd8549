"""Attempts of generation runs as what a model was asked, what it answered, and how that ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from portkern import ops
from portkern.agent import log
from portkern.agent.attempt import Attempt
from portkern.agent.axes import PromptMessage
from portkern.agent.llm.calls import FILE as CALLS
from portkern.agent.llm.calls import ModelCall
from portkern.agent.proposer import reading
from portkern.agent.replies import Unread
from portkern.agent.task import Task
from portkern.errors import ConfigError
from portkern.learn.families import family_of
from portkern.learn.first_prompt import first_prompt
from portkern.learn.near import ComparedText
from portkern.learn.rewards import Turn, Unavailable
from portkern.learn.turns import turn_of
from portkern.records.jsonl import LineFile
from portkern.records.record import Evidence, Record, RecordFile
from portkern.spec import registry, target


@dataclass(frozen=True)
class LearningSample:
    """One attempt as a task and its answer. ``reply`` is what the model wrote, whole; of an
    author that is not a model, its file in a block. ``modelled`` says which of the two."""

    run: str
    attempt: Attempt
    prompt: tuple[PromptMessage, ...]
    reply: str
    turn: Turn
    records: Sequence[Record]
    modelled: bool
    reasoning: str = ""

    @property
    def name(self) -> str:
        return f"{self.run}/{self.attempt.id}"

    @property
    def task(self) -> tuple[str, str, str, str]:
        attempt = self.attempt
        return attempt.op, attempt.backend, attempt.target, attempt.dtype

    @property
    def evidence(self) -> Evidence:
        """The least of its records."""
        return min((record.evidence for record in self.records), default=Evidence.NONE)

    @cached_property
    def text(self) -> ComparedText:
        return ComparedText(self.attempt.source)

    @cached_property
    def family(self) -> str:
        return family_of(self.attempt.op, _reference(self.attempt.op))

    @property
    def thought(self) -> int:
        """Characters of reasoning, or of the whole reply where none was told apart."""
        return len(self.reasoning or self.reply)


@dataclass
class Collected:
    """Samples of runs, and how many attempts were left out, by reason."""

    samples: list[LearningSample] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def read(self, folder: Path) -> None:
        """Adds the samples of a run. Raises ConfigError for a folder without attempts, and
        RecordError."""
        path = folder / log.FILE
        if not path.is_file():
            raise ConfigError(f"No attempts in {path}; 'portkern generate' writes them")
        known = {record.id: record for record in RecordFile(folder / "records.jsonl").read()[0]}
        calls = {call.id: call for call in LineFile(folder / CALLS, ModelCall.from_json).read()[0]}
        for attempt in log.Log.read(path):
            found: LearningSample | str
            try:
                found = _sample(folder.name, attempt, known, calls)
            except ConfigError:
                found = "its backend, target or language is not known here"
            if isinstance(found, LearningSample):
                self.samples.append(found)
            else:
                self.left_out[found] += 1


def _sample(
    run: str,
    attempt: Attempt,
    known: Mapping[str, Record],
    calls: Mapping[str, ModelCall],
) -> LearningSample | str:
    """Or why there is none."""
    if not attempt.source or not attempt.records:
        return f"{attempt.status}: it was not evaluated"
    records = [known[name] for name in attempt.records if name in known]
    if len(records) < len(attempt.records):
        return "its records are not in the run"
    try:
        turn = turn_of(records)
    except Unavailable:
        return "a workload could not be evaluated"
    call = _writer(attempt, calls)
    if call is not None:
        messages = tuple(call.messages)
        return LearningSample(
            run, attempt, messages, call.reply, turn, records, True, call.reasoning
        )
    task = _task(attempt)
    if task is None:
        return "its operator does not ship, and no model was asked"
    reply = f"```{reading.TAGS[attempt.language][0]}\n{attempt.source.rstrip()}\n```"
    return LearningSample(run, attempt, tuple(first_prompt(task)), reply, turn, records, False)


def _writer(attempt: Attempt, calls: Mapping[str, ModelCall]) -> ModelCall | None:
    """The call whose reply has the attempt's source: others planned it or told what was wrong. A
    reply of edits has not the source itself, and is taken where it is the last one."""
    own = [calls[name] for name in attempt.calls if name in calls and calls[name].reply]
    task = _task(attempt)
    for call in reversed(own) if task else ():
        code = reading.kernel(call.reply, task) if task else Unread("")
        if not isinstance(code, Unread) and code.source.strip() == attempt.source.strip():
            return call
    return None


def _task(attempt: Attempt) -> Task | None:
    if attempt.op not in ops.names():
        return None
    op = ops.load(attempt.op)
    told = {"ci": tuple(op.workloads["ci"])}
    backend, where = registry.load(attempt.backend), target.load(attempt.target)
    return Task(op, where, backend, attempt.language, attempt.dtype, told)


def _reference(name: str) -> str:
    return ops.load(name).reference_source if name in ops.names() else ""


def by_task(samples: Sequence[LearningSample]) -> Iterator[list[LearningSample]]:
    """The samples in groups, each of one operator, place and dtype."""
    groups: dict[tuple[str, str, str, str], list[LearningSample]] = {}
    for sample in samples:
        groups.setdefault(sample.task, []).append(sample)
    yield from groups.values()
