"""KernelBlaster: what limits a kernel is a state, a technique an action, and a knowledge base holds
what each brought in each state, over operators and runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from portkern.agent import replies
from portkern.agent.attempt import Attempt, PromptBlock
from portkern.agent.axes import KernelDraft, Reply
from portkern.agent.critic.reading import Form, Text, within
from portkern.agent.log import Log
from portkern.agent.memory.kept import KeptLine, KeptLines
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.text import Passage, named
from portkern.agent.proposer.writing import KernelWriter, Modelled, WriterOptions
from portkern.agent.replies import Unread
from portkern.agent.slot import Arm, Slot
from portkern.agent.task import Task

UNKNOWN = "unknown"
#: A technique's weight in the draw is its relevance to this power, and no less than that.
POWER, LEAST = 3, 0.001
#: What a technique is expected to save is right within this share of it.
NEAR = 0.2


def state_of(attempt: Attempt) -> str:
    """The resource that limits a kernel, as the critic found it."""
    return (attempt.diagnosis.bound if attempt.diagnosis else "") or UNKNOWN


class AppliedTechnique(KeptLine):
    """A technique that was applied in a state, and what it brought: ``gain`` over the kernel that
    it was applied to, None where one of the two was not timed or is not right."""

    state: str
    technique: str
    op: str
    target: str
    backend: str
    correct: bool
    gain: float | None


@dataclass
class TechniqueGain:
    """A technique in a state as it is known: the mean ``gain`` of ``timed`` tries, and a
    ``confidence`` which grows when a try came to what those before it did, and shrinks else."""

    technique: str
    gain: float = 1.0
    confidence: float = 0.5
    timed: int = 0
    correct: int = 0
    tries: int = 0

    def add(self, applied: AppliedTechnique) -> None:
        self.tries += 1
        self.correct += applied.correct
        if applied.gain is None:
            return
        if self.timed and self.gain > 1:
            near = abs((applied.gain - 1) / (self.gain - 1) - 1) <= NEAR
            moved = self.confidence + (0.1 if near else -0.1)
            self.confidence = min(max(moved, 0.1), 1.0)
        self.gain = (self.gain * self.timed + applied.gain) / (self.timed + 1)
        self.timed += 1

    def __str__(self) -> str:
        timed = f"mean gain {self.gain:.2f} over {self.timed}, " if self.timed else ""
        return (
            f"{self.technique}: {timed}correct {self.correct} of {self.tries}, "
            f"confidence {self.confidence:.1f}"
        )


def entries(applied: Iterable[AppliedTechnique]) -> dict[str, list[TechniqueGain]]:
    """Returns the entries by state, the most rewarding first."""
    known: dict[tuple[str, str], TechniqueGain] = {}
    for one in applied:
        key = one.state, one.technique.lower()
        known.setdefault(key, TechniqueGain(one.technique)).add(one)
    states: dict[str, list[TechniqueGain]] = {}
    for (state, _), entry in sorted(known.items(), key=lambda item: (-item[1].gain, item[0])):
        states.setdefault(state, []).append(entry)
    return states


class KnowledgeBase:
    """The gains that this run and those before it measured on the same backend, by states."""

    def __init__(self, options: MemoryOptions, task: Task, folder: Path) -> None:
        """Raises RecordError and StorageError."""
        self.run, self.most = folder.name, options.skills
        self._kept = KeptLines("kernelblaster.jsonl", AppliedTechnique, folder, keep=options.keep)
        self._learned: dict[str, Attempt] = {}

    def learn(self, attempt: Attempt) -> None:
        """Raises StorageError when it is to be kept and cannot be."""
        self._learned[attempt.id] = attempt
        base = self._applied_to(attempt)
        if base is None or not attempt.arm or not attempt.records:
            return
        timed = attempt.correct and attempt.speedups and base.speedups
        applied = AppliedTechnique(
            run=self.run,
            attempt=attempt.id,
            digest=attempt.digest,
            state=state_of(base),
            technique=attempt.arm,
            op=attempt.op,
            target=attempt.target,
            backend=attempt.backend,
            correct=attempt.correct,
            gain=attempt.score / base.score if timed else None,
        )
        self._kept.add(applied)

    def _applied_to(self, attempt: Attempt) -> Attempt | None:
        """The last right kernel above: what is mended is still the technique's."""
        above: Attempt | None = attempt
        while above is not None:
            above = self._learned.get((*above.parents, "")[0])
            if above is not None and above.correct:
                return above
        return None

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> list[Passage]:
        here = [
            one
            for one in self._kept.lines
            if one.backend == task.backend.name and (one.run != self.run or one.attempt in log)
        ]
        parents = log.some(slot.parents[:1])
        state = state_of(parents[0]) if parents else UNKNOWN
        known = entries(here)
        shown = {state: known.pop(state, []), **known}
        return [
            Passage(PromptBlock(kind="kernelblaster", title=_title(name), text=_listed(several)))
            for name, several in shown.items()
            for several in [several[: self.most]]
            if several
        ]


def _title(state: str) -> str:
    return f"What techniques brought where the limit was: {state}"


def _listed(several: Sequence[TechniqueGain]) -> str:
    return "\n".join(f"- {entry}" for entry in several)


class Technique(Form):
    technique: Text
    how: Text = ""
    relevance: Annotated[float, within(0, 1)] = 0.05


class BlasterOptions(WriterOptions):
    """So many techniques are ranked before one is drawn."""

    techniques: int = Field(default=4, ge=1)


class Blaster(Modelled):
    """A planner ranks techniques by the state and the knowledge base, one is drawn by the cube of
    its relevance, and a coder applies it. What fails is mended."""

    options_type = BlasterOptions
    options: BlasterOptions
    others = ("planner",)

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        parent = writer.parent
        if parent is None:
            return replace(await writer.write("direct"), operator="init")
        if not parent.correct:
            mended = await writer.write("debug", shown=[parent])
            return replace(mended, operator="debug", arm=parent.arm, idea=f"mend {parent.id}")
        ranked = await self._ranked(writer, parent)
        if isinstance(ranked, Unread):
            return KernelDraft(None, detail=ranked.why, operator="apply")
        weights = [max(one.relevance**POWER, LEAST) for one in ranked]
        [drawn] = writer.context.random.choices(ranked, weights)
        text = ": ".join(filter(None, (drawn.technique, drawn.how)))
        draft = await writer.write("direct", arm=Arm(drawn.technique, text))
        return replace(draft, operator="apply", arm=named(drawn.technique), idea=text)

    async def _ranked(self, writer: KernelWriter, parent: Attempt) -> list[Technique] | Unread:
        def read(reply: Reply) -> list[Technique] | Unread:
            found = list(techniques(replies.objects(replies.spoken(reply.text))))
            why = "it was cut off at max_tokens" if reply.cut else "it ranks no technique"
            return found[: self.options.techniques] or Unread(f"the planner's reply: {why}")

        facts = writer.facts("planner", shown=[parent]) | {
            "arms": list(writer.arms.values()),
            "state": state_of(parent),
            "wanted": self.options.techniques,
        }
        return await writer.ask("planner", "ranked", read, facts, form="json")


def techniques(objects: Iterable[Mapping[str, object]]) -> Iterable[Technique]:
    """Reads the techniques of a list, or of an object that holds one."""
    for each in objects:
        several = each.get("techniques", [each])
        for given in several if isinstance(several, list) else []:
            try:
                yield Technique.model_validate(given)
            except ValidationError:
                continue
