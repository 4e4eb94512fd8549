"""Presets of systems whose parts live beside them (portkern/agent/systems): each does what its
publication says, on a scripted model."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from portkern.agent.attempt import Diagnosis
from portkern.agent.llm.calls import Request
from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.systems.accelopt import remembered
from tests.scripted import Answer, Played, kernel
from tests.test_preset_loops import asked, shown, starting
from tests.test_presets import run
from tests.test_strategy import attempt

LESSON = Diagnosis(critic="pairs", problem="wide loads", lessons=("widen loads",))
#: The same loop with fewer kernels.
SMALL = ("strategy.rounds=3", "strategy.candidates=2", "strategy.plans=2", "strategy.impls=2")


def attempts_of(played: Played, operator: str) -> list[str]:
    return [one.id for one in played.attempts if one.operator == operator]


# ---- AccelOpt


def planned(*worths: float | str) -> Answer:
    """A plan each time a planner is asked; kernels in turn; a lesson on each pair."""
    numbers = itertools.count()

    def answer(request: Request, count: int) -> str:
        name = request.prompt.partition("@")[0]
        if name == "ideas":
            return json.dumps([{"idea": f"plan {count}", "why": "bytes"}])
        if name == "critic_pair":
            pair = request.messages[-1].content
            slow, _, fast = pair.partition("## The fast kernel")
            title = f"from {shown(slow) or ['given']} to {shown(fast) or ['given']}"
            return json.dumps({"title": title, "plan": "widen loads", "before": "a", "after": "b"})
        number = next(numbers)
        worth = worths[number] if number < len(worths) else 1 + number / 100
        return kernel(worth, about=f"k{number}")

    return answer


def test_accelopt_plans_for_each_candidate_apart_and_keeps_the_best_of_each_plan(
    tmp_path: Path,
) -> None:
    """A plan of which nothing right comes is stood in for by the kernel that it was for."""
    answer = planned(1.5, 2.0, "wrong", "wrong", 1.8, 1.7, 1.1, 1.2, "wrong", 1.4, 1.3, 1.9)
    given = starting(tmp_path, 21)
    played = run(tmp_path, "accelopt", answer, *given, *SMALL, "inflight=1")
    first, second, third = (attempts_of(played, f"round {number}") for number in (1, 2, 3))
    assert (len(first), len(second), len(third)) == (4, 8, 8)
    parents = {one.id: one.parents[0] for one in played.attempts[1:]}
    assert [parents[name] for name in first] == ["0.0"] * 4
    # The best of the first plan, and the given kernel for the second, which came to nothing.
    assert [parents[name] for name in second] == ["1.1"] * 4 + ["0.0"] * 4
    # The kernels of the round before alone: the best of all, 1.1, has made way for its children.
    heads = [one for one in played.attempts if one.id in second and one.score in (1.8, 1.9)]
    assert [parents[name] for name in third] == [heads[1].id] * 4 + [heads[0].id] * 4
    # Each plan is a request of its own, and what is written has the plan and not the profile.
    plans = [one.idea for one in played.attempts[1:]]
    assert [len({*plans[at : at + 2]}) for at in range(0, 20, 2)] == [1] * 10
    assert len({*plans}) == 10
    assert "What was tried already" not in asked(played, "ideas")[-1]
    assert all("Time" in text for text in asked(played, "ideas"))
    assert not any(
        "µs" in text.rpartition("## The kernel")[2] for text in asked(played, "implement")
    )


def test_accelopts_planners_are_told_what_leads_from_slow_kernels_to_fast_ones(
    tmp_path: Path,
) -> None:
    answer = planned(1.5, 2.0, 1.01, 0.5, 2.02, 1.0)
    given = starting(tmp_path, 13)
    played = run(tmp_path, "accelopt", answer, *given, *SMALL, "inflight=1")
    assert asked(played, "ideas")[0].count("From a slow kernel") == 0
    # Of the first plan the gain; of the second, which has a gain too small to count, nothing.
    later = asked(played, "ideas")[2]
    assert "From a slow kernel to a fast one: from ['given'] to ['k1']" in later
    assert "widen loads" in later and "Before:\na" in later and later.count("From a slow") == 1
    # Every pair that differs enough was put into words, a loss too, with the fast kernel as such.
    titles = [one.diagnosis.problem for one in played.attempts if one.diagnosis]
    assert "from ['k3'] to ['given']" in titles and len(titles) >= 4
    assert not any("From a slow kernel" in text for text in asked(played, "implement"))
    # Of the given kernel and of the profile there is no word of what its own pair taught.
    assert "Diagnosis" not in later


def test_accelopt_remembers_sixteen_pairs_of_which_eight_are_of_the_last_round() -> None:
    log = Log()
    log.add([attempt(Slot(number=0), score=1.0)])
    for number in (1, 2, 3):
        for k in range(12):  # plans, of which half gain
            slot = Slot(parents=("0.0",), number=12 * number + k, operator=f"round {number}")
            score = 1.5 + number + k / 10 if k % 2 else 0.5 - k / 100
            log.add([attempt(slot, 0, score, diagnosis=LESSON), attempt(slot, 1, 1.0)])
    first, second, third, fourth = (remembered(log, before=number) for number in (1, 2, 3, 4))
    assert [len(told) for told in (first, second, third, fourth)] == [0, 8, 16, 16]
    newest = [one for one in fourth if one.operator == "round 3"]
    assert [one.score > 1 for one in newest] == [True] * 4 + [False] * 4
    # The gains are the four greatest, the losses too, and what is older was remembered before.
    assert [round(one.score, 1) for one in newest[:4]] == [5.6, 5.4, 5.2, 5.0]
    assert newest[4].score == min(one.score for one in log)
    assert {one.id for one in fourth[8:]} <= {one.id for one in third}
