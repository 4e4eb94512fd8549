"""Public result sets as samples, and what is said of malformed ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portkern.agent.attempt import Status
from portkern.cli.verbs import compare as verb
from portkern.errors import ConfigError
from portkern.experiment.compare import public
from portkern.experiment.compare.comparison import SampleScope, compare
from portkern.experiment.compare.sample import Sample

HEAD = (
    "model,gpu,level,problem,compiled,correct,speedup,ref_ms,sol_ms,turns,total_tokens,"
    "estimated_cost_usd,op_type,baseline_type,precision_used,run_dir,solution_link,baseline_link"
)
GOOD = (
    "m,NVIDIA H100 80GB,1,19_ReLU.py,True,True,1.5,3.0,2.0,4,1000,0.25,act,eager,fp32,r,s,b",
    "m,NVIDIA H100 80GB,1,20_Leaky.py,True,False,0.0,3.0,,4,500,0.25,act,eager,fp32,r,s,b",
    "m,RTX 3090,2,1_Conv.py,False,False,,,,4,500,0.5,conv,eager,fp16,r,s,b",
)
WARP = {"hardware": "NVIDIA H200", "device": "0", "correctness_trials": "(5 / 5)"}


def load(results: list[str], times: Path | None = None) -> list[Sample]:
    """Loads results and expects no problems."""
    found = public.load(results, times)
    assert found.problems == []
    return found.samples


def table(folder: Path, *lines: str, head: str = HEAD) -> Path:
    path = folder / "results.csv"
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def result(sample: int = 0, **more: Any) -> dict[str, Any]:
    given = {"sample_id": sample, "compiled": True, "correctness": True, "runtime": 2.0}
    return {**given, "metadata": WARP, "runtime_stats": {}, **more}


def run(folder: Path, results: object, *kernels: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "eval_results.json").write_text(json.dumps(results), encoding="utf-8")
    for name in kernels:
        (folder / name).write_text("import triton\nclass ModelNew:\n    pass\n", encoding="utf-8")
    return folder


def baseline(folder: Path, times: object) -> Path:
    path = folder / "baseline_time_torch.json"
    path.write_text(json.dumps(times), encoding="utf-8")
    return path


# ---- kernelbench-v3


def test_a_table_of_kernelbench_v3_is_samples(tmp_path: Path) -> None:
    first, second, third = load([str(table(tmp_path, *GOOD))])
    assert (first.op, first.suite, first.target) == (
        "level1/19_ReLU",
        "kernelbench-v3/level1",
        "h100",
    )
    assert (first.status, first.speedup, first.us) == (Status.PASSED, 1.5, 2000)
    assert (second.status, second.speedup) == (Status.WRONG, None)
    assert (third.status, third.target, third.dtype) == (
        Status.BUILD_FAILED,
        "rtx_3090",
        "float16",
    )
    comparison = compare([first, second, third])
    spent = comparison.figure(SampleScope("m", "measured"), "usd_per_solved")
    assert spent is not None and spent.estimate is not None and spent.estimate.value == 0.5


def test_repeated_rows_of_a_table_are_samples_of_one_task(tmp_path: Path) -> None:
    samples = load([str(table(tmp_path, GOOD[0], GOOD[0]))])
    assert [sample.index for sample in samples] == [0, 1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (GOOD[0].replace("True,True", "True,maybe"),
         "results.csv:3: correct is 'maybe', expected True, False or nothing"),
        (GOOD[0].replace("True,True", "False,True"),
         "results.csv:3: correct is 'True', expected False where it did not compile"),
        (GOOD[0].replace(",1.5,", ",fast,"),
         "results.csv:3: speedup is 'fast', expected a number of at least 0, or nothing"),
        (GOOD[0].replace(",1.5,", ",nan,"),
         "results.csv:3: speedup is 'nan', expected a number of at least 0, or nothing"),
        (GOOD[0].replace(",1000,", ",-4,"),
         "results.csv:3: total_tokens is '-4', expected a whole number of at least 0, or nothing"),
        (GOOD[0].replace("m,", ",", 1), "results.csv:3: model is '', expected some text"),
        (GOOD[0] + ",more", "results.csv:3 has 19 fields, expected 18"),
        ('m,"open', "results.csv:3 is not CSV: unexpected end of data"),
    ],
)  # fmt: skip
def test_a_malformed_row_is_told_with_its_place_and_the_others_are_taken(
    tmp_path: Path, line: str, said: str
) -> None:
    found = public.load([str(table(tmp_path, GOOD[1], line))])
    assert [sample.op for sample in found.samples] == ["level1/20_Leaky"]
    [problem] = found.problems
    assert problem.endswith(said) and "\n" not in problem


@pytest.mark.parametrize("problem", ["../../x", "/etc/passwd", r"..\\..\\x", "a/../../../x.py"])
def test_a_name_that_leads_out_of_its_folder_costs_its_row_alone(
    tmp_path: Path, problem: str
) -> None:
    bad = GOOD[0].replace("19_ReLU.py", problem).replace(",1,", ",,", 1).replace(",,", ",1,", 1)
    found = public.load([str(table(tmp_path, GOOD[1], bad, GOOD[2]))])
    assert len(found.samples) == (2 if ".." in problem else 3)
    assert len(found.problems) == (".." in problem)
    folder = run(tmp_path / "gpt", {problem: [result()], "1": [result()]})
    kept = public.load([str(folder)])
    assert [sample.op for sample in kept.samples] == ["1"] and len(kept.problems) == 1


def test_a_table_without_one_good_row_is_an_error_with_the_first_problem(tmp_path: Path) -> None:
    bad = [GOOD[0].replace("True,True", "True,maybe"), GOOD[1].replace("0.0", "fast")]
    with pytest.raises(ConfigError, match=r"csv:2: correct is 'maybe'.*and 1 more like it"):
        public.load([str(table(tmp_path, *bad))])


def test_the_verb_takes_the_good_rows_and_says_which_are_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path, *GOOD, GOOD[0].replace(",1.5,", ",fast,"))
    given = [f"results={path}", f"reports={tmp_path}", "run=it", "track=false"]
    assert verb.main(given) == 1
    said = capsys.readouterr().out
    assert "results.csv:5: speedup is 'fast'" in said and "1 model" in said
    assert "results.csv:5" in (tmp_path / "it" / "compare.md").read_text(encoding="utf-8")


def test_a_table_without_a_column_names_it(tmp_path: Path) -> None:
    path = table(tmp_path, head="model,level,problem,compiled,correct,speedup")
    with pytest.raises(
        ConfigError, match=r"results\.csv:1 has no column 'gpu', expected model, gpu"
    ):
        load([str(path)])


# ---- KernelBench


def test_results_of_kernelbench_are_samples_by_level_and_file(tmp_path: Path) -> None:
    kernels = [f"level_1_problem_{n}_sample_0_kernel.py" for n in (1, 2, 3)]
    failed = result(compiled=False, correctness=False, runtime=-1.0)
    folder = run(tmp_path / "gpt", {"1": [result()], "2": [failed]}, *kernels)
    times = baseline(tmp_path, {"level1": {"1_Matmul.py": {"mean": 5.0, "std": 0.1}}})
    one, two, three = load([str(folder)], times)
    assert (one.model, one.op, one.suite) == ("gpt", "level1/1_Matmul", "kernelbench/level1")
    assert (one.backend, one.target) == ("triton", "h200")
    assert (one.speedup, one.us, one.baseline) == (2.5, 2000, "baseline_time_torch")
    assert (two.status, two.speedup) == (Status.BUILD_FAILED, None)
    assert three.status is None  # nobody evaluated it


def test_without_a_baseline_nothing_is_said_of_speed(tmp_path: Path) -> None:
    folder = run(tmp_path / "gpt", {"1": [result(0), result(1, correctness=False)]})
    samples = load([f"mine={folder / 'eval_results.json'}"])
    assert {sample.model for sample in samples} == {"mine"}
    comparison = compare(samples)
    scope = SampleScope("mine", "measured")
    fast = comparison.figure(scope, "fast", 1, 1.0)
    passed = comparison.figure(scope, "pass", 1)
    assert fast is not None and (fast.estimate, fast.reason) == (None, "not timed")
    assert passed is not None and passed.estimate is not None and passed.estimate.value == 0.5


def test_a_baseline_of_one_level_says_which_level_results_are_of(tmp_path: Path) -> None:
    folder = run(tmp_path / "gpt", {"7": result()})
    times = baseline(tmp_path, {"level2": {"7_Gemm.py": {"mean": 1.0}}})
    [sample] = load([str(folder)], times)
    assert (sample.op, sample.speedup) == ("level2/7_Gemm", 0.5)


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        ({"metadata": {"runtime_error": "illegal access"}}, Status.CRASHED),
        ({"metadata": {"correctness_issue": "mismatch"}}, Status.WRONG),
        ({"compiled": False}, Status.BUILD_FAILED),
    ],
)
def test_a_failure_ends_at_its_stage(tmp_path: Path, entry: dict[str, Any], status: Status) -> None:
    folder = run(tmp_path / "gpt", {"1": [result(correctness=False, runtime=-1.0, **entry)]})
    [sample] = load([str(folder)])
    assert sample.status is status


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([1], "eval_results.json holds a list, expected results by problem"),
        ({"one": []}, "eval_results.json: 'one' is not a number of a problem"),
        ({"1": [{"compiled": True}]}, "problem 1, entry 0: it has no 'correctness'"),
        ({"1": [result(runtime="2")]}, "problem 1, entry 0: runtime is '2', expected int"),
        (
            {"1": [result(3), result(3)]},
            "problem 1, entry 1: sample_id is 3, expected one that no other entry has",
        ),
    ],
)
def test_malformed_results_are_told_with_their_place_and_the_others_are_taken(
    tmp_path: Path, results: object, said: str
) -> None:
    name = "level_1_problem_9_sample_0_kernel.py"
    found = public.load([str(run(tmp_path / "gpt", results, name))])
    assert "level1/9" in {sample.op for sample in found.samples}
    [problem] = found.problems
    assert said in problem and str(tmp_path / "gpt") in problem


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([], "holds a list, expected times by level"),
        ({"easy": {}}, "got 'easy', expected 'level1' with times by problem"),
        ({"level1": {"ReLU.py": {}}}, "level1: got 'ReLU.py', expected '19_ReLU.py'"),
        ({"level1": {"19_ReLU.py": {"mean": 0}}},
         "level1: 19_ReLU.py: its mean is 0, expected milliseconds above 0"),
    ],
)  # fmt: skip
def test_a_malformed_baseline_is_one_line_with_its_place(
    tmp_path: Path, times: object, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load([], baseline(tmp_path, times))
    assert said in str(caught.value)


def test_two_results_of_one_model_and_task_are_refused(tmp_path: Path) -> None:
    folders = [run(tmp_path / name, {"1": [result()]}) for name in "ab"]
    with pytest.raises(ConfigError, match="both have sample 0 of gpt on 1; expected one result"):
        load([f"gpt={folder}" for folder in folders])


def test_the_samples_of_a_sweep_are_read_back(tmp_path: Path) -> None:
    [sample] = load([str(run(tmp_path / "gpt", {"1": [result()]}))])
    (tmp_path / "samples.jsonl").write_text(sample.to_json() + "\n", encoding="utf-8")
    assert load([str(tmp_path)]) == [sample]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda line: line, "Sample 0 of 'gpt' on '1' is there twice"),
        (lambda line: line.replace('"index":0', '"index":"x"'), "samples.jsonl:2: "),
        (lambda line: line.replace('"op":"1"', '"op":"../../x"'), "leads out of no folder"),
        (lambda line: '{"schema": 1, ', "samples.jsonl:2: "),
    ],
)
def test_rows_that_no_sweep_writes_are_told_and_the_others_are_taken(
    tmp_path: Path, spoil: Callable[[str], str], said: str
) -> None:
    [sample] = load([str(run(tmp_path / "gpt", {"1": [result()]}))])
    line = sample.to_json()
    (tmp_path / "samples.jsonl").write_text(f"{line}\n{spoil(line)}\n", encoding="utf-8")
    found = public.load([str(tmp_path)])
    assert found.samples == [sample]
    [problem] = found.problems
    assert problem.startswith(str(tmp_path)) and said in problem


@pytest.mark.parametrize("name", ["nowhere", "nowhere.csv"])
def test_a_path_that_is_not_there_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load([str(tmp_path / name)])


# ---- KernelBench-Hard and -Mega

RUN = {"correct": True, "has_solution": True, "peak_fraction": 0.25, "elapsed_seconds": 90}
BOARD = {
    "schema_version": 1,
    "hardware": {"name": "NVIDIA H100 80GB HBM3", "sm": "sm_90"},
    "models": [
        {
            "label": "one/a [max]",
            "results": {
                "01_gemm": RUN | {"run_id": "r1"},
                "02_topk": RUN | {"correct": False, "peak_fraction": None},
                "03_scan": RUN | {"correct": False, "has_solution": False, "peak_fraction": None},
                "04_sum": RUN | {"run_id": "r4", "annotation_verdict": "reward_hack"},
                "05_rope": RUN | {"correct": False, "retryable_infra_failure": True},
                "06_conv": RUN | {"annotation_verdict": "clean"},
            },
        }
    ],
}


def board(folder: Path, data: object = BOARD) -> Path:
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    found = "verdict: rubric_leak\nsummary: >\n  it casts\n  to bf16\n"
    (folder / "annotations" / "r1.yaml").write_text(found, encoding="utf-8")
    (folder / "leaderboard.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def test_a_board_of_kernelbench_hard_is_samples_with_what_people_found_in_them(
    tmp_path: Path,
) -> None:
    samples = load([str(board(tmp_path / "hard"))])
    first, wrong, none, hacked, unlucky, _ = samples
    assert (first.model, first.op, first.suite) == ("one/a [max]", "01_gemm", "kernelbench-hard")
    assert (first.backend, first.target, first.efficiency) == ("gpu", "h100", 0.25)
    assert (first.status, first.detail) == (Status.PASSED, "rubric_leak: it casts to bf16")
    assert (wrong.status, none.status, unlucky.status) == (Status.WRONG, Status.NO_CODE, None)
    assert (hacked.status, hacked.efficiency) == (Status.SUSPICIOUS, None) and hacked.cheat
    assert [one.cheats_sought for one in samples] == [True, False, False, True, False, True]
    share = compare(samples).figure(SampleScope("one/a [max]", "measured"), "efficiency", 1)
    assert share is not None and share.estimate is not None
    assert share.estimate.value == pytest.approx(0.5 / 5)  # failures count as 0
    speed = compare(samples).figure(SampleScope("one/a [max]", "measured"), "speedup_geometric", 1)
    assert speed is not None and speed.estimate is None and "not timed" in speed.reason


def test_a_board_in_a_folder_of_mega_is_a_suite_of_its_own(tmp_path: Path) -> None:
    samples = load([str(board(tmp_path / "mega", BOARD | {"environment": "v2"}))])
    assert {sample.suite for sample in samples} == {"kernelbench-mega/v2"}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            RUN | {"peak_fraction": 1.5},
            "peak_fraction is '1.5', expected a number of at least 0 and",
        ),
        (RUN | {"peak_fraction": "fast"}, "peak_fraction is 'fast', expected"),
        (RUN | {"correct": "yes"}, "correct is 'yes', expected true, false or nothing"),
        (RUN | {"has_solution": False}, "correct is true where has_solution is false"),
        (RUN | {"elapsed_seconds": -1}, "elapsed_seconds is '-1', expected"),
        ([1], "got '[1]', expected an object"),
    ],
)
def test_a_bad_result_of_a_board_is_told_and_the_others_are_taken(
    tmp_path: Path, result: object, said: str
) -> None:
    models = [{"label": "m", "results": {"a": RUN, "bad": result, "../../x": RUN}}, {"label": "n"}]
    found = public.load([str(board(tmp_path, {"models": models}))])
    assert [sample.op for sample in found.samples] == ["a"]
    own, outside, nameless = found.problems if "bad" in found.problems[0] else ("", "", "")
    assert f"'m' on 'bad': {said}" in own and "leads out of no folder" in outside
    assert "models[1]: expected an object with label and results" in nameless


@pytest.mark.parametrize("run_id", ["../r1", "/etc/passwd", "r1/../r1", 7, None, "a\nb"])
def test_names_of_runs_lead_nowhere(tmp_path: Path, run_id: object) -> None:
    (tmp_path / "r1.yaml").write_text("verdict: reward_hack\n", encoding="utf-8")
    data = {"models": [{"label": "m", "results": {"a": RUN | {"run_id": run_id}}}]}
    found = public.load([str(board(tmp_path / "b", data))])
    assert all(sample.status is Status.PASSED and not sample.detail for sample in found.samples)
