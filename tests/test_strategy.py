"""Search strategies: what each asks for next, and that none of them degenerates silently."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from portkern.agent import strategy as strategies
from portkern.agent import systems
from portkern.agent.attempt import Attempt, Diagnosis, FurtherBottleneck, Status
from portkern.agent.log import Log
from portkern.agent.slot import Arm, Slot
from portkern.agent.strategy.bandit import Bandit, features
from portkern.agent.strategy.clusters import Clusters
from portkern.agent.strategy.evolutionary import Evolutionary
from portkern.agent.strategy.graph import MctsGraph
from portkern.agent.strategy.population import PopulationPolicy, distance
from portkern.agent.strategy.search import Search
from portkern.errors import ConfigError

CONF = Path(__file__).parents[1] / "conf" / "strategy"
ARMS = [
    Arm("tiling", resource="cache"),
    Arm("vectorization", resource="memory"),
    Arm("fusion", resource="memory"),
    Arm("pipeline", resource="compute"),
    Arm("rename"),
]
ARM_NAMES = [arm.name for arm in ARMS]
#: What comes of a slot.
World = Callable[[Slot], Sequence[Attempt]]


def load(kind: str, **options: Any) -> Search:
    """A strategy with all arms and the seed 0, from no given kernel, unless ``menu``, ``seed`` and
    ``given`` say otherwise."""
    menu, seed, start = (
        options.pop("menu", ARMS),
        options.pop("seed", 0),
        options.pop("given", False),
    )
    return strategies.load({"kind": kind} | options, arms=menu, seed=seed, given=start)


# ---- a run without models and devices


def attempt(slot: Slot, k: int = 0, score: float = 0.0, **facts: Any) -> Attempt:
    """Correct when it has a score."""
    name = f"{slot.number}.{k}"
    told: dict[str, Any] = {
        "status": Status.PASSED if score else Status.WRONG,
        "source": f"kernel {name}",
        "digest": name,
    }
    return Attempt(
        id=name,
        slot=slot.number,
        number=k,
        parents=slot.parents,
        arm=slot.arm,
        score=score,
        operator=slot.operator,
        phase=slot.phase,
        island=slot.island,
        op="relu",
        target="sm_90",
        backend="cuda",
        **(told | facts),
    )


def diagnosed(fix: str, *others: str) -> Diagnosis:
    """A diagnosis with a bottleneck for each fix."""
    return Diagnosis(
        critic="bottleneck",
        problem=f"wants {fix}",
        fix=fix,
        others=tuple(FurtherBottleneck(problem=f"wants {other}", fix=other) for other in others),
    )


def scores(*values: float | None) -> World:
    """One attempt for each slot, in order: its score, 0 where it fails, None without code; the last
    again for all others."""

    def world(slot: Slot) -> Sequence[Attempt]:
        value = values[min(slot.number, len(values) - 1)]
        if value is None:
            return [attempt(slot, status=Status.NO_CODE, source="", digest="")]
        return [attempt(slot, score=value)]

    return world


def chaos(seed: int) -> World:
    """Everything that can come of slots, and now and then less than was asked for."""

    def one(slot: Slot, k: int, drawn: Random) -> Attempt:
        source = "\n".join(f"line {drawn.randrange(9)}" for _ in range(drawn.randrange(1, 9)))
        metrics = {
            name: drawn.uniform(0, 100) if drawn.random() < 0.9 else math.inf
            for name in (
                "median_us",
                "registers",
                "occupancy",
                "threads",
                "memory_pct",
                "compute_pct",
                "l2_pct",
            )
            if drawn.random() < 0.7
        }
        facts: dict[str, Any] = {"source": source, "metrics": metrics}
        if drawn.random() < 0.02:
            facts["diagnosis"] = Diagnosis(critic="rules", problem="none", stop=True)
        elif drawn.random() < 0.5:
            facts["diagnosis"] = diagnosed(*drawn.sample(["unroll", "", "vectorise"], 2))
        if drawn.random() < 0.5:
            return attempt(slot, k, drawn.choice([0.5, 1.0, drawn.uniform(0.1, 9)]), **facts)
        status = drawn.choice(
            [
                Status.WRONG,
                Status.BUILD_FAILED,
                Status.SCREENED,
                Status.DUPLICATE,
                Status.UNAVAILABLE,
                Status.NO_CODE,
            ]
        )
        if status is Status.NO_CODE:
            facts["source"] = ""
        return attempt(slot, k, **(facts | {"status": status}))

    def world(slot: Slot) -> Sequence[Attempt]:
        drawn = Random(f"{seed} {slot.number}")
        count = slot.size if drawn.random() < 0.9 else drawn.randrange(slot.size)
        return [one(slot, k, drawn) for k in range(count)]

    return world


@dataclass
class Course:
    """The course of a run: its slots, and its questions and answers in their order."""

    slots: list[Slot] = field(default_factory=list)
    steps: list[tuple[int, list[Slot]] | tuple[Slot, Sequence[Attempt]]] = field(
        default_factory=list
    )
    log: Log = field(default_factory=Log, compare=False)

    def of(self, number: int) -> list[Attempt]:
        return [one for one in self.log if one.slot == number]


def play(
    search: Search,
    world: World,
    *,
    window: int = 1,
    limit: int = 60,
    between: Callable[[Search], Search] = lambda search: search,
) -> Course:
    """Plays a strategy as the loop does: up to ``window`` slots are out, and come back in the order
    of asking. ``limit`` slots are the budget. A given kernel is waited for, and is one attempt."""
    course = Course()
    out: deque[Slot] = deque()
    soft = getattr(search.options, "selection", "") == "soft_rank"
    while True:
        search = between(search)
        room = min(window - len(out), limit - len(course.slots))
        if search.given and not len(course.log):
            room = 0 if out else 1
        asked = search.ask(course.log, room) if room else []
        assert len(asked) <= room
        if room:
            course.steps.append((room, asked))
        for slot in asked:
            check(slot, course.log, twice=soft)
            numbered = replace(slot, number=len(course.slots))
            out.append(numbered)
            course.slots.append(numbered)
        if not out:
            return course
        slot = out.popleft()
        attempts = world(slot)
        if search.given and slot.number == 0:
            attempts = [*attempts, attempt(slot)][:1]
        course.log.add(attempts)
        search = between(search)
        search.tell(slot, attempts)
        course.steps.append((slot, attempts))


def check(slot: Slot, log: Log, *, twice: bool = False) -> None:
    """Checks what holds for the slots of all strategies. ``twice``: one may be both parents."""
    known = {one.id: one for one in log}
    assert slot.number == -1
    assert {*slot.parents, *slot.shown, *slot.thoughts} <= known.keys()
    parents_of = dict.fromkeys(slot.parents) if twice else slot.parents
    for named in ([*parents_of, *slot.shown], slot.thoughts):
        assert len({*named}) == len(named)
    parents = [known[name] for name in slot.parents]
    assert all(parent.source and parent.status is not Status.DUPLICATE for parent in parents)
    takes = {"init": 0, "mutate": 1, "diff": 1, "crossover": 2}
    if slot.operator in takes:
        assert len(parents) == takes[slot.operator]
        assert all(parent.correct for parent in parents)
    if slot.operator == "debug":
        assert not parents[0].correct


# ---- what holds for all of them

maybe = st.none() | st.integers(1, 6)
LINE = {
    "turns": maybe,
    "parent": st.sampled_from(["first", "last", "best"]),
    "offspring": st.integers(1, 3),
    "phases": st.sampled_from([[], ["functional", "optimise"]]),
    "debug_trap": maybe,
    "stop_gain": st.none() | st.just(1.05),
    "seeded": st.booleans(),
    "pool": maybe,
}
OPERATORS = [
    {"init": 1},
    {"crossover": 2, "mutate": 1},
    {"diff": 0.6, "mutate": 0.3, "crossover": 0.1},
    {"mutate": 1, "init": 0.5},
]
EDGES = [{}, {"": ["tiling", "fusion"], "tiling": ["pipeline"], "pipeline": ["tiling"]}]
OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "single": {},
    "best_of_n": {"n": st.integers(1, 9)},
    "refine": LINE | {"until": st.sampled_from(["", "correct"])},
    "parallel_refine": LINE | {"k": st.integers(1, 4), "early_exit": st.booleans()},
    "branching": {
        "rounds": maybe,
        "ideas": st.integers(1, 3),
        "impls": st.integers(1, 3),
        "seeds": st.integers(1, 3),
        "bank": st.integers(0, 4),
    },
    "beam": {
        "width": st.integers(1, 3),
        "expand": st.integers(1, 3),
        "rounds": maybe,
        "turns": st.integers(1, 3),
        "repeat": st.integers(1, 3),
        "arms": st.integers(0, 3),
        "prescribed": st.integers(0, 2),
        "diverging": st.none() | st.just(1.5),
        "keep": st.sampled_from(["pool", "children"]),
    },
    "evolutionary": {
        "islands": st.integers(1, 4),
        "population": st.integers(2, 5),
        "init": st.integers(1, 3),
        "viable": st.integers(0, 1),
        "mode": st.sampled_from(["single", "elite", "diverse", "map_elites"]),
        "features": st.sampled_from([["complexity"], ["complexity", "diversity", "registers"]]),
        "bins": st.integers(1, 4),
        "batch": st.integers(1, 4),
        "barrier": st.booleans(),
        "generations": maybe,
        "trials": st.none() | st.integers(1, 30),
        "operators": st.sampled_from(OPERATORS),
        "tournament": st.integers(1, 3),
        "selection": st.sampled_from(["rank", "soft_rank", "tournament"]),
        "inspirations": st.integers(0, 3),
        "thoughts": st.integers(0, 3),
        "migrate_every": maybe,
    },
    "bandit": {
        "items": st.sampled_from(["clusters", "parents"]),
        "trials": maybe | st.just(40),
        "clusters": st.integers(1, 3),
        "tau": st.integers(1, 5),
        "mask": st.booleans(),
        "inspirations": st.integers(0, 3),
    },
    "tree_eps": {
        "trials": maybe | st.just(40),
        "epsilon": st.floats(0, 1),
        "root_throttle": maybe,
        "prune_after": maybe,
        "leaf_bias": st.floats(0, 1),
        "shown": st.sampled_from([[], ["siblings"], ["children", "siblings", "leaderboard"]]),
    },
    "mcts_graph": {
        "trials": maybe | st.just(40),
        "depth": st.integers(1, 4),
        "edges": st.sampled_from(EDGES),
    },
    "staged": {
        "sequence": st.lists(st.sampled_from(ARM_NAMES), max_size=4),
        "tries": st.integers(1, 4),
        "rollback": st.booleans(),
        "min_gain": st.sampled_from([1.0, 1.1]),
    },
}
OPTIONS |= {  # of single systems
    "geak_v4": {
        "budget": st.integers(1, 6),
        "directions": st.integers(1, 3),
        "tries": st.integers(1, 3),
        "idle": st.integers(1, 3),
    },
    "cupilot": {
        "population": st.integers(2, 5),
        "init": st.integers(1, 3),
        "batch": st.integers(1, 4),
        "generations": maybe,
        "operators": st.just({"crossover": 1}),
        "selection": st.sampled_from(["rank", "tournament"]),
        "revisions": st.integers(0, 2),
    },
    "adaexplore": {
        "trials": maybe,
        "p_large": st.floats(0, 1),
        "small_steps": st.integers(1, 3),
        "pool": st.integers(1, 3),
    },
    "autokernel": {"reverts": maybe, "simpler": st.none() | st.just(0.9), "enough": st.none()},
    "kernelfoundry": {
        "init": st.integers(1, 4),
        "batch": st.integers(1, 3),
        "operators": st.just({"mutate": 1}),
        "diversify": st.floats(0, 1),
    },
    "kernelskill": {"rounds": maybe, "factor": st.sampled_from([1.0, 1.3])},
    "accelopt": {
        "rounds": maybe,
        "candidates": st.integers(1, 3),
        "plans": st.integers(1, 3),
        "impls": st.integers(1, 2),
    },
}
every_kind = pytest.mark.parametrize("kind", strategies.names())
#: All strategies, with those of single systems.
every_search = pytest.mark.parametrize("kind", [*strategies.names(), *systems.PARTS["strategy"]])
few = settings(max_examples=50, deadline=None)


@st.composite
def settings_of(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """Some of the options, which go together, and a seed."""
    options = draw(st.fixed_dictionaries({}, optional=OPTIONS.get(kind, {})))
    if options.get("mode") == "single":
        options["operators"] = {"mutate": 1}
    if options.get("migrate_every"):
        options["islands"] = max(2, options.get("islands", 2))
    return options | {"seed": draw(st.integers(0)), "given": draw(st.booleans())}


@every_search
@few
@given(data=st.data(), window=st.sampled_from([1, 4]))
def test_slots_fit_the_room_and_build_on_what_is_known(
    kind: str, data: st.DataObject, window: int
) -> None:
    search = load(kind, **data.draw(settings_of(kind)))
    course = play(search, chaos(data.draw(st.integers(0, 99))), window=window)
    assert course.slots
    if not course.steps[-1][1] and len(course.slots) < 60:
        assert search.ask(course.log, 9) == [], "who is done stays done"


@every_search
@few
@given(data=st.data(), window=st.sampled_from([1, 3]))
def test_a_state_that_went_through_json_at_any_time_changes_nothing(
    kind: str, data: st.DataObject, window: int
) -> None:
    options, world = data.draw(settings_of(kind)), chaos(data.draw(st.integers(0, 99)))
    swap = data.draw(st.randoms(use_true_random=False))

    def between(search: Search) -> Search:
        if swap.random() < 0.5:
            return search
        state = json.loads(json.dumps(search.state_dict()))
        search = load(kind, **options)
        search.load_state_dict(state)
        assert search.state_dict() == state
        return search

    course = play(load(kind, **options), world, window=window, limit=40)
    assert course == play(load(kind, **options), world, window=window, limit=40, between=between)


@every_search
@few
@given(data=st.data(), window=st.sampled_from([1, 3]))
def test_a_run_that_is_told_again_beside_its_complete_log_asks_the_same(
    kind: str, data: st.DataObject, window: int
) -> None:
    options = data.draw(settings_of(kind))
    world = chaos(data.draw(st.integers(0, 99)))
    course = play(load(kind, **options), world, window=window, limit=40)
    again = load(kind, **options)
    for first, second in course.steps:
        if isinstance(first, int):
            assert again.ask(course.log, first) == second
        else:
            again.tell(first, second)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "slots"),
    {
        "bandit": 20,
        "beam": 10,
        "best_of_n": 10,
        "branching": 9,
        "evolutionary": 35,
        "mcts_graph": 100,
        "parallel_refine": 40,
        "refine": 10,
        "single": 1,
        "staged": 15,
        "tree_eps": 30,
    }.items(),
)
def test_all_end_by_themselves_when_their_options_say_so(kind: str, slots: int) -> None:
    early_exit = {"early_exit": False} if kind == "parallel_refine" else {}

    def faster(slot: Slot) -> Sequence[Attempt]:
        return [attempt(slot, k, 1.0 + slot.number) for k in range(slot.size)]

    assert len(play(load(kind, **early_exit), faster, limit=999).slots) == slots
    assert len(play(load(kind, **early_exit), scores(0), limit=999, window=4).slots) <= slots


@every_kind
def test_a_slot_that_nobody_asked_for_is_refused(kind: str) -> None:
    search = load(kind)
    with pytest.raises(ValueError, match="expected none: nothing is out"):
        search.tell(Slot(), [])
    [slot] = search.ask(Log(), 1)
    with pytest.raises(ValueError, match=r"Got Slot.*expected Slot"):
        search.tell(replace(slot, island=7), [])
    search.tell(replace(slot, number=0), [])


def test_a_slot_that_the_loop_cut_to_the_budget_is_still_the_one_that_was_asked_for() -> None:
    search = load("branching", ideas=4, impls=2)
    [slot] = search.ask(Log(), 1)
    search.tell(replace(slot, number=0, ideas=2, n=1), [])


# ---- options


@every_kind
def test_conf_has_every_option_with_its_default_and_a_comment(kind: str) -> None:
    text = (CONF / f"{kind}.yaml").read_text(encoding="utf-8")
    told = yaml.safe_load(text)
    assert next(iter(told)) == "kind" and told.pop("kind") == kind
    search = load(kind, **told)
    assert told.keys() == type(search).Options.model_fields.keys()
    assert search.options == type(search).Options()
    lines = ["", *text.splitlines()]
    for before, line in itertools.pairwise(lines):
        if line[:1].isalpha():
            # Two that are explained together, such as mu0 and n0, stand together.
            assert before.startswith("#") or (before[:1].isalpha() and "and" in text), line


def test_there_is_a_group_for_every_kind() -> None:
    assert sorted(path.stem for path in CONF.glob("*.yaml")) == strategies.names()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "refin"}, "No strategy 'refin'; did you mean 'refine'?"),
        ({"kind": "refine", "turn": 3}, "No option 'strategy.turn'; did you mean 'strategy.turns'"),
        ({"kind": "refine", "turns": 0}, "Got strategy.turns=0, expected 1 or more"),
        ({"kind": "refine", "turns": "ten"}, "Got strategy.turns='ten', expected a valid integer"),
        (
            {"kind": "refine", "parent": "worst"},
            "strategy.parent='worst', expected 'first', 'last' or 'be",
        ),
        ({"kind": "refine", "phases": ["one"]}, "expected [], or the names of two"),
        ({"kind": "staged", "sequence": "tiling"}, "Got strategy.sequence='tiling', expected a li"),
        ({"kind": "staged", "sequence": ["tilling"]}, "No action 'tilling'; did you mean 'tiling'"),
        ({"kind": "bandit", "thresholds": {"cash": 9}}, "did you mean 'strategy.thresholds.cache'"),
        ({"kind": "beam", "arms": 9}, "strategy.arms=9, but there are 5 actions to choose from"),
        ({"kind": "mcts_graph", "edges": {"": []}}, "expected the methods that may come first"),
        ({"kind": "mcts_graph", "edges": {"": ["fussion"]}}, "No method 'fussion'; did you mean"),
        ({"kind": "mcts_graph", "edges": {"": [""]}}, "No method ''"),
        ({"kind": "evolutionary", "operators": {"mutat": 1}}, "No operator 'mutat'; did you mean"),
        ({"kind": "evolutionary", "operators": {"diff": 0}}, "expected a weight above 0 for one"),
        ({"kind": "evolutionary", "features": ["score"]}, "and never the fitness itself"),
        ({"kind": "evolutionary", "features": ["median_us"]}, "and never the fitness itself"),
        ({"kind": "evolutionary", "mode": "single"}, "'crossover' takes two parents, and there is"),
        ({"kind": "evolutionary", "migrate_every": 5}, "strategy.migrate_every=5 on one island"),
        ({"kind": "evolutionary", "viable": 6}, "strategy.viable=6, but a population holds 5"),
    ],
)
def test_what_is_wrong_with_options_is_said_in_one_line(
    options: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        strategies.load(options, arms=ARMS, seed=0)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["bandit", "mcts_graph", "staged", "beam"])
def test_who_lacks_actions_says_where_they_come_from(kind: str) -> None:
    options = {"arms": 2} if kind == "beam" else {}
    with pytest.raises(ConfigError, match=r"set .*proposer\.actions="):
        load(kind, menu=[], **options)


def test_what_a_strategy_needs_of_other_axes_can_be_asked() -> None:
    assert load("bandit").masks and not load("bandit", mask=False).masks
    assert not load("bandit", items="parents", menu=[]).masks
    assert load("mcts_graph").needs_graph and not load("refine").needs_graph
    with pytest.raises(ConfigError, match=r"no action relieves a resource; set strategy\.mask"):
        load("bandit", menu=[Arm("rename")])


# ---- samples and turns


@pytest.mark.parametrize("window", [1, 4, 20])
def test_best_of_n_asks_exactly_n_times_for_kernels_from_nothing(window: int) -> None:
    course = play(load("best_of_n", n=7), chaos(1), window=window)
    assert [replace(slot, number=-1) for slot in course.slots] == [Slot()] * 7


def parents(course: Course) -> list[str]:
    return [",".join(slot.parents) for slot in course.slots]


def test_refinement_goes_on_from_the_last_kernel_even_when_it_is_slower() -> None:
    course = play(load("refine", turns=4), scores(2, 1, 0, 3))
    assert parents(course) == ["", "0.0", "1.0", "2.0"]


def test_refinement_from_the_best_mends_while_nothing_is_correct() -> None:
    course = play(load("refine", turns=6, parent="best"), scores(0, 2, 1, 0, 3))
    assert parents(course) == ["", "0.0", "1.0", "1.0", "1.0", "4.0"]


def test_nobody_builds_on_a_reply_without_code_or_on_a_duplicate() -> None:
    def same(slot: Slot) -> Sequence[Attempt]:
        return [attempt(slot, status=Status.DUPLICATE if slot.number else Status.WRONG)]

    silent = play(load("refine", turns=4), scores(None, 0, None, 1))
    assert parents(silent) == ["", "", "1.0", "1.0"]
    assert parents(play(load("refine", turns=4), same)) == ["", "0.0", "0.0", "0.0"]


def test_of_several_offspring_the_fastest_counts_as_the_last() -> None:
    def world(slot: Slot) -> Sequence[Attempt]:
        return [attempt(slot, k, score) for k, score in enumerate([0.0, 3.0, 2.0])]

    course = play(load("refine", turns=2, offspring=3), world)
    assert course.slots[0].n == 3
    assert parents(course) == ["", "0.1"]


def test_refinement_ends_at_the_first_correct_kernel_where_that_is_the_aim() -> None:
    assert len(play(load("refine", until="correct"), scores(0, 0, 1, 2)).slots) == 3


def test_the_arbiter_ends_refinement_after_a_correct_turn_that_gains_too_little() -> None:
    gains = scores(0, 1.0, 0, 1.2, 1.25, 9.0)
    assert len(play(load("refine", stop_gain=1.05), gains).slots) == 5
    assert len(play(load("refine"), gains).slots) == 10


def test_a_critic_who_sees_nothing_more_to_gain_ends_refinement() -> None:
    def world(slot: Slot) -> Sequence[Attempt]:
        stop = Diagnosis(critic="rules", problem="at the roofline", stop=slot.number == 2)
        return [attempt(slot, score=1.0, diagnosis=stop)]

    assert len(play(load("refine"), world).slots) == 3


def test_a_line_that_keeps_failing_is_left_for_a_fresh_start() -> None:
    course = play(load("refine", debug_trap=3, turns=8), scores(0, 0, 0, 0, 1, 0, 0, 0))
    assert parents(course) == ["", "0.0", "1.0", "", "3.0", "4.0", "5.0", "6.0"]


def test_the_second_phase_begins_with_the_first_correct_kernel() -> None:
    course = play(load("refine", turns=5, phases=["functional", "optimise"]), scores(0, 0, 1, 0, 1))
    assert [slot.phase for slot in course.slots] == ["functional"] * 3 + ["optimise"] * 2


@pytest.mark.parametrize("window", [1, 5])
def test_chains_take_turns_and_do_not_see_each_other(window: int) -> None:
    search = load("parallel_refine", k=3, turns=4, early_exit=False)
    course = play(search, scores(1), window=window)
    assert [slot.island for slot in course.slots] == [0, 1, 2] * 4
    for slot in course.slots[3:]:
        assert slot.parents == (f"{slot.number - 3}.0",)


@few
@given(data=st.data(), kind=st.sampled_from(["parallel_refine", "evolutionary"]))
def test_nothing_leaks_from_one_island_to_another(data: st.DataObject, kind: str) -> None:
    """OpenEvolve's issues 138 (inspirations), 222 (parents) and 391 (children)."""
    options = data.draw(settings_of(kind)) | ({"migrate_every": None} if kind[0] == "e" else {})
    window = data.draw(st.sampled_from([1, 4]))
    course = play(load(kind, **options), chaos(data.draw(st.integers(0, 99))), window=window)
    for slot in course.slots:
        for one in course.log.some([*slot.parents, *slot.shown, *slot.thoughts]):
            assert one.island == slot.island or (options["given"] and one.slot == 0)


def test_a_chain_with_a_pool_mends_what_fails_and_else_builds_on_its_fastest_together() -> None:
    """GEAK."""
    search = load("refine", turns=8, pool=2, debug_trap=2)
    course = play(search, scores(0, 1.0, 0, 0, 0, 2.0, 1.5, 0))
    assert [slot.parents for slot in course.slots] == [
        (),
        ("0.0",),
        ("1.0",),
        ("2.0",),
        ("3.0",),
        ("1.0",),
        ("5.0", "1.0"),
        ("5.0", "6.0"),
    ]


def test_a_chain_that_needs_a_seed_ends_with_a_first_reply_without_code() -> None:
    course = play(load("parallel_refine", k=2, turns=3, seeded=True), scores(None, 0, None, 0))
    assert [slot.island for slot in course.slots] == [0, 1, 1, 1], "later ones cost their turn"
    unseeded = play(load("parallel_refine", k=2, turns=3), scores(None, 0, None, 0))
    assert [slot.island for slot in unseeded.slots] == [0, 1] * 3


def test_the_first_correct_kernel_ends_all_chains() -> None:
    search = load("parallel_refine", k=4, turns=10)
    course = play(search, scores(0, 0, 0, 0, 0, 1, 0), window=4)
    assert len(course.slots) == 9, "three more were out already"


# ---- rounds


def test_branching_asks_for_ideas_once_then_for_more_of_them_from_the_best() -> None:
    def world(slot: Slot) -> Sequence[Attempt]:
        return [attempt(slot, k, 1 + k + 10 * slot.number) for k in range(slot.size)]

    course = play(load("branching", rounds=3, ideas=3, impls=2, seeds=2, bank=3), world, window=4)
    first, second, third, *_ = course.slots
    assert (first.ideas, first.n, first.parents, first.shown) == (3, 2, (), ())
    assert (second.parents, second.shown) == (("0.5",), ("0.4", "0.3"))
    assert (third.parents, third.shown) == (("0.4",), ("0.5", "0.3"))
    assert parents(course) == ["", "0.5", "0.4", "2.5", "2.4"]


def test_branching_waits_for_all_of_a_round() -> None:
    search, log = load("branching", seeds=3), Log()
    [slot] = search.ask(log, 4)
    assert search.ask(log, 3) == []
    log.add(found := [attempt(replace(slot, number=0), k, 1.0 + k) for k in range(8)])
    search.tell(slot, found)
    assert len(search.ask(log, 2)) == 2
    assert len(search.ask(log, 2)) == 1
    assert search.ask(log, 1) == []


def test_branching_starts_again_beside_its_failures_while_nothing_is_correct() -> None:
    course = play(load("branching", rounds=3, bank=2), scores(0, None, 0))
    assert parents(course) == ["", "", ""]
    assert [slot.shown for slot in course.slots] == [(), ("0.0",), ("0.0",)]


def test_a_beam_of_two_by_two() -> None:
    """KernelAgent: the best two kernels, two actions each."""

    def world(slot: Slot) -> Sequence[Attempt]:
        return [attempt(slot, k, 1.0 + slot.number) for k in range(slot.n)]

    course = play(load("beam", width=2, expand=1, arms=2, rounds=4), world, window=4)
    for start in (2, 6, 10):
        members = course.slots[start : start + 4]
        assert Counter(slot.parents for slot in members) == {
            (f"{start - 1}.0",): 2,
            (f"{start - 2}.0",): 2,
        }
        for slot, other in (members[:2], members[2:]):
            assert slot.arm != other.arm and {slot.arm, other.arm} <= set(ARM_NAMES)


def test_a_member_that_stays_is_given_the_actions_that_it_has_not_seen() -> None:
    course = play(load("beam", width=1, expand=1, arms=1, rounds=6), scores(5, 1))
    assert parents(course) == [""] + ["0.0"] * 5
    assert sorted(slot.arm for slot in course.slots[1:]) == sorted(ARM_NAMES)


def test_each_fix_that_a_critic_prescribes_is_tried_on_each_kernel_that_is_kept() -> None:
    """KernelAgent: two bottlenecks of each of two kernels, from a given one."""

    def world(slot: Slot) -> Sequence[Attempt]:
        fixes = diagnosed(f"first of {slot.number}", f"second of {slot.number}", "third")
        return [attempt(slot, score=1.0 + slot.number / 100, diagnosis=fixes)]

    options = {"width": 2, "expand": 1, "rounds": 2, "prescribed": 2, "given": True}
    course = play(load("beam", **options), world, window=4)
    assert parents(course) == ["", "0.0", "0.0", "2.0", "2.0", "1.0", "1.0"]
    assert [slot.arm for slot in course.slots[1:5]] == [
        "first of 0",
        "second of 0",
        "first of 2",
        "second of 2",
    ]


def test_a_kernel_that_fell_far_behind_makes_way_for_the_fastest() -> None:
    options = {"width": 2, "expand": 1, "rounds": 2}
    kept = play(load("beam", **options), scores(3.0, 1.9))
    assert parents(kept)[2:] == ["0.0", "1.0"]
    reverted = play(load("beam", diverging=1.5, **options), scores(3.0, 1.9))
    assert parents(reverted)[2:] == ["0.0", "0.0"]
    near = play(load("beam", diverging=1.5, **options), scores(3.0, 2.1))
    assert parents(near)[2:] == ["0.0", "1.0"]


def test_a_critic_who_sees_nothing_more_to_gain_ends_a_beam() -> None:
    def world(slot: Slot) -> Sequence[Attempt]:
        enough = Diagnosis(critic="bottleneck", problem="96 %", stop=slot.number == 2)
        return [attempt(slot, score=1.0, diagnosis=enough)]

    assert len(play(load("beam", width=2, expand=1, rounds=9), world).slots) == 3


@pytest.mark.parametrize(
    ("kind", "options", "count"),
    [
        ("refine", {"turns": 3}, 4),
        ("parallel_refine", {"turns": 2, "k": 2, "early_exit": False}, 5),
        ("beam", {"width": 1, "expand": 1, "rounds": 3}, 4),
        ("bandit", {"trials": 3}, 4),
        ("tree_eps", {"trials": 3}, 4),
        ("evolutionary", {"trials": 3, "islands": 2, "operators": {"diff": 1}}, 4),
        ("staged", {"sequence": ["tiling", "fusion"], "tries": 1}, 3),
    ],
)
def test_a_given_kernel_is_what_all_else_descends_from_and_costs_no_turn(
    kind: str, options: dict[str, Any], count: int
) -> None:
    course = play(load(kind, given=True, **options), scores(1.0, 0.5, 0.7))
    assert len(course.slots) == count
    assert all(course.log.ancestors(one.id)[0].id == "0.0" for one in course.log)


def test_the_last_turn_of_a_chain_is_known_to_be_the_last() -> None:
    course = play(load("refine", turns=3), scores(1.0))
    assert [slot.final for slot in course.slots] == [False, False, True]


def test_what_was_screened_is_not_built_on() -> None:
    def world(slot: Slot) -> Sequence[Attempt]:
        return [attempt(slot), attempt(slot, 1, status=Status.SCREENED)]

    course = play(load("beam", width=2, expand=2, rounds=3), world)
    assert {name[-1] for name in parents(course) if name} == {"0"}


def test_a_beam_of_one_is_batch_refinement() -> None:
    """CUDA-LLM: of n kernels the fastest that works is the next parent."""

    def world(slot: Slot) -> Sequence[Attempt]:
        return [attempt(slot, k, score) for k, score in enumerate([0.0, 2.0, 1.0])]

    course = play(load("beam", width=1, expand=3, rounds=3, keep="children"), world)
    assert [slot.n for slot in course.slots] == [3, 3, 3]
    assert parents(course) == ["", "0.1", "1.1"]


def test_parents_stay_in_a_beam_unless_only_children_are_kept() -> None:
    slower = scores(5, 4, 3, 2)
    pool = play(load("beam", width=1, expand=1, rounds=4), slower)
    assert parents(pool) == ["", "0.0", "0.0", "0.0"]
    children = play(load("beam", width=1, expand=1, rounds=4, keep="children"), slower)
    assert parents(children) == ["", "0.0", "1.0", "2.0"]
    failing = play(load("beam", width=1, expand=1, rounds=3, keep="children"), scores(5, 0))
    assert parents(failing) == ["", "0.0", "0.0"], "nothing came of it, so it is tried again"


def test_a_beam_mends_what_fails_while_there_is_nothing_else() -> None:
    course = play(load("beam", width=1, expand=1, rounds=4), scores(0, 0, 1, 2))
    assert parents(course) == ["", "0.0", "1.0", "2.0"]


def test_kevins_beam_refines_each_trajectory_before_the_best_are_replicated() -> None:
    search = load("beam", width=4, repeat=4, expand=1, turns=4, rounds=2)
    faster: World = lambda slot: [attempt(slot, score=1.0 + slot.number)]  # noqa: E731
    course = play(search, faster, window=6, limit=999)
    assert len(course.slots) == 2 * 16 * 4
    first, second = course.slots[:64], course.slots[64:]
    assert [slot.parents for slot in first[:16]] == [()] * 16
    assert [slot.parents for slot in first[16:]] == [(f"{n}.0",) for n in range(48)]
    best = {(f"{number}.0",): 4 for number in (63, 62, 61, 60)}
    assert Counter(slot.parents for slot in second[:16]) == best


def test_stages_are_applied_in_order_and_undone_when_they_do_not_pay() -> None:
    scored = {"tiling": [1.0, 3.0], "fusion": [2.0, 0.0], "pipeline": [0.0, 4.0], "rename": [9.0]}

    def world(slot: Slot) -> Sequence[Attempt]:
        return [attempt(slot, score=scored[slot.arm][slot.number % len(scored[slot.arm])])]

    stages = ["tiling", "fusion", "pipeline", "rename"]
    course = play(load("staged", sequence=stages, tries=2), world, window=4)
    assert [slot.arm for slot in course.slots] == [name for name in stages for _ in range(2)]
    assert all(slot.phase == slot.arm for slot in course.slots)
    assert parents(course)[::2] == parents(course)[1::2] == ["", "1.0", "1.0", "5.0"]
    kept = play(load("staged", sequence=stages, tries=2, rollback=False), world, window=4)
    assert parents(kept)[::2] == ["", "1.0", "2.0", "5.0"]
    demanding = play(load("staged", sequence=stages, tries=2, min_gain=1.5), world)
    assert parents(demanding)[::2] == ["", "1.0", "1.0", "1.0"]


def test_stages_are_the_menu_unless_they_are_named_and_a_menu_need_not_be() -> None:
    course = play(load("staged", tries=1), scores(1))
    assert [slot.arm for slot in course.slots] == ARM_NAMES
    assert play(load("staged", sequence=["anything"], menu=[], tries=1), scores(1)).slots[0].arm


# ---- evolution


def test_each_child_lives_on_the_island_of_its_slot_and_all_islands_get_as_many() -> None:
    search = load("evolutionary", islands=3, init=2, batch=2, generations=4)
    course = play(search, scores(1), window=4)
    assert Counter(one.island for one in course.log) == {0: 10, 1: 10, 2: 10}
    assert isinstance(search, Evolutionary)
    for place, island in enumerate(search.state.islands):
        assert len(island.members) == 5
        assert {course.log[name].island for name in island.members} == {place}


def test_a_generation_of_three_is_two_crossovers_and_a_mutation_of_the_one_before() -> None:
    """EvoEngineer-Full."""
    course = play(load("evolutionary", init=5, batch=3, generations=6), scores(1))
    assert [slot.operator for slot in course.slots[:5]] == ["init"] * 5
    for start in range(5, 23, 3):
        generation = course.slots[start : start + 3]
        assert Counter(one.operator for one in generation) == {"crossover": 2, "mutate": 1}
        born_before = {one.id for one in course.log if one.slot < start}
        assert all({*slot.parents} <= born_before for slot in generation)


def test_weights_of_operators_are_kept_exactly() -> None:
    """ShinkaEvolve's are .6, .3 and .1."""
    weights = {"diff": 0.6, "mutate": 0.3, "crossover": 0.1}
    search = load("evolutionary", operators=weights, barrier=False, generations=None, trials=105)
    course = play(search, scores(1), limit=999)
    used = Counter(slot.operator for slot in course.slots)
    assert used == {"init": 5, "diff": 60, "mutate": 30, "crossover": 10}


def test_a_crossover_without_two_parents_is_a_mutation_and_without_one_a_new_kernel() -> None:
    options = {"init": 2, "batch": 1, "generations": 4, "operators": {"crossover": 1}}
    course = play(load("evolutionary", **options), scores(0, 0, 0, 1, 1, 1))
    operators = [slot.operator for slot in course.slots]
    assert operators == ["init", "init", "init", "init", "mutate", "crossover"]


@pytest.mark.parametrize(
    ("failing", "news", "slots"), [(3, 4, 40), (7, 8, 44), (11, 12, 48), (15, 16, 48)]
)
def test_kernels_are_written_from_nothing_until_two_are_correct(
    failing: int, news: int, slots: int
) -> None:
    """EvoEngineer: four at once, then nine generations of four, of which none begins after 45."""
    options = {"init": 4, "batch": 4, "viable": 2, "generations": 9, "trials": 48}
    search = load("evolutionary", given=True, operators={"mutate": 1}, **options)
    course = play(search, scores(1.0, *[0.0] * failing, 1.5), window=4)
    assert len(course.slots) == 1 + slots
    assert [slot.operator for slot in course.slots[1:]] == ["init"] * news + ["mutate"] * (
        slots - news
    )


def test_by_soft_rank_parents_are_drawn_with_one_over_n_plus_rank_and_perhaps_twice() -> None:
    options = {"init": 5, "generations": 400, "batch": 1, "selection": "soft_rank"}
    search = load("evolutionary", operators={"crossover": 1}, **options)
    course = play(search, scores(5, 4, 3, 2, 1, 0), limit=999)
    pairs = [slot.parents for slot in course.slots[5:]]
    drawn = Counter(itertools.chain.from_iterable(pairs))
    weights = [1 / (5 + rank) for rank in range(5)]
    for rank, weight in enumerate(weights):
        assert drawn[f"{rank}.0"] / 800 == pytest.approx(weight / sum(weights), abs=0.05)
    same = sum((weight / sum(weights)) ** 2 for weight in weights)
    assert sum(a == b for a, b in pairs) / 400 == pytest.approx(same, abs=0.06)


def test_thoughts_are_drawn_of_the_population_which_the_latest_failures_fill_up() -> None:
    """EvoEngineer: also the given kernel's, who has none, and not of what has no code."""

    def world(slot: Slot) -> Sequence[Attempt]:
        if slot.number == 2:
            return [attempt(slot, status=Status.NO_CODE, source="", digest="")]
        return [attempt(slot, score=(slot.number in (0, 3)) * 1.5, rationale=f"{slot.number}")]

    options = {"init": 4, "batch": 4, "operators": {"mutate": 1}, "generations": 2}
    search = load("evolutionary", given=True, thoughts=9, **options)
    course = play(search, world, window=4)
    told = [{*slot.thoughts} for slot in course.slots]
    assert told[0] == set() and told[1:5] == [{"0.0"}] * 4
    assert told[5:] == [{"0.0", "3.0", "1.0", "4.0"}] * 4, "a place of five is the one without code"
    few_ = load("evolutionary", given=True, thoughts=3, **options)
    drawn = [{*slot.thoughts} for slot in play(few_, world, window=4).slots[5:]]
    assert all(len(one) == 3 for one in drawn) and len({frozenset(one) for one in drawn}) > 1


def test_failures_and_duplicates_never_enter_a_population() -> None:
    search = load("evolutionary", islands=2, generations=9)
    course = play(search, chaos(7), window=3, limit=200)
    assert isinstance(search, Evolutionary)
    for island in search.state.islands:
        assert all(one.correct for one in course.log.some(island.members))
        assert len(island.members) == 5


def test_eight_children_of_one_generation_may_be_written_side_by_side() -> None:
    """AI CUDA Engineer: eight proposals, then the next generation."""
    search, log = load("evolutionary", init=8, batch=8), Log()
    for _ in range(3):
        asked = [replace(one, number=k + len(log)) for k, one in enumerate(search.ask(log, 99))]
        assert len(asked) == 8
        for slot in asked:
            assert search.ask(log, 99) == []
            log.add([attempt(slot, score=1.0 + slot.number)])
            search.tell(slot, [log[f"{slot.number}.0"]])


def test_without_a_barrier_there_is_always_a_next_child() -> None:
    search, log = load("evolutionary", barrier=False, init=1, islands=2), Log()
    assert len(search.ask(log, 7)) == 7


@pytest.mark.parametrize(("pressure", "least"), [({"power": 3.0}, 0.7), ({"power": 0.0}, 0.1)])
def test_the_faster_are_parents_more_often(pressure: dict[str, float], least: float) -> None:
    options = {"init": 5, "operators": {"mutate": 1}, "generations": 60} | pressure
    falling = scores(5, 4, 3, 2, 1, 0)
    course = play(load("evolutionary", **options), falling, limit=999)
    drawn = Counter(slot.parents for slot in course.slots[5:])
    assert least < drawn[("0.0",)] / 180 < least + 0.2
    options |= {"selection": "tournament", "tournament": 5}
    course = play(load("evolutionary", **options), falling, limit=999)
    assert {slot.parents for slot in course.slots[5:]} == {("0.0",)}


def test_the_fastest_are_copied_to_the_next_island_all_at_once() -> None:
    options = {"islands": 3, "init": 2, "batch": 1, "migrate_every": 2, "migrate_rate": 0.5}
    search = load("evolutionary", generations=2, operators={"mutate": 1}, **options)
    course = play(search, lambda s: [attempt(s, score=1.0 + s.number if s.number < 6 else 0)])
    assert isinstance(search, Evolutionary)
    assert [island.members for island in search.state.islands] == [
        ["5.0", "3.0", "0.0"],
        ["4.0", "3.0", "1.0"],
        ["5.0", "4.0", "2.0"],
    ]
    assert len(course.slots) == 12


def kernel(name: str, score: float, source: str, **metrics: float) -> Attempt:
    slot = Slot(number=int(name))
    return attempt(slot, score=score, source=source, metrics=metrics)


def kept(mode: Any, attempts: Sequence[Attempt], size: int = 2, **options: Any) -> list[str]:
    return [
        survivor.id[0] for survivor in PopulationPolicy(mode, size, **options).survivors(attempts)
    ]


def test_populations_keep_the_fastest_the_different_or_the_best_of_each_kind() -> None:
    a = kernel("1", 5.0, "x\ny\nz", registers=10)
    b = kernel("2", 4.0, "x\ny\nw", registers=12)
    c = kernel("3", 1.0, "p\nq\nr" * 9, registers=90)
    failed = kernel("4", 0.0, "x")
    everyone = [failed, c, b, a]
    assert kept("single", everyone) == ["1"]
    assert kept("elite", everyone) == ["1", "2"]
    assert kept("diverse", everyone) == ["1", "3"]
    assert kept("map_elites", everyone, features=("complexity",), bins=2) == ["1", "3"]
    assert kept("map_elites", everyone, features=("registers",), bins=2) == ["1", "3"]
    fine: dict[str, Any] = {"features": ("complexity", "registers"), "bins": 80}
    assert kept("map_elites", everyone, 9, **fine) == ["1", "2", "3"]
    assert kept("map_elites", everyone, 9, features=("diversity",), bins=2) == ["1", "3"]
    assert kept("map_elites", []) == []
    assert (distance(a, a), distance(a, b), distance(a, c)) == (0.0, 0.5, 1.0)


@few
@given(st.data(), st.sampled_from(["single", "elite", "diverse", "map_elites"]))
def test_the_fastest_stays_in_every_population_and_it_never_outgrows_its_size(
    data: st.DataObject, mode: Any
) -> None:
    attempts = [
        one
        for number in range(data.draw(st.integers(1, 12)))
        for one in chaos(data.draw(st.integers(0, 99)))(Slot(number=number))
    ]
    size = data.draw(st.integers(1, 5))
    left = PopulationPolicy(mode, size, ("complexity", "diversity")).survivors(attempts)
    fastest = max((one.score for one in attempts), default=0.0)
    assert len(left) <= size
    assert max((one.score for one in left), default=0.0) == fastest


# ---- bandit


def test_points_of_three_heaps_are_three_clusters_whatever_their_units() -> None:
    drawn = Random(0)
    heaps = [(0.0, 0.0), (10.0, 1e6), (20.0, 0.0)]
    points = [(x + drawn.random(), y + 9 * drawn.random()) for x, y in heaps * 6]
    for seed in range(9):
        clusters = Clusters.of(points, 3, Random(seed))
        groups = [clusters.nearest(point) for point in points]
        assert len(set(groups)) == 3
        assert groups == groups[:3] * 6
    assert Clusters.of(points, 3, Random(1)) == Clusters.of(points, 3, Random(1))
    assert len(Clusters.of([(1.0, 2.0)] * 9, 3, Random(0)).centres) == 1


def test_what_was_not_measured_is_nothing_to_a_cluster() -> None:
    assert features(kernel("1", 1.0, "x")) == (0.0, 0.0, 0.0, 0.0, 0.0)
    some = kernel("1", 1.0, "x", threads=256, shared_bytes=2048, registers=40, median_us=math.nan)
    assert features(some) == (0.0, 40.0, 2.0, 8.0, 0.0)


def test_the_bandit_finds_the_action_that_saves_time() -> None:
    """The strategy begins with a kernel that works, as KernelBand does."""

    def world(slot: Slot) -> Sequence[Attempt]:
        better = slot.arm == "fusion"
        return [attempt(slot, score=1.0 if not slot.parents else 2.0 if better else 0.9)]

    for seed in range(5):
        search = load("bandit", trials=60, c=0.3, seed=seed)
        assert isinstance(search, Bandit)
        course = play(search, world, window=2)
        pulls = Counter(slot.arm for slot in course.slots if slot.parents)
        assert pulls.keys() == set(ARM_NAMES), "each is tried"
        assert pulls.most_common(1)[0][0] == "fusion"


def test_a_reward_is_the_share_of_the_parents_time_that_was_saved() -> None:
    search = load("bandit", menu=ARMS[:1], trials=5)
    assert isinstance(search, Bandit)
    play(search, scores(1.0, 4.0, 0, 2.0))
    assert [pull.parent for pull in search.state.pulls][:2] == ["0.0", "1.0"]
    assert [pull.reward for pull in search.state.pulls] == [0.75, 0.0, 0.0, 0.0]


def test_until_a_kernel_works_the_bandit_starts_anew_and_shows_what_failed() -> None:
    course = play(load("bandit", trials=4), scores(0, 0, 1))
    assert parents(course) == ["", "", "", "2.0"]
    assert [slot.shown for slot in course.slots] == [(), ("0.0",), ("1.0", "0.0"), ()]


@pytest.mark.parametrize("kind", ["bandit", "tree_eps"])
def test_what_is_chosen_from_begins_with_one_kernel_even_where_four_have_room(kind: str) -> None:
    course = play(load(kind, trials=6), scores(1.0), window=4)
    assert [bool(slot.parents) for slot in course.slots] == [False, *[True] * 5]


def test_the_bandit_shows_the_fastest_others() -> None:
    options = {"items": "parents", "trials": 5, "menu": [], "inspirations": 2}
    course = play(load("bandit", **options), scores(1.0, 3.0, 2.0, 4.0))
    parent, last = course.slots[-1].parents[0], course.slots[-1]
    ranked = ["3.0", "1.0", "2.0", "0.0"]
    assert last.shown == tuple(name for name in ranked if name != parent)[:2]


def loads(**percent: float) -> World:
    return lambda slot: [attempt(slot, score=1.0, metrics=percent)]


@pytest.mark.parametrize(
    ("percent", "left"),
    [
        ({}, set(ARM_NAMES)),
        ({"memory_pct": 69.0, "compute_pct": 79.0, "l2_pct": 74.0}, set(ARM_NAMES)),
        ({"memory_pct": 70.0}, {"tiling", "pipeline", "rename"}),
        ({"compute_pct": 80.0, "l2_pct": 99.0}, {"vectorization", "fusion", "rename"}),
        ({"memory_pct": 90.0, "compute_pct": 99.0, "l2_pct": 76.0}, {"rename"}),
    ],
)
def test_actions_whose_resource_is_saturated_are_masked(
    percent: dict[str, float], left: set[str]
) -> None:
    course = play(load("bandit", trials=30), loads(**percent))
    assert {slot.arm for slot in course.slots if slot.parents} == left
    open_ = play(load("bandit", trials=30, mask=False), loads(**percent))
    assert {slot.arm for slot in open_.slots if slot.parents} == set(ARM_NAMES)


def test_one_action_is_left_when_all_resources_are_saturated() -> None:
    full = loads(memory_pct=90.0, compute_pct=99.0, l2_pct=76.0)
    course = play(load("bandit", menu=ARMS[:4], trials=9), full)
    assert {slot.arm for slot in course.slots if slot.parents} == {"tiling"}


def test_an_action_gets_kernels_with_room_for_it_and_the_fastest_where_none_counted() -> None:
    def world(slot: Slot) -> Sequence[Attempt]:
        if slot.number > 1:
            return [attempt(slot)]
        metrics = {"memory_pct": 60.0, "l2_pct": 0.0} if slot.number else {"memory_pct": 0.0}
        return [attempt(slot, score=1.0 + slot.number, metrics=metrics)]

    course = play(load("bandit", trials=40), world)
    built_on = {name: Counter[str]() for name in ARM_NAMES}
    for slot in course.slots[2:]:
        built_on[slot.arm].update(slot.parents)
    assert built_on["fusion"].most_common(1)[0][0] == "0.0"
    assert set(built_on["rename"]) == set(built_on["tiling"]) == {"1.0"}


def test_clusters_are_made_of_enough_kernels_and_anew_after_tau_attempts() -> None:
    def world(slot: Slot) -> Sequence[Attempt]:
        kind = slot.number % 2
        metrics = {"registers": 16.0 + 200 * kind, "median_us": 5.0 + 90 * kind}
        return [attempt(slot, score=1.0 + kind, metrics=metrics)]

    search = load("bandit", clusters=2, tau=5, trials=30)
    assert isinstance(search, Bandit)
    fitted: list[int] = []

    def between(one: Search) -> Search:
        if search.state.clusters:
            fitted.append(search.state.fitted)
        return one

    play(search, world, between=between)
    assert sorted(set(fitted)) == [4, 9, 14, 19, 24, 29]
    assert search.state.clusters and len(search.state.clusters.centres) == 2


def test_bandit_of_parents_goes_by_rank_and_by_how_often_they_were_chosen() -> None:
    """AKG's adaptive search: (n - rank) / (n - 1) + 1.414 sqrt(ln(N + 1) / (chosen + 1))."""
    search = load("bandit", items="parents", c=1.414, trials=5, menu=[])
    course = play(search, scores(1.0, 3.0, 2.0, 0, 0))
    # 0.0 is alone; 1.0 is faster and new; then ranks 1, 2, 3 are 1.0, 2.0, 0.0, chosen 1, 0, 1
    # times: 1 + 1.05, 0.5 + 1.48, 0 + 1.05; then chosen 2, 0, 1 times: 1.96, 2.16, 1.18
    assert parents(course) == ["", "0.0", "1.0", "1.0", "2.0"]
    assert {slot.arm for slot in course.slots} == {""}


# ---- tree


def test_the_greedy_tree_grows_at_its_best_node() -> None:
    course = play(load("tree_eps", epsilon=0.0, trials=5), scores(1, 3, 2, 5))
    assert parents(course) == ["", "0.0", "1.0", "1.0", "3.0"]
    assert {slot.operator for slot in course.slots} == {""}


def test_failing_nodes_are_mended_and_given_up_after_so_many_attempts() -> None:
    course = play(load("tree_eps", epsilon=0.0, trials=6, prune_after=2), scores(0))
    assert parents(course) == ["", "0.0", "1.0", "", "3.0", "4.0"]
    assert [slot.operator for slot in course.slots] == ["", "debug", "debug"] * 2
    mended = play(load("tree_eps", epsilon=0.0, trials=5, prune_after=2), scores(0, 1, 0, 0))
    assert parents(mended) == ["", "0.0", "1.0", "1.0", ""], "what was mended is left alone"


def test_a_branch_is_dead_after_so_many_failing_children() -> None:
    course = play(load("tree_eps", epsilon=0.0, trials=8, prune_after=2), scores(1, 2, 0, 0, 0))
    assert parents(course)[:4] == ["", "0.0", "1.0", "1.0"]
    assert parents(course)[4] == "0.0", "1.0 is faster, and nothing comes of it"


def test_the_root_bears_so_many_and_more_only_when_nothing_else_lives() -> None:
    options = {"epsilon": 1.0, "leaf_bias": 0.0, "root_throttle": 3, "trials": 60}
    course = play(load("tree_eps", **options), scores(1), window=4)
    assert parents(course).count("") == 3
    failing = play(load("tree_eps", prune_after=1, **options), scores(0), window=4)
    assert len(failing.slots) == 60
    assert parents(failing).count("") == 30, "each is mended once"


def test_leaves_are_favoured_as_far_as_they_are_told_to_be() -> None:
    def depth(leaf_bias: float) -> int:
        options = {"epsilon": 1.0, "leaf_bias": leaf_bias, "root_throttle": 1, "trials": 40}
        course = play(load("tree_eps", **options), scores(1))
        return max(len(course.log.ancestors(one.id)) for one in course.log)

    assert depth(1.0) == 40
    assert depth(0.0) < 20


def test_a_node_grows_beside_its_children_its_siblings_and_the_leaders() -> None:
    rising = scores(1, 9, 2, 8, 3, 0)
    options = {"epsilon": 0.0, "leaders": 1, "trials": 8, "prune_after": None}
    course = play(load("tree_eps", **options), rising)
    assert parents(course)[-1] == "1.0"
    assert course.slots[-1].shown[:3] == ("2.0", "3.0", "4.0")
    alone = play(load("tree_eps", shown=["leaderboard"], **options), rising)
    assert alone.slots[-1].shown == ()


# ---- graph

EDGES_OF_TWO_STEPS = {
    "": ["tiling", "fusion"],
    "tiling": ["pipeline", "rename"],
    "fusion": ["rename"],
}


@few
@given(st.integers(0, 99), st.sampled_from([1, 4]), st.integers(1, 4))
def test_methods_follow_one_another_along_edges_and_no_deeper_than_allowed(
    seed: int, window: int, depth: int
) -> None:
    search = load("mcts_graph", edges=EDGES_OF_TWO_STEPS, depth=depth, seed=seed)
    course = play(search, chaos(seed), window=window)
    for slot in course.slots:
        walk = [ancestor.arm for ancestor in course.log.ancestors((*slot.parents, "")[0])] + [
            slot.arm
        ]
        assert len(walk) <= depth
        for here, there in zip(["", *walk], walk, strict=False):
            assert there in EDGES_OF_TWO_STEPS[here]


def test_the_graph_is_walked_where_it_pays() -> None:
    def world(slot: Slot) -> Sequence[Attempt]:
        gain = {"": 1.0, "tiling": 2.0, "pipeline": 3.0}
        return [attempt(slot, score=gain.get(slot.arm, 1.0) if slot.arm != "fusion" else 0.0)]

    search = load("mcts_graph", edges=EDGES_OF_TWO_STEPS, trials=100, c=0.3)
    assert isinstance(search, MctsGraph)
    course = play(search, world, window=2, limit=999)
    assert Counter(slot.arm for slot in course.slots).most_common(1)[0][0] == "pipeline"
    start = search.state.edges[""]
    assert start["tiling"].visits + start["fusion"].visits == 100
    assert start["tiling"].visits > 80
    assert all(one.correct for slot in course.slots for one in course.log.some(slot.parents))


def test_walks_that_are_under_way_at_once_spread() -> None:
    asked = load("mcts_graph").ask(Log(), 5)
    assert sorted(slot.arm for slot in asked) == sorted(ARM_NAMES)


def test_any_method_comes_first_where_edges_do_not_say_which() -> None:
    search = load("mcts_graph", edges={"tiling": ["fusion"]})
    assert sorted(slot.arm for slot in search.ask(Log(), 5)) == sorted(ARM_NAMES)


def test_without_edges_any_method_may_follow_any_other() -> None:
    course = play(load("mcts_graph", depth=2), lambda s: [attempt(s, score=1.0 + len(s.parents))])
    pairs = {(course.log[slot.parents[0]].arm, slot.arm) for slot in course.slots if slot.parents}
    assert pairs == {(a, b) for a in ARM_NAMES for b in ARM_NAMES if a != b}
