"""`portkern experiment`: what its numbers mean, that its arms are fair, and that it goes on."""

from __future__ import annotations

import io
import itertools
import json
import math
import re
import statistics as plain_statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from portkern import experiment
from portkern.agent import pace
from portkern.agent.attempt import UNTIMED, Attempt, Status
from portkern.agent.axes import Reply
from portkern.agent.llm.calls import ModelRequest
from portkern.agent.log import Log
from portkern.agent.outcome import RunSummary
from portkern.agent.run import GenerationRun, RunPlan
from portkern.cli import heartbeat, main
from portkern.cli.verbs import experiment as verb
from portkern.cli.verbs import generate
from portkern.errors import ModelDown, ModelError
from portkern.experiment import baseline, drawing, png, statistics, svg
from portkern.experiment.ending import endings, first_error
from portkern.experiment.job import StudyQuestion
from portkern.experiment.section import Bars, Chart, ChartLine
from portkern.experiment.shapes import Area, ChartText, Dot, DrawnLine, Rectangle, text_width
from portkern.experiment.statistics import Estimate, pass_at_k
from portkern.records.record import Record, Verdict
from portkern.spec.candidate import Candidate
from tests.browser import dom, needs_browser
from tests.llm_server import Server
from tests.scripted import MODEL, Answer, ScriptedBench, ScriptedModels, kernel

pytestmark = pytest.mark.usefixtures("torch_ahead")

QUICK = ["target=x86_64", "backend=cpu", "workloads=ci", "final=[]", "track=false", "cache=false"]
MODELLED = [*QUICK, f"models.coder.model={MODEL}"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silences the line about a busy machine, which is not part of an error."""
    monkeypatch.setattr(heartbeat, "FIRST_S", 3600.0)


# ---- statistics


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [
        (10, 3, 1, 0.3),
        (5, 2, 3, 0.9),
        (4, 0, 4, 0.0),
        (10, 1, 10, 1.0),
        (3, 3, 1, 1.0),
        (200, 2, 100, 1 - 100 * 99 / (200 * 199)),
    ],
)
def test_pass_at_k_has_its_published_values(n: int, c: int, k: int, value: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(value, abs=1e-12)


@given(st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_correct_sample(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(itertools.combinations(range(n), k))
    lucky = sum(any(sample < c for sample in draw) for draw in draws)
    assert pass_at_k(n, c, k) == pytest.approx(lucky / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 6), (5, 6, 1), (5, 2, 0), (0, 0, 1)])
def test_pass_at_k_of_more_samples_than_there_are_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= c <= n and 1 <= k <= n"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("c", "n", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (9, 9, 0.7009, 1.0)]
)
def test_a_share_has_wilsons_interval(c: int, n: int, low: float, high: float) -> None:
    assert statistics.share(c, n).ci95 == pytest.approx((low, high), abs=1e-4)


@given(st.lists(st.floats(0, 10), min_size=2, max_size=4))
def test_the_bootstraps_interval_is_that_of_all_resamples(values: list[float]) -> None:
    every = sorted(
        plain_statistics.fmean(draw) for draw in itertools.product(values, repeat=len(values))
    )
    found = statistics.mean(values)
    assert found is not None
    assert found.ci95 is not None
    low, high = found.ci95
    assert found.value == pytest.approx(plain_statistics.fmean(values))
    # Between the neighbours of the exact ends: 10,000 draws miss a quantile by less than 1 %.
    assert every[int(0.015 * len(every))] - 1e-9 <= low <= every[int(0.035 * len(every))] + 1e-9
    last = len(every) - 1
    assert every[last - int(0.035 * len(every))] - 1e-9 <= high <= every[last] + 1e-9
    assert statistics.mean(values) == found


def test_one_unit_has_no_interval_and_none_no_mean() -> None:
    assert statistics.mean([2.0]) == Estimate(2.0, None, 1)
    assert statistics.mean([]) is None
    assert statistics.ratio([], []) is None
    assert statistics.ratio([0.0, 0.0], [0.0, 0.0]) is None


def test_a_ratio_weighs_units_by_what_they_have() -> None:
    found = statistics.ratio([1, 0, 3], [1, 0, 5])
    assert found is not None
    assert found.value == pytest.approx(4 / 6)
    assert found.n == 2  # the one without anything is none
    assert found.ci95 == pytest.approx((0.6, 1.0))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=2, max_size=6))
def test_pairs_without_a_difference_differ_by_nothing(units: list[tuple[int, int]]) -> None:
    both = [float(min(a, b)) for a, b in units], [float(b) for _, b in units]
    found = statistics.difference(both, both)
    assert found is not None
    assert (found.value, found.ci95) == (0.0, (0.0, 0.0))


@given(st.lists(st.floats(0, 5), max_size=8), st.integers(1, 12), st.floats(0.01, 5))
def test_a_curve_goes_on_with_its_last_value(
    scores: list[float], length: int, level: float
) -> None:
    curve = list(itertools.accumulate(scores, max))
    whole = statistics.padded(curve, length)
    best = [max(scores[: k + 1], default=0.0) for k in range(length)]
    assert whole == best
    assert statistics.area(whole) == pytest.approx(sum(best) / length)
    first = next((k + 1 for k in range(length) if best[k] >= level), None)
    assert statistics.reached(whole, level) == first


@pytest.mark.parametrize(
    ("counts", "middle"),
    [
        ([3, 1, 2], 2),
        ([1, 2], 1.5),
        ([1, None, 5], 5),
        ([1, None], None),
        ([None], None),
        ([], None),
    ],
)
def test_what_was_never_reached_is_later_than_anything(
    counts: list[int | None], middle: float | None
) -> None:
    assert statistics.median(counts) == middle


def test_noise_is_the_spread_of_what_was_measured_again() -> None:
    assert statistics.spread([[1.0], [2.0]]) is None
    assert statistics.spread([[1.0, math.e], [5.0]]) == pytest.approx(math.sqrt(0.5))


# ---- how attempts end


def attempt(number: int, status: Status, **more: Any) -> Attempt:
    given = {"op": "relu", "target": "x86_64", "backend": "cpu", "digest": f"d{number}"}
    return Attempt.model_validate(
        given | {"id": f"{number}.0", "slot": number, "number": 0, "status": status} | more
    )


def log_of(*attempts: Attempt) -> Log:
    log = Log()
    log.add(attempts)
    return log


def test_a_kernel_that_was_written_twice_ended_twice_the_same() -> None:
    log = log_of(
        attempt(0, Status.PASSED, score=2.0, speedups={"n": 2.0}),
        attempt(1, Status.BUILD_FAILED, detail="it does not build\nrelu.cpp:3:1: error: no such x"),
        attempt(2, Status.DUPLICATE, digest="d0"),
        attempt(3, Status.DUPLICATE, digest="d1"),
    )
    first, second, third, fourth = endings(log, frozenset())
    assert third.correct and third.score == 2.0 and third.faster(1.9) and not third.faster(2.0)
    assert (
        (fourth.status, fourth.error)
        == (second.status, second.error)
        == (Status.BUILD_FAILED, "error: no such x")
    )
    assert not second.built and first.built


def test_a_reply_without_code_counts_and_no_reply_does_not() -> None:
    log = log_of(
        attempt(0, Status.NO_CODE, digest="", calls=("a",)),
        attempt(1, Status.NO_CODE, digest="", calls=("b",)),
        attempt(2, Status.UNAVAILABLE),
    )
    assert [end.status for end in endings(log, {"a"})] == [Status.NO_CODE, None, None]


def test_what_is_correct_and_was_not_timed_is_not_known_to_be_fast() -> None:
    [one] = endings(log_of(attempt(0, Status.PASSED, score=1.0)), frozenset())
    assert one.faster(0)
    assert not one.faster(0.5)


def sampled(*attempts: Attempt, clock: bool = False) -> baseline.Sampled:
    return baseline.Sampled("relu", tuple(endings(log_of(*attempts), frozenset())), 0, clock)


def test_where_nothing_was_timed_nothing_is_told_of_speed() -> None:
    right = sampled(attempt(0, Status.PASSED, score=1.0), attempt(1, Status.WRONG))
    wrong = sampled(attempt(0, Status.WRONG))
    assert right.faster(1.0) is wrong.faster(1.0) is None
    assert right.document()["fast"] == {"0": 0.5} | dict.fromkeys(("0.5", "0.8", "1", "1.5", "2"))
    section = baseline._passes([right, wrong], [Estimate(0.25)])
    assert section.table is not None
    assert [row[-1] for row in section.table.rows] == ["not timed"] * 3


def test_where_others_were_timed_what_is_not_correct_is_not_fast() -> None:
    slow = sampled(attempt(0, Status.WRONG), clock=True).faster(1.0)
    assert slow is not None and slow.value == 0


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("g++ failed\nrelu.cpp:12:5: error: 'y' was not declared", "error: 'y' was not declared"),
        ("g++ failed\nrelu.cpp:99:1: warning: w\nrelu.cpp:14: error: x", "error: x"),
        ('nvcc failed\nrelu.cu(7): error: expected a ";"', 'error: expected a ";"'),
        ("failed\nTraceback (most recent call last):\n  File\nKeyError: 'x'\n\n", "KeyError: 'x'"),
        ("it took too long", "it took too long"),
        ("", ""),
    ],
)
def test_the_first_error_is_the_same_on_another_line(log: str, line: str) -> None:
    assert first_error(log) == line


# ---- jobs are fair


def read(*overrides: str) -> verb.AskedExperiment:
    return verb.read([*overrides])


@pytest.mark.full
@pytest.mark.parametrize(
    ("question", "differ"),
    [
        (["name=baseline", "ops=[relu,softmax]", "seeds=[0,1]", *MODELLED], set()),
        (
            ["name=feedback", "op=relu", "arms=[full,verdict,none]", *MODELLED],
            {"memory", "feedback"},
        ),
        (["name=search", "op=relu", *QUICK], {"strategy"}),
        (["name=search", "op=relu", *MODELLED], {"strategy", "proposer"}),
    ],
)
def test_jobs_of_one_op_and_seed_differ_in_their_arms_alone(
    question: list[str], differ: set[str]
) -> None:
    asked = read(*question)
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for job, plan in zip(asked.jobs, asked.plans, strict=True):
        told = plan.decisive | {"budget": plan.budget.attempts}
        axes = told.pop("axes")
        groups.setdefault((job.op, job.seed), []).append(told | axes)
    assert len(groups) == len(asked.question.ops) * len(asked.question.seeds)
    for plans in groups.values():
        assert len(plans) == len(asked.question.arms)
        assert {key for key in plans[0] if any(p[key] != plans[0][key] for p in plans)} == differ


@pytest.mark.sampled()
@pytest.mark.parametrize("arm", experiment.load("search").arms)
@pytest.mark.parametrize("author", [QUICK, MODELLED], ids=["catalogue", "model"])
def test_every_strategy_can_be_searched_with(arm: str, author: list[str], tmp_path: Path) -> None:
    asked = read("name=search", "op=matmul", f"strategies=[{arm}]", "seeds=0", *author)
    [plan] = asked.plans
    GenerationRun(plan, tmp_path)
    assert plan.budget.attempts == 45


def test_one_sample_is_greedy_and_several_are_not() -> None:
    def temperature(*more: str) -> float:
        [plan] = read("name=baseline", "op=relu", *MODELLED, *more).plans
        return float(plan.models["coder"]["temperature"])

    assert temperature("n=1") == 0.0
    assert temperature("n=2") == 0.7
    assert temperature("n=2", "models.coder.temperature=1.1") == 1.1


def test_settings_are_those_of_one_arm() -> None:
    asked = read(
        "name=search",
        "op=relu",
        "seeds=0",
        "strategies=[refine,evolutionary]",
        "settings.evolutionary.strategy.population=8",
        "settings.refine.strategy.parent=last",
        *QUICK,
    )
    refine, evolutionary = (plan.axes["strategy"] for plan in asked.plans)
    assert (refine["parent"], evolutionary["population"]) == ("last", 8)


def test_arms_are_compared_seed_by_seed() -> None:
    question = StudyQuestion(("relu",), ("a", "b"), (0, 1), 3)
    assert [job.name for job in question.jobs({"a": [], "b": []})] == [
        "relu-a-0",
        "relu-b-0",
        "relu-a-1",
        "relu-b-1",
    ]


@pytest.mark.sampled()
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["op=relu"], "name= is required"),
        (["name=serch", "op=relu"], "No experiment 'serch'; did you mean 'search'?"),
        (["name=search"], "Got no operator, or both op= and ops=; name one or several with ops="),
        (["name=search", "op=relo"], "No op 'relo'; did you mean 'relu'?"),
        (
            ["name=search", "op=relu", "strategies=[refin]"],
            "No strategy 'refin'; did you mean 'refine'?",
        ),
        (
            ["name=search", "op=relu", "arms=[full]"],
            "Got arms=['full'], which name=search does not have",
        ),
        (["name=search", "op=relu", "attempts=0"], "Got attempts=0, expected a number from 1"),
        (["name=search", "op=relu", "seeds=[a]"], "Got seeds=['a'], expected whole numbers"),
        (["name=search", "op=relu", "seeds=[1,1]"], "Two jobs are relu-refine-1; name each op"),
        (
            ["name=search", "op=relu", "seed=1"],
            "Got 'seed=1', which an experiment decides; use seeds=",
        ),
        (["name=search", "op=relu", "budget.attempts=3"], "use n=, turns= or attempts="),
        (
            ["name=search", "op=relu", "strategy.turns=3"],
            "for one of refine, branching, evolutionary, bandit, best_of_n set settings.refine.str",
        ),
        (["name=search", "op=relu", "settings.refine=3"], "expected settings.<arm>.<key>=<value>"),
        (["name=search", "op=relu", "settings.beam.strategy.width=3"], "No arm 'beam'; available"),
        (
            ["name=search", "op=relu", "settings.refine.strategy.turn=3"],
            "No option 'strategy.turn'",
        ),
        (["name=search", "op=relu", "taget=h200"], "No option 'taget'; did you mean 'target'?"),
        (["name=search", "op=relu", "target=h201"], "No target 'h201'"),
        (["name=search", "op=relu", "run=a/b"], "Got run='a/b', expected a folder name"),
        (
            ["name=baseline", "op=relu"],
            "name=baseline asks a language model to write, and none is "
            "named; set models.coder.model=<litellm id>",
        ),
        (
            ["name=feedback", "op=relu", "memory=all", "models.coder.model=x/y"],
            "for one of full, none set settings.full.memory=all",
        ),
        (
            ["name=feedback", "op=relu", "arms=[ful]", "models.coder.model=x/y"],
            "No arm 'ful'; did you mean 'full'?",
        ),
    ],
)
def test_a_question_that_makes_no_sense_is_one_line_and_nothing_runs(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main.run(["experiment", *argv, f"reports={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("portkern: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("attempts.jsonl"))


# ---- experiments whose outcome is known


class Bench(ScriptedBench):
    """``says TEXT`` in a source is what the compiler or the evaluator says of it."""

    def evaluate(self, candidate: Candidate) -> list[Record]:
        said = re.search(r"says (.*)", candidate.source)
        detail = f"no good\nrelu.cpp:{len(candidate.source)}:1: error: {said[1] if said else ''}"
        return [
            one if one.verdict is Verdict.PASSED else one.model_copy(update={"detail": detail})
            for one in super().evaluate(candidate)
        ]


class Script:
    """An author for each job, by its folder's name; ``ran`` are the jobs that were gone through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, writers: Mapping[str, Answer]) -> None:
        self.ran: list[str] = []
        script = self

        class Scripted(GenerationRun):
            def __init__(self, plan: RunPlan, folder: Path, **_: Any) -> None:
                super().__init__(plan, folder)
                answer = next(one for name, one in writers.items() if name in folder.name)
                self.models = ScriptedModels(self.models, answer, plan)
                self.bench = Bench(
                    plan.task, folder, self.bench._cache, plan.evaluation, stage=plan.stage
                )

            def execute(self, **more: Any) -> str:
                script.ran.append(self.folder.name)
                return super().execute(**more)

        monkeypatch.setattr(generate, "GenerationRun", Scripted)


def turns(*worths: str | float) -> Answer:
    """Kernels in turn that are all different; ``build_failed: TEXT`` ends with that error."""

    def answer(request: ModelRequest, count: int) -> str:
        worth, _, said = str(worths[count]).partition(": ")
        return kernel(worth, about=f"says {said}\n// number {count}")

    return answer


def run(tmp_path: Path, *argv: str, code: int = 0) -> dict[str, Any]:
    given = ["experiment", *argv, f"reports={tmp_path}", "run=it", "json=true"]
    assert main.run(given) == code
    return dict(json.loads((tmp_path / "it" / "experiment.json").read_text()))


def values(found: Sequence[Mapping[str, Any] | None]) -> list[float | None]:
    return [None if one is None else one["value"] for one in found]


def test_each_job_says_how_many_there_are_what_is_spent_and_how_long_the_others_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Script(monkeypatch, {"": turns("wrong")})
    monkeypatch.setattr(pace, "expected_s", lambda run, **_: 120.0)
    given = ["name=baseline", "ops=[relu,softmax]", "n=1", *MODELLED]
    assert main.run(["experiment", *given, f"reports={tmp_path}", "run=it"]) == 0
    first, second = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert first == (
        "# 1 of 2: relu-oneshot-0; 0 tokens, 0.0000 USD; about 4 min left, and what models take to "
        "answer"
    )
    assert re.fullmatch(
        r"# 2 of 2: softmax-oneshot-0; 15 tokens, unknown USD; about \d+ \w+ left", second
    )


def test_baseline_tells_pass_at_k_and_where_failures_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def softmax(request: ModelRequest, count: int) -> str:
        return "I cannot." if count < 2 else kernel("1.5", "softmax", about=str(count))

    relu = turns(2.0, "wrong", "build_failed: x", "build_failed: y", 0.5)
    Script(monkeypatch, {"relu": relu, "softmax": softmax})
    told = run(tmp_path, "name=baseline", "ops=[relu,softmax]", "n=5", *MODELLED)
    first, second = told["results"]["ops"]["relu"], told["results"]["ops"]["softmax"]
    assert (first["samples"], first["correct"]) == (5, 2)
    assert first["pass_at"] == pytest.approx({str(k): pass_at_k(5, 2, k) for k in range(1, 6)})
    assert first["ended"] == {"build_failed": 2, "wrong": 1, "passed": 2}
    assert first["fast"] == {"0": 0.4, "0.5": 0.2, "0.8": 0.2, "1": 0.2, "1.5": 0.2, "2": 0.0}
    assert first["built_at_1"]["value"] == 0.6
    assert second["ended"] == {"no_code": 2, "passed": 3}  # nobody asks a second time
    assert told["results"]["pass_at"]["1"]["value"] == pytest.approx((0.4 + 0.6) / 2)
    assert "Of 5 failures 2 ended as build failed." in told["answer"]
    assert {one["job"] for one in told["jobs"]} == {"relu-oneshot-0", "softmax-oneshot-0"}
    page = (tmp_path / "it" / "experiment.md").read_text()
    assert "| relu | 5 | 2 | 40 % [12, 77] | 100 % | 60 % [23, 88] | 20 % [4, 62] |" in page
    assert "| relu | – | 2 | 1 | 2 |" in page


def test_samples_that_no_model_answered_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Script(monkeypatch, {"": turns(2.0, 1.0, 1.0)})
    ask, up = ScriptedModels.answer, {"0/coder#1"}

    async def down(self: ScriptedModels, request: ModelRequest) -> Reply:
        if request.id not in up:
            raise ModelError("nobody there")
        return await ask(self, request)

    monkeypatch.setattr(ScriptedModels, "answer", down)
    told = run(tmp_path, "name=baseline", "op=relu", "n=3", "inflight=1", *MODELLED)
    found = told["results"]["ops"]["relu"]
    assert (found["samples"], found["unevaluated"], found["pass_at"]) == (1, 2, {"1": 1.0})
    assert "of 3 samples 2 were not evaluated" in told["notes"][0]
    up.clear()
    told = run(tmp_path / "b", "name=baseline", "op=relu", "n=1", *MODELLED, code=3)
    assert told["failed"] == {"relu-oneshot-0": "nothing could be evaluated: nobody there"}
    assert told["answer"] == "No job is done: nothing could be evaluated: nobody there."


def test_a_job_whose_model_is_down_is_not_done_and_goes_on_with_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    up = [2]

    def answer(request: ModelRequest, count: int) -> str:
        if count >= up[0]:
            raise ModelDown("nobody there")
        return turns(2.0, 1.0, 1.5)(request, count)

    Script(monkeypatch, {"": answer})
    asked = ["name=baseline", "op=relu", "n=3", "inflight=1", *MODELLED]
    told = run(tmp_path, *asked, code=3)
    assert told["failed"] == {"relu-oneshot-0": "nobody there"}
    assert "portkern: error: relu-oneshot-0: nobody there" in capsys.readouterr().err
    up[0] = 3
    found = run(tmp_path, *asked)["results"]["ops"]["relu"]
    assert (found["samples"], found["correct"]) == (3, 3)


BROKEN = ("build_failed: a", "build_failed: a", "build_failed: b", "wrong", 1.0)
MENDED = ("build_failed: a", 1.0, 1.1, "build_failed: c", 1.2)


@pytest.mark.full
def test_feedback_tells_compile_errors_by_turn_and_what_becomes_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = (1.0, 1.1, 1.2, 1.3, 1.4)
    Script(
        monkeypatch,
        {
            "full-0": turns(*MENDED),
            "full-1": turns(*right),
            "none-0": turns(*BROKEN),
            "none-1": turns(*BROKEN),
        },
    )
    told = run(tmp_path, "name=feedback", "op=relu", "turns=5", "seeds=[0,1]", *MODELLED)
    full, none = told["results"]["arms"]["full"], told["results"]["arms"]["none"]
    assert values(full["by_turn"]["compile_errors"]) == [0.5, 0.0, 0.0, 0.5, 0.0]
    assert values(none["by_turn"]["compile_errors"]) == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert values(none["by_turn"]["wrong_results"]) == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert values(none["correct_so_far"]) == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert full["from_turn_2"]["compile_errors"]["value"] == 1 / 8
    assert none["from_turn_2"]["compile_errors"]["value"] == 4 / 8
    assert full["compile_errors_mended"]["value"] == 1.0  # both of job 0
    assert none["compile_errors_mended"]["value"] == pytest.approx(1 / 3)
    assert none["compile_errors_mended_per_turn"]["value"] == pytest.approx(1 / 4)
    assert none["syntax_looping"]["value"] == pytest.approx(1 / 3)
    assert values(none["syntax_looping_by_turn"]) == [1.0, 0.0, 0.0, None]
    assert none["wrong_results_righted"]["value"] == 1.0
    [differs] = told["results"]["differences"]
    assert (differs["arm"], differs["than"], differs["jobs"]) == ("full", "none", 2)
    assert differs["compile_errors"]["value"] == pytest.approx(-3 / 8)
    assert differs["compile_errors"]["ci95"] == [-0.5, -0.25]
    assert "The difference is -38 [-50, -25] points." in told["answer"]


def test_with_feedback_a_prompt_holds_it_and_without_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Script(monkeypatch, {"": turns("build_failed: whatever is that", 1.0)})
    arms = "arms=[full,verdict,none]"
    run(tmp_path, "name=feedback", "op=relu", "turns=2", "seeds=[0]", arms, *MODELLED)

    def second(arm: str) -> str:
        lines = (tmp_path / "it" / f"relu-{arm}-0" / "calls.jsonl").read_text().splitlines()
        return str(json.loads(lines[1])["messages"])

    assert "whatever is that\\n" in second("full") and "number 0" in second("full")
    assert "error: whatever" not in second("verdict") and "number 0" in second("verdict")
    assert "no good" in second("verdict")  # the verdict's own line
    assert "no good" not in second("none") and "number 0" not in second("none")


def test_search_tells_curves_areas_and_how_soon_the_best_was_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Script(
        monkeypatch,
        {
            "refine-0": turns(1.0, 1.5, 2.0, 1.0),
            "refine-1": turns(1.0, "wrong", 1.96, 1.0),
            "best_of_n": turns("build_failed: x", 1.0, 1.0, 1.2),
        },
    )
    told = run(
        tmp_path,
        "name=search",
        "op=relu",
        "strategies=[best_of_n,refine]",
        "attempts=4",
        "seeds=[0,1]",
        *MODELLED,
    )
    found = told["results"]["ops"]["relu"]
    assert found["best"] == 2.0
    assert list(found["strategies"]) == ["refine", "best_of_n"]  # the largest area first
    refine, sampled = found["strategies"].values()
    assert refine["curves"] == {"0": [1.0, 1.5, 2.0, 2.0], "1": [1.0, 1.0, 1.96, 1.96]}
    assert values(refine["curve"]) == pytest.approx([1.0, 1.25, 1.98, 1.98])
    assert refine["area"]["value"] == pytest.approx((1.625 + 1.48) / 2)
    assert refine["area"]["ci95"] == pytest.approx([1.48, 1.625])
    assert refine["area_of_best"]["value"] == pytest.approx((1.625 + 1.48) / 4)
    assert refine["attempts_to_95"] == [3, 3]
    assert sampled["attempts_to_95"] == [None, None]
    assert sampled["median_attempts_to_95"] is None
    assert sampled["score"] == {"value": 1.2, "ci95": [1.2, 1.2], "n": 2}
    assert "relu: refine has the best curve" in told["answer"]
    assert "overlaps no other's" in told["answer"]
    assert found["noise"] == 0.0  # the very same kernels were written in both jobs
    assert found["repeated"] == 5  # three of best_of_n, the first and last of refine
    assert "> 4 (0 of 2)" in (tmp_path / "it" / "experiment.md").read_text()


def test_operators_count_alike_however_much_is_gained_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*worths: float) -> Answer:
        return lambda request, count: kernel(worths[count], "softmax", about=str(count))

    Script(
        monkeypatch,
        {
            "relu-refine": turns(1.0, 2.0),
            "relu-best": turns(2.0, 1.0),
            "softmax-refine": answer(8.0, 9.0),
            "softmax-best": answer(10.0, 1.0),
        },
    )
    given = ["strategies=[refine,best_of_n]", "attempts=2", "seeds=0", *MODELLED]
    run(tmp_path, "name=search", "ops=[relu,softmax]", *given)
    page = (tmp_path / "it" / "experiment.md").read_text()
    assert "| best_of_n | 2 | 100 % [100, 100] | 100 % [100, 100] |" in page
    assert "| refine | 2 | 80 % [75, 85] | 95 % [90, 100] |" in page


def test_a_search_without_a_correct_kernel_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Script(monkeypatch, {"": turns("wrong", "build_failed: x")})
    given = ["name=search", "op=relu", "strategies=[refine]", "attempts=2", "seeds=0", *MODELLED]
    told = run(tmp_path, *given)
    assert told["answer"] == "No strategy found a correct kernel."
    assert not (tmp_path / "it" / "experiment.png").exists()


# ---- it goes on


SEARCH = ["name=search", "op=relu", "strategies=[refine,best_of_n]", "attempts=3", *MODELLED]


@pytest.mark.full
def test_finished_jobs_are_not_run_again_and_one_that_was_cut_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    cut_at = 5

    def answer(request: ModelRequest, count: int) -> str:
        asked.append(request.id)
        if len(asked) == cut_at:
            raise KeyboardInterrupt
        return kernel(f"1.{count}", about=str(count))

    script = Script(monkeypatch, {"": answer})
    argv = ["experiment", *SEARCH, "seeds=[0]", f"reports={tmp_path}", "run=it"]
    assert main.run(argv) == 130
    half = json.loads((tmp_path / "it" / "experiment.json").read_text())
    assert [one["done"] for one in half["jobs"]] == [True, False]
    assert "1 of 2 jobs are done" in (tmp_path / "it" / "experiment.html").read_text()
    run(tmp_path, *SEARCH, "seeds=[0]")
    assert script.ran == ["relu-refine-0", "relu-best_of_n-0", "relu-best_of_n-0"]
    assert len(asked) == 7  # six, and the one that was cut again
    whole = run(tmp_path, *SEARCH, "seeds=[0,1]")  # more of it
    assert script.ran[3:] == ["relu-refine-1", "relu-best_of_n-1"]
    again = run(tmp_path, *SEARCH, "seeds=[0,1]")
    assert len(script.ran) == 5
    assert again == whole
    more = [one for one in SEARCH if not one.startswith("attempts")]
    told = run(tmp_path, *more, "attempts=4", "seeds=[0]")  # each goes on where it ended
    assert [one["attempts"] for one in told["jobs"]] == [4, 4]
    assert len(asked) == 13 + 2


@pytest.mark.full
def test_another_question_in_the_same_folder_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(monkeypatch, {"": turns(1.0, 1.1, 1.2)})
    run(tmp_path, *SEARCH, "seeds=[0]")
    argv = ["experiment", *SEARCH, "seeds=[0]", f"reports={tmp_path}", "run=it", "torch_ops=allow"]
    assert main.run(argv) == 2
    assert "holds a run with other torch_ops" in capsys.readouterr().err
    assert len(script.ran) == 2
    assert main.run([*argv, "fresh=true"]) == 0
    assert (tmp_path / "it.1" / "experiment.json").exists()


def test_a_job_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Script(monkeypatch, {"": turns(1.0, 1.1, 1.2)})
    real = generate.generate

    def generated(options: generate.GenerateOptions) -> RunSummary:
        if "refine" in options.run:
            raise ModelError("the key is not taken")
        return real(options)

    monkeypatch.setattr(generate, "generate", generated)
    told = run(tmp_path, *SEARCH, "seeds=[0]", code=3)
    assert told["failed"] == {"relu-refine-0": "the key is not taken"}
    assert list(told["results"]["ops"]["relu"]["strategies"]) == ["best_of_n"]
    assert "portkern: error: relu-refine-0: the key is not taken" in capsys.readouterr().err
    assert "the key is not taken" in (tmp_path / "it" / "experiment.html").read_text()


def test_two_experiments_do_not_write_to_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from filelock import FileLock

    (tmp_path / "it").mkdir()
    with FileLock(tmp_path / "it" / ".lock"):
        assert main.run(["experiment", *SEARCH, f"reports={tmp_path}", "run=it"]) == 2
    assert "Another portkern is writing" in capsys.readouterr().err


# ---- the report

HOSTILE = "</style><script>alert(1)</script> | $\\frac$ \x00 & <!-- 漢字"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a feedback experiment with a job that failed in hostile words."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        folder = hostile(tmp_path_factory.mktemp("reports"), monkeypatch)
    return folder


def hostile(reports: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Script(
        monkeypatch,
        {
            "full-0": turns(*MENDED),
            "none-0": turns(*BROKEN),
            "full-1": turns(*MENDED),
            "none-1": turns(*BROKEN),
        },
    )
    real = generate.generate

    def generated(options: generate.GenerateOptions) -> RunSummary:
        if options.run == "relu-none-1":
            raise ModelError(HOSTILE)
        return real(options)

    monkeypatch.setattr(generate, "generate", generated)
    given = ["name=feedback", "op=relu", "turns=5", "seeds=[0,1]", *MODELLED]
    run(reports, *given, code=3)
    return reports / "it"


@pytest.mark.full
def test_the_page_refers_to_nothing_outside_itself_and_runs_no_script(written: Path) -> None:
    page = (written / "experiment.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|//cdn|@import|url\(|\bsrc=|<link|<img|<script", page)
    assert set(re.findall(r'href="([^"]*)"', page)) == {
        "relu-full-0/attempts.html",
        "relu-none-0/attempts.html",
        "relu-full-1/attempts.html",
    }
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert "prefers-color-scheme: dark" in page
    assert "&lt;/style&gt;&lt;script&gt;" in page
    assert page.count("<svg") == page.count('role="img" aria-label="') == 6
    assert "nan" not in re.sub(r"<[^>]*title>", "", page).lower().split()


def test_every_view_has_the_same_numbers(written: Path) -> None:
    told = json.loads((written / "experiment.json").read_text())
    rate = told["results"]["arms"]["none"]["syntax_looping"]["value"]
    for name in ("experiment.md", "experiment.html"):
        text = (written / name).read_text(encoding="utf-8")
        assert f"{rate * 100:.0f} %" in text
        assert told["answer"] in text
    assert (written / "experiment.png").read_bytes().startswith(b"\x89PNG")
    tables = re.findall(r"(?:^\|.*\n)+", (written / "experiment.md").read_text(), re.MULTILINE)
    assert len(tables) == 4
    for table in tables:
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1


def test_without_matplotlib_there_is_no_picture_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Script(monkeypatch, {"": turns(1.0, 1.1, 1.2)})
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    run(tmp_path, *SEARCH, "seeds=[0]")
    assert "experiment.png was not written: matplotlib is not installed" in capsys.readouterr().err


estimates = st.one_of(
    st.none(),
    st.tuples(st.floats(0, 9), st.floats(0, 1), st.floats(0, 1)).map(
        lambda drawn: Estimate(drawn[0], (drawn[0] - drawn[1], drawn[0] + drawn[2]), 3)
    ),
)


@given(st.lists(st.lists(estimates, min_size=1, max_size=12), min_size=1, max_size=10))
def test_what_is_drawn_lies_within_and_labels_lie_apart(rows: list[list[Estimate | None]]) -> None:
    chart = Chart("t", "x", tuple(ChartLine(str(k), tuple(row)) for k, row in enumerate(rows)))
    if not chart.shown:
        return
    shapes = drawing.draw(chart).shapes
    dots = [shape for shape in shapes if isinstance(shape, Dot)]
    assert len(dots) == sum(estimate is not None for row in rows for estimate in row)
    marks = [(dot.x, dot.y) for dot in dots]
    for shape in shapes:
        if isinstance(shape, Area) or (isinstance(shape, DrawnLine) and shape.width == 2):
            marks += shape.points
    for x, y in marks:
        assert drawing.LEFT - 0.1 <= x <= drawing.WIDTH - drawing.RIGHT + 0.1
        assert drawing.TOP - 0.1 <= y <= drawing.HEIGHT - drawing.BOTTOM + 0.1
    labels = [shape for shape in shapes if isinstance(shape, ChartText) and shape.bold]
    assert len(labels) == sum(any(row) for row in rows)
    heights = sorted(label.y for label in labels)
    assert all(b - a >= drawing.APART - 1e-6 for a, b in itertools.pairwise(heights))


@given(st.integers(1, 60))
def test_long_names_leave_half_of_a_chart_to_its_lines(length: int) -> None:
    row = (Estimate(1.0, None, 1), Estimate(2.0, None, 1))
    shapes = drawing.draw(Chart("t", "x", (ChartLine("m" * length, row),))).shapes
    [path] = [shape for shape in shapes if isinstance(shape, DrawnLine) and shape.width == 2]
    [label] = [shape for shape in shapes if isinstance(shape, ChartText) and shape.bold]
    right = max(x for x, _ in path.points)
    assert drawing.WIDTH / 2 <= right < label.x
    fits = label.x + text_width(label.text, bold=True) <= drawing.WIDTH + 0.1
    assert fits or right == drawing.WIDTH / 2


@pytest.mark.full
def test_both_painters_paint_every_shape() -> None:
    row = tuple(Estimate(y, (y - 0.5, y + 0.5), 3) for y in (1.0, 2.0))
    lone = (Estimate(3.0, None, 1), None)
    lines = (ChartLine("<a> & $b", row), ChartLine("c$", lone))
    pictures = [
        drawing.draw(Chart("t", "x", lines)),
        drawing.draw_bars(Bars("u", ("p", "q"), (("x", (3, 1)),))),
    ]
    counts = Counter(type(shape) for picture in pictures for shape in picture.shapes)
    page = "".join(map(svg.paint, pictures))
    elements = Counter(re.findall(r"<(\w+)", page))
    assert elements["polyline"] == counts[DrawnLine]
    assert elements["polygon"] == counts[Area]
    assert elements["rect"] == counts[Rectangle]
    assert elements["circle"] == counts[Dot]
    assert elements["text"] == counts[ChartText]
    assert "&lt;a&gt; &amp; $b" in page
    painted = png.paint("t", pictures)
    assert isinstance(painted, bytes)
    pixels = (imread(io.BytesIO(painted)) * 255).round().astype(int).reshape(-1, 4)
    colours = {tuple(pixel) for pixel in pixels.tolist()}
    assert {(*bytes.fromhex(colour[1:]), 255) for colour in png.PALETTE[:2]} <= colours


@given(st.floats(-100, 100), st.floats(1e-3, 1e4))
def test_ticks_are_few_and_round(low: float, size: float) -> None:
    found = drawing.ticks(low, low + size)
    assert 2 <= len(found) <= 7
    assert all(low - size * 1e-6 <= one <= low + size * (1 + 1e-6) for one in found)


@given(st.integers(1, 5), st.integers(0, 3000))
def test_counts_on_an_axis_have_their_ends(first: int, more: int) -> None:
    found = drawing.whole(first, first + more)
    assert found[0] == first
    assert found[-1] == first + more
    assert found == sorted(set(found))
    assert len(found) <= 13


def test_bars_are_as_wide_as_their_parts() -> None:
    shapes = drawing.draw_bars(Bars("t", ("a", "b"), (("x", (3, 1)), ("y", (0, 0))))).shapes
    first, second = [
        shape for shape in shapes if isinstance(shape, Rectangle) and shape.height == drawing.BAR
    ]
    assert first.width == pytest.approx(3 * second.width)
    assert first.x + first.width == pytest.approx(second.x)
    assert first.tooltip == "x: 3 of 4 a"


@needs_browser
def test_a_browser_has_nothing_to_complain_about(written: Path) -> None:
    assert "without feedback</text>" in dom(written / "experiment.html")


# ---- for real

SOURCE = """\
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = %s < 0 ? scalar_t(0.0f) : x[i];
  return 0;
}
"""


@pytest.mark.full
def test_a_model_that_heeds_a_real_compiler_mends_with_feedback_and_loops_without(
    tmp_path: Path,
) -> None:
    """A source that it writes twice is one kernel, and a compile error each time."""

    def answer(asked: Mapping[str, Any], count: int) -> str:
        told = "was not declared" in str(asked["messages"])
        return f"Here.\n```cpp\n{SOURCE % ('x[i]' if told else 'nonsense')}```\n"

    with Server(answer) as server:
        told = run(
            tmp_path,
            "name=feedback",
            "op=relu",
            "turns=3",
            "seeds=[0]",
            "rounds=2",
            *MODELLED,
            "budget_s=0",
            f"models.coder.api_base={server.url}",
            "inflight=1",
        )
    full, none = told["results"]["arms"]["full"], told["results"]["arms"]["none"]
    assert values(full["by_turn"]["compile_errors"]) == [1.0, 0.0, 1.0]
    assert values(full["compile_errors_mended_by_turn"]) == [1.0, None]
    assert values(none["by_turn"]["compile_errors"]) == [1.0, 1.0, 1.0]
    assert values(none["syntax_looping_by_turn"]) == [1.0, 1.0]
    jobs = {one["arm"]: one["statuses"] for one in told["jobs"]}
    assert jobs["none"] == {"build_failed": 1, "duplicate": 2}


@pytest.mark.drawn
def test_a_search_on_this_machine_has_real_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [
        "experiment",
        "name=search",
        "op=relu",
        "strategies=[refine,best_of_n]",
        "attempts=2",
        "seeds=[0]",
        "target=x86_64",
        "workloads=ci",
        "final=[]",
        "rounds=2",
        "budget_s=0.01",
        "track=false",
        f"reports={tmp_path}",
    ]
    assert main.run(argv) == 0
    folder = tmp_path / "experiment-search-relu-x86_64-cpp"
    told = json.loads((folder / "experiment.json").read_text())
    found = told["results"]["ops"]["relu"]
    assert set(found["strategies"]) == {"refine", "best_of_n"}
    for one in found["strategies"].values():
        curve = values(one["curve"])
        assert len(curve) == 2
        assert curve == sorted(v for v in curve if v)
        # None is a race that was too noisy, as beside other processes.
        assert one["raced"] is None or one["raced"]["value"] > 0
    firsts = [values(one["curve"])[0] for one in found["strategies"].values()]
    timed = UNTIMED not in firsts  # beside other processes it may be too noisy
    assert found["repeated"] >= timed  # both begin with the kernel that ships
    assert told["facts"]["device"] != "none"
    out = capsys.readouterr().out
    assert "# 2 of 2: relu-best_of_n-0" in out
    assert "One seed each does not tell strategies apart." in " ".join(out.split())
