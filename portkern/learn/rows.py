"""Samples as the rows that trainers read: chats, pairs, and replies with their rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from portkern.agent.attempt import Attempt
from portkern.errors import no_such
from portkern.learn.rewards import Reward
from portkern.learn.sample import LearningSample, by_task

Row = dict[str, object]
#: ConCuR asks for so many attempts of a task before it says which of them are short and fast.
CONCUR_LEAST = 5
#: Pairs that one reply is chosen in, the clearest first: a task with hundreds of attempts would
#: drown others.
MOST_PAIRS = 4
GAMMA = 0.4


def chosen(samples: Sequence[LearningSample], how: str) -> list[LearningSample]:
    """The samples for supervised training, which are correct kernels alone. Raises ConfigError."""
    if how not in SELECTIONS:
        raise no_such("selection", how, SELECTIONS)
    right = [sample for sample in samples if sample.turn.rewardable]
    kept = [s for task in by_task(right) for s in SELECTIONS[how](task, samples)]
    return [sample for sample in samples if sample in kept]


def _all(right: Sequence[LearningSample], _: Sequence[LearningSample]) -> Sequence[LearningSample]:
    return right


def _best(right: Sequence[LearningSample], _: Sequence[LearningSample]) -> Sequence[LearningSample]:
    """The fastest by what is sure, or the first."""
    return [max(right, key=lambda sample: sample.turn.speedup)]


def _faster(
    right: Sequence[LearningSample], _: Sequence[LearningSample]
) -> Sequence[LearningSample]:
    """The samples that are faster than PyTorch by their whole interval."""
    return [s for s in right if s.turn.eager is not None and s.turn.eager.low > 1.0]


def _concur(
    right: Sequence[LearningSample], everyone: Sequence[LearningSample]
) -> Sequence[LearningSample]:
    """The fastest of a task with enough attempts, if it took the least thought as well."""
    attempts = sum(sample.task == right[0].task for sample in everyone)
    timed = [sample for sample in right if sample.turn.eager is not None]
    if attempts < CONCUR_LEAST or not timed:
        return []
    fastest = max(timed, key=lambda sample: sample.turn.speedup)
    shortest = min(right, key=lambda sample: sample.thought)
    return [fastest] if fastest is shortest else []


SELECTIONS: Mapping[
    str, Callable[[Sequence[LearningSample], Sequence[LearningSample]], Sequence[LearningSample]]
] = {
    "all": _all,
    "best": _best,
    "concur": _concur,
    "faster": _faster,
}


def sft(samples: Sequence[LearningSample], reward: Reward) -> Iterator[Row]:
    """Chats that end with a right kernel."""
    for sample in samples:
        yield {"messages": [*_prompt(sample), _answer(sample)], **facts(sample, reward)}


def dpo(samples: Sequence[LearningSample], reward: Reward) -> Iterator[Row]:
    """Pairs of replies to one task, of which one is better beyond doubt: right and wrong, or
    both right with intervals that do not meet. ``why`` says which, and ``cross_target`` where
    the worse one is right on another target."""
    elsewhere: dict[str, set[str]] = {}
    for sample in samples:
        if sample.turn.rewardable:
            elsewhere.setdefault(sample.attempt.digest, set()).add(sample.attempt.target)
    for task in by_task(samples):
        for better in (sample for sample in task if sample.turn.rewardable):
            worse = [(other, found) for other in task if (found := _worse(other, better))]
            for other, (why, margin) in sorted(worse, key=lambda one: -one[1][1])[:MOST_PAIRS]:
                places = elsewhere.get(other.attempt.digest, set()) - {other.attempt.target}
                if why == "right" and places:
                    why = "cross_target"
                yield {
                    "prompt": _prompt(better),
                    "chosen": [_answer(better)],
                    "rejected": [_answer(other)],
                    "why": why,
                    "margin": margin if math.isfinite(margin) else None,
                    "rejected_verdict": str(other.turn.verdict),
                    "rejected_right_on": sorted(places),
                    **facts(better, reward),
                }


def _worse(other: LearningSample, better: LearningSample) -> tuple[str, float] | None:
    """Why, and by how much; None where it is not sure."""
    if not other.turn.right:
        return "right", math.inf
    mine, theirs = better.turn.eager, other.turn.eager
    if other.turn.noisy or mine is None or theirs is None or mine.low <= theirs.high:
        return None
    return "faster", mine.low / theirs.high


def rl(samples: Sequence[LearningSample], reward: Reward) -> Iterator[Row]:
    """Replies with what each was paid, and what it led to; advantages are the trainer's."""
    returns = _returns(samples, reward)
    for sample in samples:
        yield {
            "prompt": _prompt(sample),
            "completion": [_answer(sample)],
            "group": "/".join((sample.run, *sample.task)),
            "return": returns[sample.name],
            **facts(sample, reward),
        }


def _returns(samples: Sequence[LearningSample], reward: Reward) -> dict[str, float]:
    """A turn's own reward, and of the best turn that goes on from it a discounted share."""
    known = {sample.name: sample for sample in samples}
    below: dict[str, list[str]] = {}
    for sample in samples:
        for parent in sample.attempt.parents[:1]:
            below.setdefault(f"{sample.run}/{parent}", []).append(sample.name)
    found: dict[str, float] = {}
    for name in sorted(known, key=lambda name: -known[name].attempt.turn):
        later = [found[child] for child in below.get(name, ()) if child in found]
        found[name] = reward(known[name].turn) + GAMMA * max(later, default=0.0)
    return found


def facts(sample: LearningSample, reward: Reward) -> Row:
    """The columns of a row besides its text, which are the same in all forms."""
    attempt, eager = sample.attempt, sample.turn.eager
    return {
        "op": attempt.op,
        "family": sample.family,
        "backend": attempt.backend,
        "target": attempt.target,
        "dtype": attempt.dtype,
        "language": attempt.language,
        "verdict": str(sample.turn.verdict),
        "evidence": str(sample.evidence),
        "reward": reward(sample.turn),
        "speedup_low": eager.low if eager else None,
        "speedup_high": eager.high if eager else None,
        "noisy": sample.turn.noisy,
        "turn": attempt.turn,
        "author": attempt.author,
        "license": license_of(attempt),
        "digest": attempt.digest,
        "run": sample.run,
        "attempt": attempt.id,
        "portkern": next((r.environment.harness_version for r in sample.records), ""),
    }


#: Authors that wrote none of it themselves: kernels are portkern's own.
_OWN = ("catalogue",)


def license_of(attempt: Attempt) -> str:
    """The license of the source: portkern's own, or what the model's terms say of its outputs."""
    return "Apache-2.0" if attempt.author in _OWN else f"outputs of {attempt.author}"


def _prompt(sample: LearningSample) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in sample.prompt]


def _answer(sample: LearningSample) -> dict[str, str]:
    return {"role": "assistant", "content": sample.reply}


FORMS: Mapping[str, Callable[[Sequence[LearningSample], Reward], Iterator[Row]]] = {
    "sft": sft,
    "dpo": dpo,
    "rl": rl,
}
