"""AccelOpt: a beam of plans, and a memory of slow kernels and the fast ones that came of them.

Every candidate of a round is planned for several times, each plan is written several times, and the
best of each plan are the next candidates. What was learned of a round are summaries of pairs, a
kernel and its parent, that differ most in speed; planners are told of some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from random import Random
from typing import ClassVar, Final

from pydantic import Field

from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock
from portkern.agent.axes import AgentContext
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Form, Text
from portkern.agent.critic.silent import AskingCriticOptions, Silent
from portkern.agent.log import Log
from portkern.agent.memory.history import PARENT, Detail, Mention, Told, VisibleLog
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, SlotRounds, names, ranked

#: A pair is worth a summary where a kernel is this many times as fast as its parent, or as slow.
GAIN, LOSS = 1.04, 1.15
#: The number of pairs of a round that are remembered, half of them gains at most; and of all
#: rounds.
OF_A_ROUND, OF_ALL = 8, 16
#: The operator of a round's slots, before its number: attempts keep it.
ROUND: Final = "round "
#: The gain of a pair; its other part is the younger kernel.
_gain = itemgetter(0)


class PlanBeam(SlotRounds):
    plans = True

    class Options(SlotRounds.Options):
        rounds: Count | None = 16
        candidates: Count = 6
        plans: Count = 12
        impls: Count = 2

    class State(SlotRounds.State):
        """The state of a round: ``heads`` are the best of its plans so far, ``missed`` the
        candidates of plans of which nothing right came, each as often as that was so."""

        heads: list[str] = Field(default_factory=list)
        missed: list[str] = Field(default_factory=list)

    options: Options
    state: State

    @property
    def rounds(self) -> int | None:
        return self.options.rounds

    def begin(self, known: Log) -> list[Slot]:
        """A slot for each plan. A candidate stands in for a plan of its own that came to nothing,
        behind all that came to something, and may do so more than once."""
        state, options = self.state, self.options
        heads = names(ranked(known.some(state.heads)))
        chosen = [*heads, *state.missed][: options.candidates]
        state.heads, state.missed = [], []
        plan = Slot(n=options.impls, ideas=1, operator=f"{ROUND}{state.round + 1}")
        return [
            replace(plan, parents=(name,) if name else ())
            for name in chosen or [""]
            for _ in range(options.plans)
        ]

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        super().learn(slot, attempts, known)
        best = names(ranked(attempts)[:1])
        self.state.heads += best
        if not best:
            self.state.missed += slot.parents


class Pair(Form):
    title: Text
    plan: Text
    before: Text = ""
    after: Text = ""


class PairsOptions(AskingCriticOptions):
    """``gain``: it speaks of a kernel that is more than so many times as fast as its parent;
    ``loss``: or of one that is more than so many times as slow."""

    kind: str = "accelopt"
    gain: float = Field(GAIN, ge=1)
    loss: float = Field(LOSS, ge=1)


class Pairs(Silent):
    """Puts into words what makes one of two kernels the faster one, so that it can be done again
    elsewhere."""

    options_type: ClassVar[type[PairsOptions]] = PairsOptions

    def __init__(self, options: PairsOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        parent = shown.parent(seen, context)
        if parent is None or not (seen.correct and parent.correct):
            return None
        gain = seen.score / parent.score
        if 1 / self.options.loss <= gain <= self.options.gain:
            return None
        slow, fast = (parent, seen) if gain > 1 else (seen, parent)
        answer = await reading.ask(
            context.llm,
            self.options.role,
            "critic_pair",
            Pair,
            **shown.facts(seen, context),
            slow=slow,
            fast=fast,
            gain=max(gain, 1 / gain),
        )
        parts = [answer.plan]
        parts += [f"Before:\n{answer.before}"] if answer.before else []
        parts += [f"After:\n{answer.after}"] if answer.after else []
        return Diagnosis(
            critic=self.options.kind, problem=answer.title, lessons=("\n".join(parts),)
        )


def experience(past: VisibleLog) -> Told:
    """Tells the planner of the parent, with its profile, and of what pairs taught; whoever writes
    the code has the plan, and is told of nothing."""
    if past.role != "planner":
        return
    for parent in past.parents:
        # What its own pair taught is no more about it than about others.
        bare = parent.model_copy(update={"diagnosis": None})
        yield Mention(bare, PARENT, Detail.FEEDBACK)
    for attempt in remembered(past.log, before=_round(past.slot)):
        assert attempt.diagnosis is not None
        yield PromptBlock(
            kind="experience",
            title=f"From a slow kernel to a fast one: {attempt.diagnosis.problem}",
            text="\n".join(attempt.diagnosis.lessons),
        )


def remembered(log: Log, *, before: int) -> list[Attempt]:
    """The pairs that are told of in a round, by their younger kernels: those of the round before,
    and of those that were told of then as many as there is room for, drawn anew each time."""
    rounds: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in log:
        rounds[_round(attempt)].append(attempt)
    memory: list[Attempt] = []
    for number in range(1, before):
        new = _taught(rounds[number], log)
        left = min(OF_ALL - len(new), len(memory))
        memory = [*new, *Random(number).sample(memory, left)]
    return memory


def _round(of: Slot | Attempt) -> int:
    """0 for the given kernel."""
    number = of.operator.removeprefix(ROUND)
    return int(number) if number.isdigit() else 0


def _taught(attempts: Sequence[Attempt], log: Log) -> list[Attempt]:
    """Picks of each plan the kernel that gained most over its parent, or lost most where none
    gained, and of these those that differ most."""
    plans: dict[int, list[tuple[float, Attempt]]] = defaultdict(list)
    for attempt in attempts:
        for parent in log.some(attempt.parents[:1]):
            if attempt.correct and parent.correct:
                plans[attempt.slot].append((attempt.score / parent.score, attempt))
    ordered = [sorted(plan, key=_gain) for plan in plans.values()]
    each = [plan[-1] if _gain(plan[-1]) > 1 else plan[0] for plan in ordered]
    told = [pair for pair in each if pair[1].diagnosis and pair[1].diagnosis.lessons]
    gains = sorted((pair for pair in told if _gain(pair) > GAIN), key=_gain, reverse=True)
    losses = sorted((pair for pair in told if _gain(pair) < 1 / LOSS), key=_gain)
    kept = gains[: OF_A_ROUND // 2]
    return [attempt for _, attempt in (*kept, *losses[: OF_A_ROUND - len(kept)])]
