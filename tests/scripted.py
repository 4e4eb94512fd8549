"""Generation runs without a network and without a device: models answer by a script, and what a
kernel is worth stands in its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portkern.agent.axes import Reply
from portkern.agent.bench import Bench
from portkern.agent.llm.calls import Calls, ModelCall, ModelRequest
from portkern.agent.llm.models import Models
from portkern.agent.llm.role import roles
from portkern.agent.run import GenerationRun, RunPlan, named
from portkern.cli.verbs.generate import plan_of, read
from portkern.records.record import Record, Verdict
from portkern.spec.candidate import Candidate
from tests import report_records

MODEL = "openai/scripted"
#: A line such as ``// worth 1.7`` or ``// worth wrong`` says how a kernel ends.
_WORTH = re.compile(r"worth ([\w.]+)")
BASE_US = 100.0

Answer = Callable[[ModelRequest, int], str]


def kernel(worth: str | float, entry: str = "relu", *, about: str = "") -> str:
    """A reply with a kernel that ends so."""
    return f"I made it {worth}.\n```cpp\n// worth {worth}\n// {about}\nint {entry}() {{}}\n```\n"


class ScriptedModels(Models):
    """``answer`` is told the request and how many came before it; the rest is as always."""

    def __init__(self, given: Models, answer: Answer, plan: RunPlan) -> None:
        super().__init__(roles(named(plan.models)), store=given.store, meter=given.meter)
        self._answer = answer

    async def answer(self, request: ModelRequest) -> Reply:
        known = self.store.of(request)
        if known is None:
            text = self._answer(request, len(self.store))
            known = ModelCall.of(
                request,
                reply=text,
                answered=request.model,
                finish="stop",
                tokens_in=10,
                tokens_out=5,
                usd=None,
                charged_tokens=15,
            )
            self.store.add(known)
        return known.answer


class ScriptedBench(Bench):
    """Evaluates by the source's own words: a number is its speedup, anything else a verdict. A
    kernel to start from that says nothing is as fast as the framework."""

    evaluated: list[str]

    def build(self, candidate: Candidate) -> float:
        return 0.0

    def evaluate(self, candidate: Candidate) -> list[Record]:
        self.evaluated = [*getattr(self, "evaluated", []), candidate.digest]
        match = _WORTH.search(candidate.source)
        start = self.task.start
        silent = "1.0" if start and start.digest == candidate.digest else "build_failed"
        worth = match[1] if match else silent
        return [self._record(candidate, work, worth) for work in self.work[-1:]]

    def race(self, candidates: Sequence[Candidate], work: Any) -> list[list[Record]]:
        return []

    def _record(self, candidate: Candidate, work: Any, worth: str) -> Record:
        workload = {
            "set": work.set,
            "name": work.workload.name,
            "dims": dict(work.workload.dims),
            "dtype": self.task.dtype,
        }
        common = {
            "id": candidate.digest,
            "op": self.task.op.name,
            "source_hash": candidate.digest,
            "workload": workload,
            "target": self.task.target.name,
        }
        if not re.fullmatch(r"[\d.]+", worth):
            return report_records.make(
                **common,
                verdict=Verdict(worth),
                detail=f"{worth} it is",
                evidence="none",
                timing=None,
                speedup={},
                baselines={},
                roofline=None,
            )
        value = float(worth)
        return report_records.make(
            **common, speedup={"eager": {"value": value, "ci95": (value, value)}}
        )


@dataclass
class Played:
    """A finished run: its attempts, its calls, and the run itself."""

    run: GenerationRun
    stopped: str

    @property
    def attempts(self) -> list[Any]:
        return list(self.run.log)

    @property
    def calls(self) -> list[ModelCall]:
        return list(self.run.models.store)

    @property
    def prompts(self) -> list[str]:
        """Names of templates, in the order in which they were asked."""
        return [call.prompt.partition("@")[0] for call in self.calls]

    def text(self, index: int) -> str:
        """All messages of the call with this number, joined."""
        return "\n".join(message.content for message in self.calls[index].messages)

    @property
    def parents(self) -> list[tuple[str, ...]]:
        return [attempt.parents for attempt in self.attempts]


def play(folder: Path, answer: Answer, *overrides: str, calls: Calls | None = None) -> Played:
    """A run of ``portkern generate`` with these overrides."""
    given = [
        "op=relu",
        "target=x86_64",
        "backend=cpu",
        "workloads=ci",
        "final=[]",
        "inflight=1",
        f"models.coder.model={MODEL}",
        "cache=false",
        *overrides,
    ]
    plan = plan_of(read(given))
    run = GenerationRun(plan, folder)
    run.models = ScriptedModels(run.models, answer, plan)
    run.bench = ScriptedBench(
        plan.task, folder, run.bench._cache, plan.evaluation, stage=plan.stage
    )
    return Played(run, run.execute())


def in_turn(*replies: str) -> Answer:
    """Replies in turn, the last one for ever."""
    return lambda request, count: replies[min(count, len(replies) - 1)]


def by_prompt(answers: Mapping[str, Sequence[str]]) -> Answer:
    """Replies in turn for each template, the last one of each for ever."""
    asked: dict[str, int] = {}

    def answer(request: ModelRequest, count: int) -> str:
        name = request.prompt.partition("@")[0]
        number = asked.get(name, 0)
        asked[name] = number + 1
        replies = answers[name]
        return replies[min(number, len(replies) - 1)]

    return answer
