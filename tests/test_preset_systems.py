"""Presets with kinds of their own (portkern/agent/systems): what tells each system from others
happens, on a scripted model."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from portkern.agent import strategy
from portkern.agent.attempt import Attempt, Diagnosis, Status
from portkern.agent.llm.calls import ModelRequest
from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.systems.adaexplore import worth
from portkern.agent.systems.kernelfoundry import cell, in_force, told
from portkern.agent.systems.kernelskill import allowed
from portkern.agent.systems.ksearch import TreeEdits, WorldEdit, WorldModel
from portkern.cli.verbs.generate import plan_of, read
from tests.preset_pages import started
from tests.scripted import Answer, Played, by_prompt, kernel
from tests.test_preset_loops import asked, shown
from tests.test_presets import FIX, MACRO, PLAN, run, usual
from tests.test_strategy import attempt


def edit(request: ModelRequest, value: float, about: str) -> str:
    """A reply that changes the two lines of the given kernel that say what it is."""
    told = request.messages[-1].content.partition("## The kernel to change")[2].splitlines()
    at = next(k for k, line in enumerate(told) if line.startswith("// worth"))
    before = "\n".join(told[at : at + 2])
    after = f"// worth {value:.1f}\n// {about}"
    return f"<<<<<<< SEARCH\n{before}\n=======\n{after}\n>>>>>>> REPLACE\n"


# ---- AutoKernel


def test_autokernel_keeps_what_pays_and_undoes_everything_else(tmp_path: Path) -> None:
    """A gain below 1 %, what fails and what is slower is undone; five in a row end it."""
    worths: list[str | float] = [
        1.2,
        1.205,
        "wrong",
        1.1,
        1.5,
        "build_failed",
        1.49,
        1.4,
        1.3,
        "wrong",
    ]
    kernels = [kernel(worth, about=f"k{k}") for k, worth in enumerate(worths)]
    answer = by_prompt({"macro": [MACRO], "micro": kernels})
    played = run(tmp_path, "autokernel", answer, f"source={started(tmp_path / 'given')}")
    assert played.prompts == ["macro", "micro"] * 10 and not played.stopped
    kept = ["0.0", *["1.0"] * 4, *["5.0"] * 5]
    assert played.parents[1:] == [(name,) for name in kept]
    last = asked(played, "macro")[-1]
    assert all(f"- {name}: vectorization" in last for name in ("2.0", "3.0", "9.0")), "the log"
    assert shown(asked(played, "micro")[-1]) == ["k4"]


def test_autokernel_ends_at_twice_the_speed_and_takes_a_shorter_file_that_costs_nothing(
    tmp_path: Path,
) -> None:
    long = "// filled up\n" * 20
    kernels = [kernel(1.2, about=long), kernel(1.195), kernel(1.19, about=long), kernel(2.0)]
    answer = by_prompt({"macro": [MACRO], "micro": kernels})
    played = run(tmp_path, "autokernel", answer, f"source={started(tmp_path / 'given')}")
    assert played.parents[1:] == [("0.0",), ("1.0",), ("2.0",), ("2.0",)]


# ---- AdaExplore


def steps(played: Played) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.operator, one.parents) for one in played.attempts]


def test_adaexplore_refines_in_small_steps_and_writes_anew_in_large_ones(tmp_path: Path) -> None:
    """A small step is reviewed and edits its parent, whose line it sees; a large one builds on
    nothing, and sees the best of each branch on its way."""
    numbers = itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        name = request.prompt.partition("@")[0]
        number = next(numbers) if name in ("direct", "diff") else 0
        if name == "diff":
            return edit(request, 1 + number / 10, f"k{number}")
        return PLAN if name == "plan" else kernel(f"{1 + number / 10:.1f}", about=f"k{number}")

    played = run(tmp_path, "adaexplore", answer, "budget.attempts=14", "strategy.p_large=0.4")
    made = steps(played)
    assert {operator for operator, _ in made} == {"large", "small"}
    assert made[0] == ("large", ()) and all(not up for operator, up in made if operator == "large")
    small = [one for one in played.attempts if one.operator == "small"]
    children = Counter(one.parents for one in small)
    assert max(children.values()) <= 2, "two small steps, then a large one"
    for one in small:
        calls = [call for call in played.calls if call.id in one.calls]
        assert [call.prompt.partition("@")[0] for call in calls] == ["plan", "diff"]
        line = played.run.log.ancestors(one.id)[:-1]
        text = "\n".join(message.content for message in calls[0].messages)
        assert all(other.source.splitlines()[1] in text for other in line[-5:])
    pools = [text.count("## For inspiration") for text in asked(played, "direct")]
    assert pools[0] == 0 and max(pools) >= 1, "large steps from below see what is above"
    assert {call.params["max_tokens"] for call in played.calls} == {16_384}


def test_adaexplore_goes_by_what_came_of_all_below_a_node() -> None:
    """The bounds are worked out here anew, from the attempts alone."""
    search = strategy.load({"kind": "adaexplore", "p_large": 0.0}, arms=(), seed=0)
    log, rewards, above = Log(), dict[str, float](), dict[str, str]()
    worths = [1.0, 3.0, 0.0, 0.5, 8.0, 2.0, 0.0, 1.5, 4.0, 6.0]
    for number, score in enumerate(worths):
        [slot] = search.ask(log, 1)
        slot = replace(slot, number=number)
        here = slot.parents[0] if slot.parents else search.state.at  # type: ignore[attr-defined]
        status = Status.PASSED if score else Status.WRONG
        one = attempt(slot, score=score, status=status)
        log.add([one])
        search.tell(slot, [one])
        assert here == selected(above, rewards), number
        above[one.id], rewards[one.id] = here, worth(one)


def selected(above: dict[str, str], rewards: dict[str, float]) -> str:
    def below(name: str) -> list[str]:
        return [each for each, up in above.items() if up == name]

    def tree(name: str) -> list[float]:
        mine = [rewards[name]] if name else []
        return [*mine, *(reward for each in below(name) for reward in tree(each))]

    at = ""
    while children := below(at):
        parent = math.log(len(tree(at)))
        bounds = {c: mean(tree(c)) + 0.3 * math.sqrt(parent / len(tree(c))) for c in children}
        another = max(mean(tree(c)) for c in children) + 0.3 * math.sqrt(parent) / len(children)
        best = max(children, key=lambda c: bounds[c])
        if another > bounds[best]:
            break
        at = best
    return at


def test_adaexplore_tells_a_rule_that_three_failures_taught_also_to_later_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    rule = '{"rule": "You cannot call frob%s inside of a kernel."}'
    answer = by_prompt(
        {
            "direct": [kernel("build_failed", about=f"k{k}") for k in range(9)],
            "diff": ["no edits"],
            "critic_rule": [rule % "", '{"rule": ""}', rule % "", rule % " twice", rule % ""],
        }
    )
    given = ("strategy.p_large=1.0", "memory.keep=true")
    played = run(tmp_path / "first", "adaexplore", answer, "budget.attempts=6", *given)
    ruled = ["What failures have shown" in text for text in asked(played, "direct")]
    assert ruled == [False, False, False, False, True, True]
    later = run(tmp_path / "second", "adaexplore", answer, "budget.attempts=1", *given)
    assert "You cannot call frob inside of a kernel" in later.text(0)


# ---- K-Search


def inserted(*actions: tuple[int, str, float, int]) -> str:
    edits = [
        {"op": "insert", "under": under, "title": title, "score": score, "difficulty": difficulty}
        for under, title, score, difficulty in actions
    ]
    return json.dumps({"summary": "bytes", "edits": edits})


def test_ksearch_takes_the_actions_that_its_world_thinks_most_of_and_edits_it_by_what_they_bring(
    tmp_path: Path,
) -> None:
    begun = inserted((0, "tile", 0.9, 2), (0, "fuse", 0.6, 2), (0, "rewrite", 0.95, 5))
    after_tile = inserted((1, "unroll", 0.8, 2), (1, "pad", 0.3, 2), (0, "split", 0.2, 1))
    hard = json.dumps({"edits": [{"op": "update", "node": 5, "score": 0.9, "difficulty": 1}]})
    answer = by_prompt(
        {
            "critic_world": [begun, after_tile, hard, hard],
            "direct": [
                *[kernel(1.5, about="k0"), kernel(1.4, about="k1"), kernel("wrong", about="k2")],
                *[kernel("wrong", about=f"k{k}") for k in (3, 4)],
                *[kernel(1.8, about="k5"), kernel(1.7, about="k6"), kernel(1.6, about="k7")],
            ],
        }
    )
    given = (f"source={started(tmp_path / 'given')}", "critic.window=2", "budget.attempts=9")
    played = run(tmp_path, "ksearch", answer, *given)
    arms = ["", *["tile"] * 3, *["unroll"] * 2, *["pad"] * 3]
    assert [one.arm for one in played.attempts] == arms, "a hard one waits, however promising"
    # The first try is made of the kernel above, the next of the one before, the best beside it.
    up = [one.parents[0] for one in played.attempts[1:]]
    assert up == ["0.0", "1.0", "2.0", "1.0", "4.0", "1.0", "6.0", "7.0"]
    texts = asked(played, "direct")
    assert shown(texts[2]) == ["k0", "k1"] or shown(texts[2]) == ["k1", "k0"]
    # An action that came to nothing is the hardest, and the edits that follow are in later prompts.
    assert "unroll (score 0.8, difficulty 5, rating 0, came to nothing once)" in texts[-1]
    assert "pad (score 0.9, difficulty 1" in texts[-1] and "tile (done, 1.50 times" in texts[-1]
    stages = asked(played, "critic_world")
    assert "The action that is over" not in stages[0] and "tile" in stages[1]
    assert "It came to no right kernel" in stages[2] and "// k0" not in stages[2]
    assert "// k0" in stages[1] and "// k2" not in stages[1], "the best that came of it"


def test_ksearch_asks_again_where_too_little_is_open_and_goes_on_without_an_action(
    tmp_path: Path,
) -> None:
    replies = ['{"edits": []}', inserted((9, "nowhere", 1, 1)), '{"edits": [{"op": "insert"}]}']
    answer = by_prompt({"critic_world": replies, "direct": [kernel(1.5)]})
    played = run(tmp_path, "ksearch", answer, f"source={started(tmp_path / 'given')}")
    assert played.prompts[:3] == ["critic_world"] * 3
    assert len(played.attempts) == 21, "the given kernel and all trials"
    assert all("0 actions can be tried" in text for text in asked(played, "critic_world"))


def test_ksearch_takes_of_an_answer_what_can_be_made_out_and_three_new_actions_at_most() -> None:
    several: list[dict[str, object]] = [
        {"op": "insert", "title": "first", "score": "7", "difficulty": -1},
        {"op": "insert", "title": "no number", "score": "nan"},
        {"op": "insert", "title": ["a", "list"], "rating": 10**400},
        {"op": "explode"},
        {"op": "update", "node": "the first"},
        {"op": "insert", "title": "third"},
        {"op": "insert", "title": "fourth"},
    ]
    edits = TreeEdits.model_validate({"edits": several}).readable
    assert [edit.title for edit in edits] == ["first", "a; list", "third"]
    assert (edits[0].score, edits[0].difficulty, edits[1].rating) == (1.0, 1.0, 10.0)
    world = WorldModel([])
    assert world.apply([*edits, *edits]) == list(edits), "an action is there once"
    assert world.apply([WorldEdit(op="delete"), WorldEdit(op="update", node=9, score=1)]) == []
    assert [node.action for node in world.open] == ["first", "a; list", "third"]


# ---- KernelBlaster


def ranked(**relevance: float) -> str:
    several = [{"technique": name, "relevance": value} for name, value in relevance.items()]
    return json.dumps({"techniques": several})


def test_kernelblaster_learns_what_a_technique_brings_in_a_state_and_tells_later_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    answer = by_prompt(
        {
            "critic_bottleneck": [FIX],
            "ranked": [ranked(fuse=1.0, pad=0.0)],
            "direct": [kernel(1.5, about="k0"), kernel("wrong", about="k1"), kernel(3.0)],
            "debug": [kernel(2.25, about="mended")],
        }
    )
    given = [f"source={started(tmp_path / 'given')}", "feedback.counters=none", "strategy.k=1"]
    given += ["memory.keep=true"]
    played = run(tmp_path / "first", "kernelblaster", answer, *given, "budget.attempts=5")
    assert [one.operator for one in played.attempts[1:]] == ["apply", "apply", "debug", "apply"]
    assert {one.arm for one in played.attempts[1:]} == {"fuse"}, "drawn by the cube of relevance"
    texts = asked(played, "ranked")
    title = "What techniques brought where the limit was: memory"
    assert title not in texts[0], "nothing is known yet"
    assert "fuse: mean gain 1.50 over 1, correct 1 of 1, confidence 0.5" in texts[1]
    # What is mended is the technique's, over the kernel that it was applied to.
    assert "fuse: mean gain 1.50 over 2, correct 2 of 3, confidence 0.6" in texts[2]
    later = run(tmp_path / "second", "kernelblaster", answer, *given, "budget.attempts=2")
    assert title in asked(later, "ranked")[0] and "correct 3 of 4" in asked(later, "ranked")[0]


def test_kernelblaster_draws_by_the_cube_of_relevance_on_ten_lines_that_share_what_they_learn(
    tmp_path: Path,
) -> None:
    answer = usual(ranked=ranked(much=1.0, some=0.5, none=0.0), critic_bottleneck=FIX)
    given = [f"source={started(tmp_path / 'given')}", "feedback.counters=none"]
    played = run(tmp_path, "kernelblaster", answer, *given, "budget.attempts=41")
    assert {one.island for one in played.attempts} == set(range(10))
    drawn = Counter(one.arm for one in played.attempts[1:])
    assert drawn["much"] > 3 * drawn["some"] > 0 and drawn["none"] <= 2
    last = asked(played, "ranked")[-1]
    assert f"over {drawn['much'] - (played.attempts[-1].arm == 'much')}," in last


# ---- KernelSkill


def test_kernelskill_optimises_its_base_by_one_method_and_mends_what_fails_before_it_goes_on(
    tmp_path: Path,
) -> None:
    worths: list[float | str] = [1.2, "wrong", 1.9, 1.1, 1.3]
    kernels = [kernel(worth, about=f"k{k}") for k, worth in enumerate(worths)]
    methods = [f'{{"action": "{name}", "why": "bytes"}}' for name in ("coalesce", "vectorise")]
    answer = by_prompt(
        {
            "direct": [kernel("build_failed", about="seed")],
            "debug": [kernels[0], kernels[2]],
            "macro": methods,
            "micro": [kernels[1], kernels[3], kernels[4]],
            "critic_repair": [FIX],
        }
    )
    played = run(tmp_path, "kernelskill", answer, "budget.attempts=6", "feedback.counters=none")
    operators = ["init", "debug", "optimise", "debug", "optimise", "optimise"]
    assert [one.operator for one in played.attempts] == operators
    # 1.9 is the new base, 1.1 and 1.3 are not.
    assert played.parents == [(), ("0.0",), ("1.0",), ("2.0",), ("3.0",), ("3.0",)]
    assert [one.arm for one in played.attempts[2:5]] == ["coalesce", "coalesce", "vectorise"]
    menus = asked(played, "macro")
    assert "- coalesce:" in menus[0] and "- coalesce:" in menus[1], "it was not tried on this base"
    assert "- vectorise:" not in menus[2] and "- more_per_thread:" in menus[2]
    assert "2.0: coalesce" in menus[1].partition("What was tried lately")[2]
    sampling = {(call.params["temperature"], call.params["max_tokens"]) for call in played.calls}
    assert sampling == {(1.0, 16_384)}


@pytest.mark.parametrize(
    ("op", "source", "metrics", "methods"),
    [
        ("relu", "x[i]", {"roofline_pct": 80.0}, {"coalesce", "vectorise", "more_in_flight"}),
        ("relu", "float4 v;", {"roofline_pct": 80.0}, {"refine_vectors", "more_in_flight"}),
        ("matmul", "x[i]", {"memory_pct": 20.0, "compute_pct": 90.0}, {"matrix_units", "tile"}),
        ("matmul", "wmma", {"memory_pct": 20.0, "compute_pct": 90.0}, {"fewer_instructions"}),
        ("relu", "x", {"memory_pct": 9.0, "compute_pct": 9.0, "spills": 8.0}, {"fewer_registers"}),
        ("relu", "x", {"median_us": 1.0}, {"fewer_launches", "launch"}),
    ],
)
def test_kernelskill_allows_methods_by_what_was_measured_and_what_the_code_has(
    op: str, source: str, metrics: dict[str, float], methods: set[str]
) -> None:
    task = plan_of(read([f"op={op}", "target=h200", "backend=cuda"])).task
    base = attempt(Slot(number=0), score=1.0, source=source, metrics=metrics)
    names = {arm.name for arm in allowed(base, task, Log())}
    assert methods <= names and all(arm.text for arm in allowed(base, task, Log()))
    assert ("matrix_units" in names) == ("matrix_units" in methods)
    assert ("vectorise" in names) == ("vectorise" in methods)


# ---- AVO and AKO


def agent(*worths: float | str) -> Answer:
    """Writes and tries in turns, and is done after the last of a session's tries."""
    kernels = iter([kernel(worth, about=f"k{k}") for k, worth in enumerate(worths)])

    def answer(request: ModelRequest, count: int) -> str:
        if request.prompt.startswith("critic"):
            return '{"problem": "it goes in circles", "directions": ["another algorithm"]}'
        said = request.messages[-1].content
        if said.endswith("No tries are left; answer with the tool 'done'."):
            return '{"tool": "done"}'
        if said == "Written.":
            return '{"tool": "try", "why": "to see"}'
        return '{"tool": "write", "why": "faster"}' + next(kernels)

    return answer


def test_avos_agent_goes_on_from_what_it_committed_and_a_supervisor_from_where_it_stalls(
    tmp_path: Path,
) -> None:
    worths: list[float | str] = [1.2, "wrong", 1.1, 1.15, 1.0, "wrong", 1.19, 1.05, 1.3, 1.1]
    given = (f"source={started(tmp_path / 'given')}", "feedback.counters=none")
    session = ("strategy.offspring=2", "proposer.tries=2", "critic.stalled=2", "budget.attempts=11")
    played = run(tmp_path, "avo", agent(*worths), *given, *session)
    # The first session commits 1.2, the next three nothing.
    built_on = [one.parents for one in played.attempts[1::2]]
    assert built_on == [("0.0",), *[("1.0",)] * 4]
    assert played.prompts.count("critic_stalled") == 1
    [review] = asked(played, "critic_stalled")
    assert "- 3.1: to see; wrong" in review and "// k0" in review, "all that was tried, the best"
    begun = [call for call in played.calls if [m.role for m in call.messages] == ["system", "user"]]
    sessions = [call for call in begun if call.prompt.startswith("tool_agent")]
    directed = ["another algorithm" in call.messages[-1].content for call in sessions]
    assert directed == [False, False, False, False, True]


def test_akos_iterations_are_one_evaluation_each_with_their_log_and_a_review_after_three(
    tmp_path: Path,
) -> None:
    worths: list[float | str] = [1.5, 1.4, "build_failed", 1.3, 1.6]
    given = (f"source={started(tmp_path / 'given')}", "feedback.counters=none")
    played = run(tmp_path, "ako", agent(*worths), *given, "budget.attempts=6")
    assert [one.siblings for one in played.attempts] == [1] * 6
    assert [one.parents for one in played.attempts[1:]] == [("0.0",), *[("1.0",)] * 4]
    last = asked(played, "tool_agent")[-1]
    log = last.partition("What was tried lately")[2]
    assert all(f"- {k}.0: to see" in log for k in (0, 2, 3, 4)) or "- 2.0: to see; passed" in log
    assert "another algorithm" in last and played.prompts.count("critic_stalled") == 1


# ---- KernelFoundry


def test_kernelfoundry_keeps_the_fastest_of_each_place_and_aims_one_level_higher(
    tmp_path: Path,
) -> None:
    traits = ["", "float4 v;", "__shared__ x", "cp.async", "__shfl", "float4 __shfl", "TILE"]
    numbers = itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        if request.prompt.startswith("critic"):
            return '{"problem": "bytes", "guidance": ["mind odd rows"]}'
        number = next(numbers)
        trait = traits[number % len(traits)]
        return kernel(f"{1 + number % 9 / 10:.1f}", about=f"k{number} {trait}")

    played = run(tmp_path, "kernelfoundry", answer, "strategy.diversify=0.0", "inflight=4")
    assert len(played.attempts) == 40 and not played.stopped
    operators = [one.operator for one in played.attempts]
    assert operators == ["init"] * 4 + ["mutate"] * 36
    known = {one.id: one for one in played.attempts}
    for number, one in enumerate(played.attempts[4:], 4):
        generation = played.attempts[: number - number % 4]
        best: dict[tuple[int, ...], float] = {}
        for other in generation:
            place = cell(other.source)
            best[place] = max(best.get(place, 0.0), other.score)
        parent = known[one.parents[0]]
        assert parent.score == best[cell(parent.source)], "the fastest of its place"
        assert one.arm in {told(aim) for aim in steps_up(cell(parent.source))}
    places = {cell(known[one.parents[0]].source) for one in played.attempts[4:]}
    assert len(places) >= 4, "slower ones of other places have children too"
    texts = asked(played, "mutate")
    assert all("What to do now" in text for text in texts)
    guided = ["mind odd rows" in text for text in texts]
    assert any(guided) and not any(guided[:4]), "guidance comes of what was tried"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("y[i] = x[i];", (0, 0, 0)),
        ("float4 v = x[i]; sum += v.x;", (1, 1, 0)),
        ("__shared__ float s[32]; __syncthreads(); float running_max;", (2, 2, 1)),
        ("cp.async; tile; __shfl_xor_sync", (3, 3, 2)),
        ("#pragma omp parallel for reduction(+:s)\n#pragma omp simd", (1, 0, 3)),
    ],
)
def test_kernelfoundry_finds_a_kernels_place_in_its_text(
    source: str, place: tuple[int, ...]
) -> None:
    assert cell(source) == place


def test_kernelfoundry_goes_back_to_the_guidance_under_which_kernels_gained_more() -> None:
    def one(slot: int, score: float, *lines: str) -> Attempt:
        said = Diagnosis(critic="kernelfoundry", problem="p", lessons=lines) if lines else None
        parents = ("0.0",) if slot else ()
        return attempt(Slot(parents=parents, number=slot), score=score, diagnosis=said)

    first = [one(0, 1.0), one(1, 1.0, "old"), one(2, 2.0), one(3, 1.5)]
    assert list(in_force(first[:2])) == ["old"] == list(in_force(first))
    worse = [*first, one(4, 1.8, "new"), one(5, 1.1)]
    assert list(in_force(worse[:5])) == ["new"] and list(in_force(worse)) == ["old"]
    better = [*first, one(4, 1.8, "new"), one(5, 3.0)]
    assert list(in_force(better)) == ["new"]


def steps_up(place: tuple[int, ...]) -> list[tuple[int, ...]]:
    """One level higher in one respect; all of them are at most 3."""
    return [(*place[:k], place[k] + 1, *place[k + 1 :]) for k in range(3) if place[k] < 3]
