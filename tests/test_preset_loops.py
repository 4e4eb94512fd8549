"""Presets whose publications say step by step what they do: each step, on a scripted model."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from portkern.agent.llm.calls import ModelRequest
from portkern.cli.verbs.generate import plan_of, read
from portkern.errors import ConfigError
from tests.preset_pages import started
from tests.scripted import Answer, Played, ScriptedBench, by_prompt, kernel, play
from tests.test_presets import FIX, PLAN, run, usual

TWO = json.dumps(
    {
        "bottlenecks": [
            {"problem": "memory waits", "method": "vectorise loads", "bound": "memory"},
            {"problem": "few warps", "method": "raise occupancy", "bound": "latency"},
        ]
    }
)
#: Counting takes seconds for each kernel.
UNCOUNTED = "feedback.counters=none"
#: Where the tool is missing, what it would say has its place all the same.
NVIDIA = ("target=h200", "backend=cuda")
#: How a prompt shows the kernel of ``growing`` or ``named`` with this comment.
_ABOUT = re.compile(r"^// (k\d+)$", re.MULTILINE)


def named(*worths: float | str) -> Answer:
    """Kernels in turn that are told apart by their comments; after the last all are as it is."""
    numbers = itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        name = request.prompt.partition("@")[0]
        if name.startswith("critic"):
            return FIX
        number = next(numbers)
        return kernel(worths[min(number, len(worths) - 1)], about=f"k{number}")

    return answer


def starting(folder: Path, attempts: int = 30) -> list[str]:
    """Options that start from a kernel that is as fast as the framework."""
    return [f"source={started(folder)}", f"budget.attempts={attempts}", UNCOUNTED]


def shown(text: str) -> list[str]:
    """Comments of the kernels that a prompt shows, in its order."""
    return _ABOUT.findall(text)


def asked(played: Played, *templates: str) -> list[str]:
    """The text of each call with one of these templates."""
    return [played.text(k) for k, name in enumerate(played.prompts) if name in templates]


# ---- where a run starts


@pytest.mark.sampled()
@pytest.mark.parametrize(
    "name",
    [
        "kernelagent_opt",
        "kernelband",
        "alphaevolve",
        "geak_optim",
        "akg_autoresearch",
        "evoengineer_free",
        "evoengineer_insight",
        "evoengineer_full",
    ],
)
def test_who_starts_from_a_kernel_has_the_catalogues_or_the_one_that_is_named(
    name: str, tmp_path: Path
) -> None:
    given = ["op=relu", "target=h200", "backend=cuda", f"preset={name}"]
    start = plan_of(read(given)).task.start
    assert start is not None and start.author == "catalogue" and 'extern "C"' in start.source
    own = [*given[:1], "target=x86_64", "backend=cpu", given[-1], f"source={started(tmp_path)}"]
    start = plan_of(read(own)).task.start
    assert start is not None and "// given" in start.source


# ---- one request


def test_one_shot_is_one_greedy_request_whatever_comes_back(tmp_path: Path) -> None:
    played = run(tmp_path, "kernelbench_oneshot", by_prompt({"direct": ["I cannot."]}))
    (call,) = played.calls
    assert call.params["temperature"] == 0.0
    assert [str(attempt.status) for attempt in played.attempts] == ["no_code"]
    assert "the kernel to" not in played.text(0).lower(), "nothing is shown but the task"


# ---- chains


def test_cudaforges_judge_sees_counters_and_its_coder_what_it_made_of_them(tmp_path: Path) -> None:
    assert plan_of(read(["op=relu", "preset=cudaforge"])).axes["strategy"]["turns"] == 10
    played = run(tmp_path, "cudaforge", usual(), "strategy.turns=3", *NVIDIA)
    assert played.prompts == ["direct", *["critic_bottleneck", "direct"] * 2]
    assert all("Hardware counters" in text for text in asked(played, "critic_bottleneck"))
    coder = asked(played, "direct")
    assert not any("Hardware counters" in text or "registers" in text[-3000:] for text in coder)
    assert all("few loads in flight" in text for text in coder[1:])
    assert not any("times as fast" in text or "### Time" in text for text in coder), "nor how fast"
    sampling = [
        {call.params[name] for call in played.calls}
        for name in ("temperature", "top_p", "max_tokens")
    ]
    assert sampling == [{0.2}, {1.0}, {16_384}]


def test_cudaforge_goes_on_from_the_last_kernel_and_names_one_defect_or_bottleneck(
    tmp_path: Path,
) -> None:
    long = '{"problem": "%s", "why": "%s", "fix": "%s"}' % tuple(  # noqa: UP031
        " ".join([word] * 50) for word in ("p", "w", "f")
    )
    answer = by_prompt(
        {
            "direct": [kernel("wrong", about="k0"), kernel(2.0, about="k1"), kernel(1.5)],
            "critic_repair": [long],
            "critic_bottleneck": [FIX],
        }
    )
    played = run(tmp_path, "cudaforge", answer, "budget.attempts=4", UNCOUNTED)
    assert played.prompts[:4] == ["direct", "critic_repair", "direct", "critic_bottleneck"]
    assert played.parents == [(), ("0.0",), ("1.0",), ("2.0",)]
    diagnosis = played.attempts[0].diagnosis
    words = [len(text.split()) for text in (diagnosis.problem, diagnosis.why, diagnosis.fix)]
    assert words == [21, 36, 21], "20, 35 and 20, and a mark"
    # No dialogue: the third turn is told of the last kernel alone.
    assert shown(asked(played, "direct")[2]) == ["k1"]
    # The judge of an attempt reads this attempt's kernel, not the best one.
    assert "worth 1.5" in asked(played, "critic_bottleneck")[1]


def test_kernelfalcons_workers_stop_at_the_first_that_is_correct(tmp_path: Path) -> None:
    wrong: Sequence[str] = [kernel("wrong", about=f"k{k}") for k in range(5)]
    played = run(tmp_path, "kernelfalcon", by_prompt({"direct": [*wrong, kernel(1.0)]}))
    assert [attempt.island for attempt in played.attempts] == [0, 1, 2, 3, 0, 1]
    assert played.attempts[-1].correct
    temperatures = [call.params["temperature"] for call in played.calls[:4]]
    assert temperatures == pytest.approx([0.8, 0.9, 1.0, 1.1])
    assert [call.params["temperature"] for call in played.calls[4:]] == [0.7] * 2
    assert {call.params["max_tokens"] for call in played.calls} == {20_000}
    assert shown(played.text(5)) == ["k1"], "chains do not leak"


def test_kernelfalcons_worker_needs_a_seed_and_loses_a_round_by_a_reply_without_code(
    tmp_path: Path,
) -> None:
    """Errors are told, and no time: the first that has one ends all."""
    wrong = [kernel("wrong", about=f"k{k}") for k in range(7)]
    answer = by_prompt({"direct": ["No.", *wrong[:3], "No.", *wrong[3:]]})
    played = run(tmp_path, "kernelfalcon", answer, "budget.attempts=8")
    assert [attempt.island for attempt in played.attempts] == [0, 1, 2, 3, 1, 2, 3, 1]
    assert len(played.calls) == 8, "one request a round"
    assert played.parents[4] == ("1.0",) and played.parents[7] == ("1.0",)
    told = played.text(7).partition("The kernel to build on")[2]
    assert shown(told) == ["k0"] and "wrong it is" in told and "Time" not in told


def test_kernelfalcon_tells_of_eight_rounds_the_last_whole_and_of_others_500_characters(
    tmp_path: Path,
) -> None:
    long = [kernel("wrong", about=f"k{k}\n" + "// filled up\n" * 60) for k in range(10)]
    played = run(tmp_path, "kernelfalcon", by_prompt({"direct": long}), "strategy.k=1")
    last = played.text(9)
    assert shown(last) == [f"k{k}" for k in range(1, 9)]
    assert last.count("// filled up") < 7 * 40 + 60
    assert last.count("characters left out") == 7


def test_geaks_optimiser_is_shown_five_right_kernels_the_slowest_first_and_nothing_else(
    tmp_path: Path,
) -> None:
    answer = named(1.5, "wrong", 1.1, 1.9, 1.2, 1.3, 1.4, 1.6)
    played = run(tmp_path, "geak", answer, "budget.attempts=9")
    assert len(played.calls) == 18, "a generator and a reflector, once each a round"
    last = asked(played, "direct")[-1]
    assert shown(last) == ["k5", "k6", "k0", "k7", "k3"]
    assert {*played.parents[8]} == {"5.0", "6.0", "0.0", "7.0", "3.0"}
    told = last.partition("## A reference (5.0)")[2].partition("## A reference")[0]
    assert "1.30 times as fast" in told and "Time:" in told and "few loads in flight" in told
    assert "The catalogue's kernel of" not in last, "the example is for what is not right yet"
    assert {call.params["temperature"] for call in played.calls} == {1.0}
    sizes = {call.prompt.partition("@")[0]: call.params["max_tokens"] for call in played.calls}
    assert sizes.pop("direct") == 30_000 and {*sizes.values()} == {5000}


def test_geaks_generator_mends_with_errors_reflection_and_an_example_near_the_code(
    tmp_path: Path,
) -> None:
    """Before anything is right it goes on doing so."""
    played = run(tmp_path, "geak", named(*["wrong"] * 9), "budget.attempts=8")
    assert played.parents == [(), *[(f"{k}.0",) for k in range(7)]]
    assert {*played.prompts} == {"direct", "critic_wrong"}
    texts = asked(played, "direct")
    assert all(text.count("The catalogue's kernel of") == 1 for text in texts)
    assert [shown(text) for text in texts] == [[], *[[f"k{k}"] for k in range(7)]]
    assert all("wrong it is" in text and "few loads in flight" in text for text in texts[1:])


def test_geak_mends_five_times_and_then_optimises_the_right_ones_again(tmp_path: Path) -> None:
    played = run(tmp_path, "geak", named(1.5, *["wrong"] * 7, 1.6, 1.1), "budget.attempts=11")
    assert played.parents[1] == ("0.0",), "an optimisation, which fails"
    assert played.parents[2:7] == [(f"{k}.0",) for k in range(1, 6)], "five to mend it"
    assert played.parents[7:9] == [("0.0",), ("7.0",)], "an optimisation, which fails again"
    assert played.parents[9:] == [("8.0", "0.0"), ("8.0", "0.0", "9.0")]
    assert shown(asked(played, "direct")[3]) == ["k2"], "no right one beside what is mended"


def test_geak_loses_a_round_by_a_reply_without_code(tmp_path: Path) -> None:
    answer = by_prompt(
        {
            "direct": [kernel("wrong", about="k0"), "No.", kernel(1.2)],
            "critic_wrong": [FIX],
            "critic_analysis": [FIX],
        }
    )
    played = run(tmp_path, "geak", answer, "budget.attempts=3")
    assert [one.prompt.partition("@")[0] for one in played.calls].count("direct") == 3
    assert played.parents == [(), ("0.0",), ("0.0",)]


def test_geaks_optimiser_writes_two_kernels_a_turn_from_the_given_one(tmp_path: Path) -> None:
    played = run(tmp_path, "geak_optim", usual(), *starting(tmp_path, 5))
    assert [one.slot for one in played.attempts] == [0, 1, 1, 2, 2]
    assert played.parents[:3] == [(), ("0.0",), ("0.0",)]
    fastest = sorted(played.attempts[:3], key=lambda one: -one.score)
    assert played.parents[3] == tuple(one.id for one in fastest)


# ---- populations


@pytest.mark.full
def test_ai_cuda_engineers_verifiers_let_four_of_eight_to_the_hardware(tmp_path: Path) -> None:
    """They read kernels, and what they think nothing of is neither run nor shown."""
    numbers = itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        if request.prompt.startswith("critic_vote"):
            [name] = shown(request.messages[-1].content)
            return json.dumps({"works": int(name[1:]) % 2 == 0, "reason": "so"})
        number = next(numbers)
        return kernel(f"{2 - number / 10:.1f}", about=f"k{number}")

    played = run(tmp_path, "ai_cuda_engineer", answer, "budget.attempts=16", *NVIDIA)
    assert played.prompts[:32] == ["direct"] * 8 + ["critic_vote"] * 24
    statuses = [str(attempt.status) for attempt in played.attempts[:8]]
    assert statuses == ["passed", "screened"] * 4
    bench = played.run.bench
    assert isinstance(bench, ScriptedBench)
    assert len(bench.evaluated) == 8, "four of each generation"
    second = asked(played, "direct")[8:]
    assert all(shown(text) == ["k6", "k4", "k2", "k0"] for text in second), "slow to fast"
    assert {one.parents for one in played.attempts[8:]} == {("0.0",)}
    assert all("Hardware counters" in text for text in second)
    feedback = played.run.plan.axes["feedback"]
    assert "launches" in str(feedback["sources"]), "what torch's profiler tells"
    assert all("The catalogue's kernel of" in text for text in second)


EVOENGINEERS = ("evoengineer_free", "evoengineer_insight", "evoengineer_full")


def evolved(folder: Path, name: str, answer: Answer, *overrides: str) -> Played:
    """Runs the preset as it is: four at once, from a kernel that is as fast as the framework."""
    given = [f"source={started(folder)}", "inflight=4", *overrides]
    return run(folder, f"evoengineer_{name}", answer, *given)


@pytest.mark.sampled()
@pytest.mark.parametrize("name", EVOENGINEERS)
def test_evoengineer_writes_four_from_nothing_and_nine_times_four_after_the_given_kernel(
    name: str, tmp_path: Path
) -> None:
    replies = itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        number = next(replies)
        return "I cannot." if number == 7 else kernel(f"{1.1 + number / 100:.2f}")

    played = evolved(tmp_path, name.rpartition("_")[2], answer)
    assert len(played.calls) == 40 and not played.stopped, "a reply without code is one of them"
    assert [bool(one.calls) for one in played.attempts] == [False, *[True] * 40]
    assert [one.operator for one in played.attempts[1:5]] == ["init"] * 4
    assert {call.params["temperature"] for call in played.calls} == {1.0}
    # Those of a generation are written side by side: each knows what was before all of them.
    for start in range(0, 40, 4):
        best = max(played.attempts[: 1 + start], key=lambda one: one.score)
        assert all(f"The best so far ({best.id})" in played.text(start + k) for k in range(4))


def test_evoengineer_free_is_shown_the_code_of_the_best_and_nothing_else(tmp_path: Path) -> None:
    played = evolved(tmp_path, "free", named(1.2, 1.5, "wrong", 1.1), "budget.attempts=9")
    assert {one.operator for one in played.attempts[1:]} == {"init"}
    assert set(played.parents) == {()} and set(played.prompts) == {"direct"}
    assert "// given" in played.text(3) and shown(played.text(3)) == []
    last = played.text(7).partition("## The best so far (2.0)")[2].partition("## Your answer")[0]
    assert last.split("```")[0].strip() == "" and last.split("```")[2].strip() == ""
    assert shown(last) == ["k1"]


@pytest.mark.sampled()
@pytest.mark.parametrize("name", ["insight", "full"])
def test_evoengineers_baseline_stands_with_time_kernels_and_thought_and_three_other_thoughts(
    name: str, tmp_path: Path
) -> None:
    """A thought says nothing of what came of it; that of a failing kernel is one too."""
    answer = named(1.2, "wrong", 1.5, 1.1)
    played = evolved(tmp_path, name, answer, "budget.attempts=9")
    assert played.run.plan.axes["feedback"]["sources"] == ["timing", "launches"]
    first, last = played.text(0), played.text(7)
    assert first.count("A thought from this run") == 1
    assert "It is the kernel that the run began with." in first
    best = last.partition("## The best so far (3.0)")[2].partition("## A thought")[0]
    assert "1.50 times as fast" in best and "The reasoning then: I made it 1.5." in best
    assert "Time:" in best and shown(best) == ["k2"]
    drawn = [
        re.findall(r"## A thought from this run\n(.+)", played.text(number))
        for number in (4, 5, 6, 7)
    ]
    assert all(len({*thoughts}) == 3 for thoughts in drawn) and len({*map(tuple, drawn)}) > 1
    said = {f"I made it {worth}." for worth in (1.2, "wrong", 1.5, 1.1)}
    assert {*itertools.chain(*drawn)} <= {*said, "It is the kernel that the run began with."}
    assert "I made it wrong." in itertools.chain(*drawn) and "What came of it" not in last


def test_evoengineer_full_crosses_two_and_mutates_two_in_each_generation(tmp_path: Path) -> None:
    worths = [1.2, 1.5, 1.1, 1.3, 1.4, 0.9, *(1 + k / 100 for k in range(40))]
    played = evolved(tmp_path, "full", named(*worths))
    operators = [one.operator for one in played.attempts[5:]]
    for start in range(0, 36, 4):
        assert sorted(operators[start : start + 4]) == ["crossover"] * 2 + ["mutate"] * 2
        population = sorted(played.attempts[: 5 + start], key=lambda one: -one.score)[:5]
        parents = {
            parent for one in played.attempts[5 + start : 9 + start] for parent in one.parents
        }
        assert parents <= {one.id for one in population}, "the five fastest stay"
    crossings = [one for one in played.attempts if one.operator == "crossover"]
    assert any(len({*one.parents}) == 1 for one in crossings), "one may be drawn twice"
    one, text = next(
        (one, text)
        for one, text in zip(crossings, asked(played, "crossover"), strict=True)
        if len({*one.parents}) == 2 and "0.0" not in one.parents
    )
    for number, parent in enumerate(one.parents, 1):
        [told] = re.findall(rf"## Parent {number}\n(.*?)\n\n```", text, re.DOTALL)
        score = next(each.score for each in played.attempts if each.id == parent)
        assert f"{score:.3g} times as fast" in told, "its time"
        assert "What its author said: I made it" in told and "Time" not in told
    assert "The best so far" in text and "A thought from this run" in text
    assert all("Change it substantially" in text for text in asked(played, "mutate"))


def test_evoengineer_full_begins_again_until_a_kernel_is_right_beside_the_given_one(
    tmp_path: Path,
) -> None:
    played = evolved(tmp_path, "full", named(*["wrong"] * 6, 1.2), "budget.attempts=13")
    operators = [one.operator for one in played.attempts[1:]]
    assert operators[:8] == ["init"] * 8
    assert sorted(operators[8:]) == ["crossover"] * 2 + ["mutate"] * 2


def test_alphaevolve_changes_the_given_kernel_by_edits_on_five_islands(tmp_path: Path) -> None:
    edits = itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        before = request.messages[-1].content.partition("## The kernel to change")[2]
        line = next(line for line in before.splitlines() if line.startswith("// worth"))
        now = f"// worth {1 + next(edits) / 100}"
        return f"<<<<<<< SEARCH\n{line}\n=======\n{now}\n>>>>>>> REPLACE\n"

    played = run(tmp_path, "alphaevolve", answer, *starting(tmp_path, 21))
    children = played.attempts[1:]
    assert {one.operator for one in children} == {"diff"} and set(played.prompts) == {"diff"}
    assert [one.island for one in children[:5]] == [1, 2, 3, 4, 0]
    assert {one.parents for one in children[:5]} == {("0.0",)}, "all islands begin with it"
    islands = {one.id: one.island for one in children}
    born = [(one.island, parent) for one in children[5:] for parent in one.parents]
    assert all(islands.get(parent, island) == island for island, parent in born)
    assert all("// given" in one.source for one in children)


# ---- a choice of what is built on


def test_kernelagents_optimiser_acts_on_two_bottlenecks_of_each_of_two_kernels(
    tmp_path: Path,
) -> None:
    learned = '{"problem": "still waits", "lessons": ["float4 helps"]}'
    answer = usual(critic_bottleneck=TWO, critic_analysis=learned)
    played = run(tmp_path, "kernelagent_opt", answer, *starting(tmp_path, 7))
    fixes = ["vectorise loads", "raise occupancy"]
    assert [one.arm for one in played.attempts[1:]] == fixes * 3
    assert played.parents[:3] == [(), ("0.0",), ("0.0",)]
    best = sorted(played.attempts[:3], key=lambda one: -one.score)[:2]
    assert played.parents[3:] == [(one.id,) for one in best for _ in fixes]
    texts = asked(played, "direct")
    for text, fix, other in zip(texts, fixes * 3, fixes[::-1] * 3, strict=True):
        kernel_to_change = text.partition("The kernel to build on")[2]
        assert f"What to do: {fix}" in kernel_to_change
        assert f"What to do: {other}" not in text and f"Also: {other}" not in text
        assert "What to do now" in text and text.rstrip().rpartition("What to do now")[2].strip()
    # The lines share what they tried and learned.
    assert all("What was tried lately" in text and "Lessons so far" in text for text in texts[2:])


def test_kernelagents_optimiser_looks_up_what_it_is_to_do(tmp_path: Path) -> None:
    columns = {"problem": "columns are read across lines", "method": "transpose tiles"}
    sums = {"problem": "sums wait for sums", "method": "scan a running sum in vectors"}
    advised = [{**columns, "bound": "memory"}, {**sums, "bound": "latency"}]
    answer = usual(critic_bottleneck=json.dumps({"bottlenecks": advised}))
    played = run(tmp_path, "kernelagent_opt", answer, *starting(tmp_path, 5))
    titles = ("From the guide to", "The catalogue's kernel of")
    found = [
        {line for line in text.splitlines() if line.startswith(tuple(f"## {t}" for t in titles))}
        for text in asked(played, "direct")
    ]
    assert all(found), "every prompt has something"
    assert found[0] != found[1], "by the bottleneck that it is about"


def test_kernelagents_reflexions_are_on_the_fix_that_was_tried(tmp_path: Path) -> None:
    answer = usual(critic_bottleneck=TWO)
    played = run(tmp_path, "kernelagent_opt", answer, *starting(tmp_path, 3))
    reflexions = asked(played, "critic_analysis")
    advised = [re.findall(r"The advice was: (.+)", text) for text in reflexions]
    assert sorted(advised) == [["raise occupancy"], ["vectorise loads"]], "none on the given kernel"


@pytest.mark.sampled()
@pytest.mark.parametrize("name", ["stark", "akg", "kernelband"])
def test_what_is_chosen_from_begins_with_one_kernel_however_many_may_be_written(
    name: str, tmp_path: Path
) -> None:
    more = [*starting(tmp_path), "strategy.mask=false"] if name == "kernelband" else []
    played = run(tmp_path, name, usual(), "inflight=4", *more, "budget.attempts=6")
    assert [bool(one.parents) for one in played.attempts] == [False, *[True] * 5]
    assert plan_of(read(["op=relu", f"preset={name}"])).inflight == 1


@pytest.mark.full
def test_kernelband_takes_twenty_actions_from_its_menu_of_six_after_the_given_kernel(
    tmp_path: Path,
) -> None:
    played = run(tmp_path, "kernelband", usual(), *starting(tmp_path), "strategy.mask=false")
    assert len(played.attempts) == 21 and not played.attempts[0].calls
    arms = {attempt.arm for attempt in played.attempts[1:]}
    assert arms == {"tiling", "vectorization", "fusion", "pipeline", "reordering", "access_layout"}
    assert {call.params["temperature"] for call in played.calls} == {1.0}
    with pytest.raises(ConfigError, match=r"feedback\.counters="):
        run(tmp_path / "blind", "kernelband", usual(), "feedback=default")


def test_starks_debugger_mends_what_failed_and_its_planner_marks_lines(tmp_path: Path) -> None:
    answer = by_prompt(
        {"plan": [PLAN], "realise": [kernel("wrong", about="bad")], "debug": [kernel(1.3)]}
    )
    played = run(tmp_path, "stark", answer, "budget.attempts=4", "strategy.epsilon=0.0")
    assert played.prompts == ["plan", "realise", "debug", "plan", "realise", "plan", "realise"]
    assert played.parents == [(), ("0.0",), ("1.0",), ("1.0",)], "the best grows"
    temperatures = [call.params["temperature"] for call in played.calls[:3]]
    assert temperatures == [0.8, 0.1, 0.1]
    assert "// bad" in asked(played, "debug")[0]
    assert "The leaderboard" not in asked(played, "debug")[0]
    last = asked(played, "plan")[-1], asked(played, "realise")[-1]
    assert all("What was tried on it" in text for text in last)


def test_akg_goes_by_confidence_over_parents_and_shows_three_others(tmp_path: Path) -> None:
    played = run(tmp_path, "akg", usual(), "budget.attempts=8")
    assert all(len(attempt.parents) == 1 for attempt in played.attempts[1:])
    counts = [text.count("## For inspiration") for text in asked(played, "direct")]
    assert counts == [0, 0, 1, 2, 3, 3, 3, 3]
    assert len(set(played.parents[1:])) > 2, "not the best alone"


def test_akgs_agent_tries_twenty_kernels_by_itself(tmp_path: Path) -> None:
    numbers = itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        if count % 2:
            return '{"tool": "try", "why": "to see"}'
        return '{"tool": "write", "why": "faster"}' + kernel(f"{1 + next(numbers) / 10:.1f}")

    played = play(tmp_path, answer, "preset=akg_autoresearch", *starting(tmp_path))
    assert len(played.attempts) == 21 and {one.slot for one in played.attempts} == {0, 1}
    assert "// given" in played.text(0)
