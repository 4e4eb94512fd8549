"""The five axes of a generation run, and what they are handed.

A strategy decides what is expanded next, a proposer makes candidates of it, a memory says what
enters a prompt, feedback sources read records, and a critic interprets them. Each knows the
log and the task, none knows another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Protocol

from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock
from portkern.agent.log import Log
from portkern.agent.slot import Arm, Slot
from portkern.agent.task import Task
from portkern.records.record import Record
from portkern.spec.candidate import Candidate


@dataclass(frozen=True)
class PromptMessage:
    role: str  # "system", "user", "assistant"
    content: str


@dataclass(frozen=True)
class Reply:
    """A model's answer. ``call`` names its line of ``calls.jsonl``; ``cut``: it ended at
    max_tokens."""

    text: str
    call: str
    model: str = ""
    cut: bool = False


class Caller(Protocol):
    """Asks models in the name of one slot. Raises ModelError when no model answers that question,
    ModelDown when they answer none for now, BudgetSpent when the answer could cost more than is
    left. The last two end the run and are the loop's to hear of."""

    async def ask(
        self,
        role: str,
        messages: Sequence[PromptMessage],
        *,
        prompt: str = "",
        temperature: float | None = None,
    ) -> Reply:
        """``role`` is a key of ``models``; ``prompt`` names the template and its version."""
        ...

    def within(self, name: str) -> Caller:
        """A caller whose calls are numbered apart, so that their order among others does not
        matter."""
        ...

    @property
    def calls(self) -> Sequence[str]:
        """The names of the calls of this caller, and of those within it."""
        ...


@dataclass(frozen=True)
class KernelDraft:
    """A candidate that was proposed, or why there is none. ``operator`` and ``arm`` as they were
    chosen; ``parents`` are not empty where its author chose what to build on, in place of the
    slot's."""

    candidate: Candidate | None
    detail: str = ""
    idea: str = ""
    rationale: str = ""
    operator: str = ""
    arm: str = ""
    parents: tuple[str, ...] = ()
    donor: str = ""
    notes: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    status: str = ""  # "screened" when a critic held it back


@dataclass(frozen=True)
class EvaluatedDraft:
    """A draft that was evaluated, before it is an attempt. ``status`` as the attempt's."""

    draft: KernelDraft
    status: str
    detail: str = ""
    records: Sequence[Record] = ()
    feedback: Sequence[PromptBlock] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Word:
    """People's word on an idea: the ``idea`` to carry out, which may be another than they were
    asked about, or none, and ``why``."""

    idea: str = ""
    why: str = ""

    @property
    def struck(self) -> str:
        """The word on an idea that is not carried out, for its attempt."""
        return f"it was not approved{self.why and f': {self.why}'}"


@dataclass
class AgentContext:
    """The tools and facts that a proposer and a critic work with, for one slot. ``random`` is
    the slot's own: equal runs draw equal numbers. ``look`` evaluates a candidate before it is
    proposed, for a proposer that tries by itself. ``taken``: digests of all candidates of the
    run, also of those that are not evaluated yet. ``approve`` asks people about ideas before they
    are carried out, ``fits`` builds a candidate and says why there is no place for it on the
    target, if so. ``final``: nothing is built on what comes of the slot."""

    task: Task
    log: Log
    memory: AgentMemory
    llm: Caller
    random: Random
    look: Callable[[KernelDraft], Awaitable[EvaluatedDraft]]
    approve: Callable[[Sequence[str]], Awaitable[Sequence[Word]]]
    fits: Callable[[Candidate], Awaitable[str]]
    taken: set[str]
    final: bool = False


class Strategy(Protocol):
    """Decides by the log alone: what it asks next must follow from what it was told and its seed,
    in that order, so that a run can be resumed by telling it again."""

    def ask(self, log: Log, room: int) -> list[Slot]:
        """At most ``room`` slots. It returns none while it waits for those that are out, and when
        it is done."""
        ...

    def tell(self, slot: Slot, attempts: Sequence[Attempt]) -> None:
        """Slots are told in the order in which they were asked, each once, after the log has its
        attempts. There may be fewer attempts than were asked for."""
        ...

    def state_dict(self) -> dict[str, object]:
        """The state as JSON holds it; :meth:`load_state_dict` takes it back."""
        ...

    def load_state_dict(self, state: Mapping[str, object]) -> None: ...


class Proposer(Protocol):
    """``roles`` of models that it asks; ``operators`` that it tells apart; ``plans``: it makes
    ideas first where a slot asks for them."""

    operators: ClassVar[tuple[str, ...]]
    plans: ClassVar[bool]

    @property
    def roles(self) -> tuple[str, ...]: ...

    @property
    def decisive(self) -> Mapping[str, object]:
        """Settings that decide a run besides the proposer's options, by their names in run.json.
        Ask for them after :meth:`arms`."""
        ...

    def arms(self, task: Task) -> Sequence[Arm]:
        """The actions that a slot may name; none when the choice is open."""
        ...

    async def propose(self, slot: Slot, context: AgentContext) -> list[KernelDraft]:
        """``slot.size`` drafts at most; one without a candidate says why there is none."""
        ...


class AgentMemory(Protocol):
    def view(self, slot: Slot, role: str, log: Log, task: Task) -> list[PromptBlock]: ...

    def learn(self, attempt: Attempt) -> None:
        """Told of every attempt in the log's order."""
        ...


class FeedbackSource(Protocol):
    """``stage`` orders sources: those of a stage run when all before it found the candidate good
    enough."""

    kind: ClassVar[str]
    stage: ClassVar[int]

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured: ...


@dataclass(frozen=True)
class Measured:
    """``metrics`` have neutral names, see :mod:`portkern.agent.feedback`; ``text`` is for prompts,
    empty when there is nothing to say. ``stop``: later stages have nothing to measure."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    title: str = ""
    text: str = ""
    stop: bool = False


class Critic(Protocol):
    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the models that it asks."""
        ...

    async def screen(
        self, drafts: Sequence[KernelDraft], context: AgentContext
    ) -> list[KernelDraft]:
        """Returns as many drafts in the same order; those held back have the status
        ``screened``."""
        ...

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None: ...
