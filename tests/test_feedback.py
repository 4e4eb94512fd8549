"""Sources: what is told of a candidate, in which words, and what profilers' numbers are called."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from portkern import ops
from portkern.agent import feedback
from portkern.agent.axes import FeedbackSource, Measured
from portkern.agent.feedback import build_log, hardware, ncu, outside, perf, rendering, rocprof
from portkern.agent.feedback.hardware import Counters
from portkern.agent.feedback.metrics import UNITS, shown
from portkern.agent.feedback.subject import FeedbackSubject, bare
from portkern.agent.feedback.vocabulary import (
    TOOLS,
    CountedCalls,
    CounterRule,
    ProfiledLaunch,
    load,
    sets,
)
from portkern.agent.task import Task
from portkern.cells.selection import SelectedCell, host_targets
from portkern.errors import ConfigError, ToolError
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import StageLimits
from portkern.records.record import Record
from portkern.sandbox import session
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Missing, Ready
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload
from portkern.toolchain.run_tool import cache_root
from tests.report_records import make

DATA = Path(__file__).parent / "data" / "counters"
CONF = Path(__file__).parents[1] / "conf" / "feedback"
SOFTMAX = ops.load("softmax")
WORKLOADS = {"ci": SOFTMAX.workloads["ci"][:2], "typical": SOFTMAX.workloads["typical"][:1]}
SOURCE = 'extern "C" int softmax(const float* x, float* y) {\n  y[0] = oops;\n  return 0;\n}\n'


def task(backend: str = "cuda", where: str = "h200", language: str = "") -> Task:
    found = registry.load(backend)
    language = language or next(iter(found.languages.values()))
    return Task(SOFTMAX, target.load(where), found, language, workloads=WORKLOADS)


def candidate(of: Task, source: str = SOURCE) -> Candidate:
    return of.candidate(source, "test")


def record(which: str = "ci", number: int = 0, **changes: Any) -> Record:
    """A record of one of the task's workloads; measured unless ``changes`` say otherwise."""
    work = WORKLOADS[which][number]
    told = {"set": which, "name": work.name, "dims": dict(work.dims), "dtype": "float32"}
    return make(**{"op": "softmax", "source_hash": "", "workload": told, **changes})


def failed(verdict: str, detail: str = "", **changes: Any) -> Record:
    nothing: dict[str, Any] = {
        "timing": None,
        "speedup": {},
        "baselines": {},
        "errors": None,
        "resources": [],
    }
    return record(
        **{**nothing, "verdict": verdict, "evidence": "none", "detail": detail, **changes}
    )


def measure(
    kind: str, records: Sequence[Record], of: Task | None = None, **options: Any
) -> Measured:
    """The measurement of the feedback source of this kind."""
    of = of or task()
    (one,) = feedback.load({"sources": [kind], **options})
    return one.measure(of, candidate(of), records)


# ---- which there are


def test_sources_come_in_the_order_of_their_stages() -> None:
    loaded = feedback.load({"sources": ["timing", "correctness", "compile"], "counters": "any"})
    assert [one.kind for one in loaded] == ["compile", "correctness", "timing", "counters"]
    assert [one.stage for one in feedback.load({})] == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sources": ["compiler"]}, "No source 'compiler'; did you mean 'compile'?"),
        ({"counters": "ncu25"}, "No set of counters 'ncu25'; did you mean 'ncu29'?"),
        ({"counter": "ncu"}, "No option of feedback 'counter'; did you mean 'counters'?"),
        ({"render": "prose"}, "feedback.render: got 'prose'; Input should be 'raw' or 'nl'"),
        ({"log_lines": 0}, "feedback.log_lines: got 0; Input should be greater than or equal to 1"),
    ],
)
def test_what_does_not_exist_is_said_with_what_does(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        feedback.load(options)
    assert str(caught.value) == told


def test_the_table_of_metrics_names_each_with_its_unit() -> None:
    table = (feedback.__doc__ or "").split("=\n")[2].splitlines()
    rows = {line.split()[0]: line[19:28].strip() for line in table if not line.startswith("=")}
    assert rows == dict(UNITS)


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_group_loads(file: Path) -> None:
    with initialize_config_module("portkern.conf", version_base="1.3"):
        composed = compose(None, overrides=[f"+feedback={file.stem}"])
    options = OmegaConf.to_container(composed)
    assert isinstance(options, dict)
    loaded: list[FeedbackSource] = feedback.load(options["feedback"])
    assert len(loaded) == len(options["feedback"]["sources"]) + (
        options["feedback"]["counters"] != "none"
    )


@pytest.mark.parametrize("group", ["feedback", "critic"])
def test_every_key_of_a_group_is_explained_above_it(group: str) -> None:
    for file in (CONF.parent / group).glob("*.yaml"):
        assert undocumented(file) == [], file


def undocumented(file: Path) -> list[str]:
    """Keys of a group's file that have no comment above them, or above keys that share one."""
    lines = file.read_text(encoding="utf-8").splitlines()
    bare_ones, spoken = [], False
    for line in lines:
        if line.startswith("#"):
            spoken = True
        elif not line or line.startswith((" ", "defaults:")):
            spoken = spoken and bool(line)
        elif not spoken:
            bare_ones.append(line)
    return bare_ones


def test_the_default_group_states_the_defaults() -> None:
    stated = yaml.safe_load((CONF / "default.yaml").read_text())
    assert feedback.FeedbackOptions.model_validate(
        stated
    ) == feedback.FeedbackOptions.model_validate({})
    assert set(stated) == set(feedback.FeedbackOptions.model_fields)


# ---- builds

GCC = """softmax.cpp: In function 'int softmax(const float*, float*)':
softmax.cpp:7:3: warning: unused variable 'n' [-Wunused-variable]
    7 |   int n;
      |   ^
softmax.cpp:2:10: error: 'oops' was not declared in this scope
    2 |   #include "harness.h"
      |          ^~~~
/usr/include/c++/12/tuple:691:18: note:   template argument deduction/substitution failed:
/usr/include/c++/12/tuple:700:18:   required from 'void f() [with T = a; U = b]'
softmax.cpp:2:10: error: 'oops' was not declared in this scope
"""


def trimmed(log: str, **limits: int) -> list[str]:
    asked = {"most_lines": 40, "most_chars": 4000} | limits
    return build_log.trimmed(log, SOURCE, "softmax", **asked).splitlines()


def test_errors_come_first_each_once_with_the_source_line_and_without_notes() -> None:
    assert trimmed(GCC) == [
        "softmax.cpp:2:10: error: 'oops' was not declared in this scope",
        "    2 | y[0] = oops;",
        "softmax.cpp:7:3: warning: unused variable 'n' [-Wunused-variable]",
        "    7 |   int n;",
        "      |   ^",
    ]


def test_the_source_line_is_added_where_the_compiler_shows_none() -> None:
    log = 'softmax.cu(2): error: identifier "oops" is undefined\n1 error detected'
    assert trimmed(log)[:2] == [
        'softmax.cu(2): error: identifier "oops" is undefined',
        "    2 | y[0] = oops;",
    ]


def test_how_templates_came_to_be_and_dumps_of_arguments_are_cut() -> None:
    log = (
        "In file included from softmax.cpp:1:\n"
        "softmax.cpp: In instantiation of 'void f(T) [with T = int; U = long]':\n"
        "softmax.cpp:3:9:   required from here\n"
        "softmax.cpp:2:4: error: no match for 'operator+' [with _Tp = std::vector<int>; _A = x]\n"
        "TypeError: incompatible function arguments. Invoked with: tensor([[1, 2,\n 3 error]])\n"
    )
    told = trimmed(log)
    assert told[0] == "softmax.cpp:2:4: error: no match for 'operator+' [with …]"
    assert not any("required from" in line or "3 error" in line for line in told)


def test_of_a_log_without_compiler_errors_the_end_is_kept() -> None:
    log = (
        "Traceback (most recent call last):\n"
        + "  frame\n" * 60
        + "NameError: name 'tl' is not here"
    )
    told = trimmed(log, most_lines=5)
    assert told == ["  frame"] * 4 + ["NameError: name 'tl' is not here"]


def test_linkers_and_ptxas_are_heard_too() -> None:
    log = (
        "ptxas /tmp/x.ptx, line 40; error   : Arguments mismatch for instruction 'mov'\n"
        "softmax.o: in function `softmax':\nsoftmax.cpp:(.text+0x5): undefined reference to `expf4'"
    )
    told = trimmed(log)
    assert "Arguments mismatch" in told[0]
    assert "undefined reference to `expf4'" in told[-1]


def test_no_more_is_told_than_was_asked_for_and_the_rest_is_counted() -> None:
    log = "\n".join(f"softmax.cpp:90:1: error: number {i}" for i in range(30))
    told = trimmed(log, most_lines=3)
    assert told == [f"softmax.cpp:90:1: error: number {i}" for i in range(3)] + ["… 27 more lines"]
    assert len("\n".join(trimmed(log, most_chars=200))) < 230


def test_a_build_that_fails_is_all_there_is_to_say() -> None:
    told = measure("compile", [failed("build_failed", f"g++ failed with status 1\n{GCC}")])
    assert told.stop
    assert told.metrics == {"build_errors": 1.0}
    assert told.text.startswith("g++ failed with status 1\nsoftmax.cpp:2:10: error")
    assert measure("compile", [record()]) == Measured()


def test_a_failure_that_begins_with_the_first_error_says_it_once() -> None:
    detail = "softmax.cpp:2:10: error: no such x\n    2 | x = 1;\nsoftmax.cpp:3:1: error: no y"
    told = measure("compile", [failed("build_failed", detail)])
    assert told.metrics == {"build_errors": 2.0}
    assert told.text.startswith("softmax.cpp:2:10: error: no such x\n")
    assert told.text.count("no such x") == 1


# ---- results


def test_a_wrong_result_is_told_with_its_size_its_errors_and_what_was_right() -> None:
    errors = {"max_abs": 0.31, "max_rel": 0.02, "vs_fp64": 1e-2, "reference_vs_fp64": 3e-8}
    wrong = failed(
        "wrong",
        "3 of 64 elements are off; the worst is 1, expected 2 ± 1e-06 (heavy inputs)",
        number=1,
        errors=errors,
    )
    told = measure("correctness", [record(), wrong])
    assert told.stop
    assert told.title == "It is wrong"
    first, second, third, fourth = told.text.splitlines()
    work = WORKLOADS["ci"][1]
    assert first.startswith(f"ci/{work.name} (rows={work.dims['rows']} cols={work.dims['cols']}, ")
    assert "heavy inputs" in first
    assert second.strip() == (
        "largest difference 0.31, relative 0.02; against float64 0.01 in norm, "
        "the framework's own 3e-08"
    )
    assert third == f"Right on ci/{WORKLOADS['ci'][0].name}."
    assert fourth == f"Not tried: typical/{WORKLOADS['typical'][0].name}."


@pytest.mark.parametrize(
    ("verdict", "title", "detail"),
    [
        ("crashed", "It crashes", "the kernel was killed by SIGSEGV\nlast words\nof the worker"),
        ("timed_out", "It takes too long", "the kernel took longer than 60 s"),
        ("suspicious", "Its result is not believed", "its median is 1 µs, but …"),
        ("rejected", "It is refused", "softmax.cu:3: G201 a library does the work: cublas"),
    ],
)
def test_whatever_else_goes_wrong_is_told_and_ends_it(
    verdict: str, title: str, detail: str
) -> None:
    told = measure("correctness", [failed(verdict, detail)])
    assert (told.title, told.stop) == (title, True)
    assert all(line in told.text for line in detail.splitlines())


def test_a_kernel_that_is_right_everywhere_goes_on_with_the_guards_notes() -> None:
    told = measure("correctness", [record(guard=["softmax.cu:3: note: G9 asm"]), record("typical")])
    assert not told.stop
    assert told.text.splitlines()[1:] == ["The guard notes: softmax.cu:3: note: G9 asm"]


def test_a_place_that_lacks_the_hardware_is_not_a_fault_of_the_kernel() -> None:
    told = measure("correctness", [failed("unavailable", "no GPU here")])
    assert "no GPU here" in told.text
    assert not told.stop


def test_findings_are_told_once_errors_first_and_no_more_than_asked_for() -> None:
    findings = [
        {"code": "SX602", "severity": "note", "message": "depends on the width"},
        {
            "code": "SX201",
            "severity": "error",
            "message": "race on tile",
            "place": "softmax.hip:9",
            "also": "softmax.hip:12",
        },
        {"code": "x", "severity": "warning", "message": "hm"},
    ]
    told = measure("simt", [record(findings=findings), record(findings=findings)], findings=2)
    assert told.text.splitlines() == [
        "softmax.hip:9: SX201 race on tile (and softmax.hip:12), 2 times; "
        "put a barrier between the accesses",
        "x hm, 2 times",
        "… 1 more",
    ]
    assert measure("simt", [record()]) == Measured()


# ---- resources and time


def test_resources_are_told_against_the_targets_limits_with_what_limits_occupancy() -> None:
    used = [
        {
            "kernel": "small",
            "registers": 32,
            "spills": 0,
            "shared_bytes": 0,
            "threads": 256,
            "occupancy": 1.0,
        },
        {
            "kernel": "large",
            "registers": 128,
            "spills": 24,
            "shared_bytes": 4096,
            "threads": 512,
            "occupancy": 0.25,
        },
    ]
    told = measure("resources", [record(resources=used), record(resources=used)])
    assert told.metrics == {
        "registers": 128,
        "spills": 24,
        "shared_bytes": 4096,
        "threads": 512,
        "occupancy": 0.25,
    }
    assert told.text.splitlines() == [
        "small: 32 of 255 registers per thread, no spills, 0 of 232448 B shared memory per block, "
        "256 threads per block, occupancy 100% (64 of 64 warps), limited by the threads of its "
        "blocks",
        "large: 128 of 255 registers per thread, 24 B spilled, 4096 of 232448 B shared memory per "
        "block, 512 threads per block, occupancy 25% (16 of 64 warps), limited by registers",
    ]


def test_amds_registers_are_counted_by_amds_rules() -> None:
    used = [{"kernel": "k", "registers": 96, "agprs": 32, "spills": 2, "threads": 256}]
    told = measure("resources", [record(resources=used)], task("hip", "gfx942"))
    assert (
        "96 of 256 registers per thread, 32 accumulation registers, 2 registers spilled"
        in told.text
    )
    assert "limited by registers" in told.text


def test_what_is_not_known_of_a_build_is_not_made_up() -> None:
    used = [{"kernel": "k", "registers": 40}]
    told = measure("resources", [record(resources=used)])
    assert told.metrics == {"registers": 40}
    assert "occupancy unknown: the size of its blocks is chosen at launch" in told.text
    assert measure("resources", [record(resources=[])]).text == ""


def test_time_is_told_by_workload_and_measured_on_the_largest() -> None:
    small = record(speedup={"eager": {"value": 4.0, "ci95": [3.9, 4.1]}})
    large = record(
        "typical",
        speedup={"eager": {"value": 1.0, "ci95": [0.9, 1.1]}},
        roofline={"bytes": 8, "flops": 1, "fraction": 0.71, "basis": "datasheet memory 4800 GB/s"},
    )
    told = measure("timing", [small, large])
    assert large.timing
    assert told.metrics["median_us"] == large.timing.median_us
    assert told.metrics["speedup"] == pytest.approx(2.0)
    assert told.metrics["roofline_pct"] == pytest.approx(71.0)
    first, second = told.text.splitlines()
    assert "4 times as fast as eager [3.9, 4.1]" in first
    assert second.endswith("71% of the roofline (datasheet memory 4800 GB/s)")
    assert "speedup" not in measure("timing", [small], baseline="compile").metrics


def test_a_right_kernel_without_a_time_says_why() -> None:
    emulated = failed("passed", evidence="emulated", missing="no AMD GPU on this machine")
    told = measure("timing", [emulated])
    assert told == Measured({}, "Time", "It was not timed: no AMD GPU on this machine.")


def test_the_kernels_that_a_call_launched_are_told_the_slowest_first_with_their_shares() -> None:
    small = record(launches=[{"name": "tiny", "us": 1.0}])
    large = record(
        "typical",
        launches=[
            {"name": "reduce", "us": 10.0},
            {"name": "scale", "count": 4, "us": 30.0},
            {"name": "copy", "us": 0.5},
        ],
    )
    told = measure("launches", [small, large], launches=2)
    assert told.title == f"Kernels that one call launched, on typical/{large.workload.name}"
    assert told.text.splitlines() == [
        "scale: 30 µs, 74%, in 4 launches",
        "reduce: 10 µs, 25%",
        "… and 1 more: 0.5 µs",
    ]
    # An executor counts launches and has no times; of native code nobody counts them.
    emulated = record(launches=[{"name": "a"}, {"name": "b", "count": 3}])
    assert measure("launches", [emulated]).text == "b, in 3 launches\na"
    assert measure("launches", [record(launches=[])]) == Measured({})


# ---- what profilers' counters are called


@pytest.mark.parametrize("name", sets())
def test_every_metric_that_a_set_gives_is_read_from_counters_that_it_collects(name: str) -> None:
    words = load(sets()[name])
    collected = words.collected(name)
    gives = [
        metric
        for metric, rule in words.metrics.items()
        if collected & {*rule.first, *rule.add} and rule.per in (collected | {""})
    ]
    assert list(words.sets[name].gives) == gives
    assert {*words.metrics} <= {*UNITS}
    # … and from numbers alone: each metric comes out of a launch that has all of them.
    counted = CountedCalls([ProfiledLaunch("k", dict.fromkeys(collected, 2.0))], 1)
    assert list(words.neutral(counted)) == gives


@pytest.mark.parametrize("tool", TOOLS)
def test_no_metric_reads_a_counter_that_nothing_collects(tool: str) -> None:
    words = load(tool)
    collected = frozenset[str]().union(*map(words.collected, words.sets))
    for metric, rule in words.metrics.items():
        assert rule.reads <= collected, metric


def test_published_sets_are_as_large_as_their_names_say() -> None:
    for name in ("ncu24", "ncu29", "ncu3"):
        counters = [one for each in load("ncu").sets[name].passes for one in each]
        assert len(set(counters)) == len(counters) == int(name.removeprefix("ncu"))
    ours = {one for each in load("ncu").sets["ncu24"].passes for one in each}
    assert ours < load("ncu").collected("ncu29")


def test_launches_are_averaged_by_their_time_and_bytes_are_those_of_a_call() -> None:
    words = load("ncu")
    time, busy, read = (
        "gpu__time_duration.sum",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__bytes_read.sum",
    )
    launches = [
        ProfiledLaunch("a", {time: 3000.0, busy: 80.0, read: 10.0}),
        ProfiledLaunch("b", {time: 1000.0, busy: 40.0, read: 30.0}),
    ]
    told = words.neutral(CountedCalls(launches * 2, calls=2))
    assert told == {"kernel_us": 4.0, "memory_pct": 70.0, "bytes_read": 40.0}


def test_a_rule_reads_the_first_counter_that_is_there_and_divides_by_no_zero() -> None:
    assert CounterRule(first=("a", "b")).of({"b": 2.0}) == 2.0
    assert CounterRule(add=("a", "b")).of({"a": 1.0, "b": 2.0}) == 3.0
    assert (
        CounterRule(first=("a",), per="n", factor=-100, offset=100).of({"a": 1.0, "n": 4.0}) == 75.0
    )
    assert CounterRule(first=("a",), per="n").of({"a": 1.0, "n": 0.0}) is None
    assert CounterRule(first=("a",)).of({}) is None


def ncu_neutral(text: str) -> tuple[dict[str, float], dict[str, str]]:
    words = load("ncu")
    wanted = [one for each in words.sets["ncu24"].passes for one in each]
    launches, missing = ncu.launches(text, [*words.always, *wanted])
    return words.neutral(CountedCalls(launches, calls=2)), missing


def test_nsight_computes_table_is_read_with_its_units_and_what_it_does_not_know() -> None:
    told, missing = ncu_neutral((DATA / "ncu24.csv").read_text())
    assert missing == {"smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct": "n/a"}
    assert told["kernel_us"] == pytest.approx(33.52)
    assert told["memory_pct"] == pytest.approx(81.2, abs=0.05)
    assert told["bytes_read"] == (67162112 + 67158016) / 2
    assert told["registers"] == 40
    assert told["divergence_pct"] == 0
    assert told["stall_memory_pct"] == pytest.approx(72.04, abs=0.05)
    assert "ipc" not in told


def test_bytes_and_seconds_are_converted_where_ncu_chose_larger_units() -> None:
    text = (DATA / "ncu24.csv").read_text()
    names, units, first, *_ = [line for line in text.splitlines() if line.startswith('"')]
    told, _ = ncu_neutral(
        "\n".join(
            [
                names,
                units.replace('"byte",', '"Mbyte",').replace('"ns"', '"us"'),
                first.replace('"67162112"', '"67.162112"').replace('"33,408"', '"33.41"'),
            ]
        )
    )
    assert told["bytes_read"] == 67162112 / 2
    assert told["kernel_us"] == pytest.approx(33.41 / 2)


@pytest.mark.parametrize("text", ["", "==PROF== nothing", '"ID","Kernel Name","a"\n"0","k","1"\n'])
def test_a_table_of_another_kind_is_an_error(text: str) -> None:
    with pytest.raises(ToolError, match="--page raw"):
        ncu.parse(text)


def test_rocprofs_passes_are_put_together_without_the_frameworks_kernels() -> None:
    tables = [(DATA / f"rocprofv3_{number}.csv").read_text() for number in (1, 2)]
    mine = [one for text in tables for one in rocprof.parse(text, lambda name: "softmax" in name)]
    told = load("rocprof").neutral(CountedCalls(mine, calls=2))
    assert len(mine) == 4
    assert told["occupancy_pct"] == pytest.approx(38.27, abs=0.01)
    assert told["divergence_pct"] == pytest.approx(1.56)
    assert told["bytes_read"] == 65604.125 * 1024
    assert told["registers"] == 52
    assert told["shared_bytes"] == 2048


def test_zeros_of_a_gpu_whose_counters_are_dead_are_not_measurements() -> None:
    launches = rocprof.parse((DATA / "rocprofv3_dead.csv").read_text())
    told = load("rocprof").neutral(CountedCalls(launches, calls=1))
    assert set(told) == {"kernel_us", "registers", "shared_bytes"}


def test_rocprof_computes_table_has_a_column_for_each_counter() -> None:
    told = load("rocprof").neutral(
        CountedCalls(rocprof.parse((DATA / "rocprof_compute.csv").read_text()), calls=2)
    )
    assert told["l2_hit_pct"] == pytest.approx(50.0)
    assert told["stall_memory_pct"] == pytest.approx(22.0)
    assert (told["kernel_us"], told["registers"]) == (31.2, 52)


def test_perfs_events_are_read_also_where_the_kernels_own_are_hidden() -> None:
    values, missing = perf.parse((DATA / "perf_metal.csv").read_text())
    told = load("perf").neutral(
        CountedCalls([ProfiledLaunch("k", values | {perf.CAPACITY: 2000.0})], calls=100)
    )
    assert not missing
    assert told["occupancy_pct"] == pytest.approx(74.15, abs=0.01)
    assert told["ipc"] == pytest.approx(1.284, abs=0.001)
    assert told["l1_hit_pct"] == pytest.approx(85.0)
    assert told["l2_hit_pct"] == pytest.approx(30.0)
    assert told["divergence_pct"] == pytest.approx(2.0)
    assert told["page_faults"] == 6.4


def test_a_virtual_machine_without_hardware_counters_is_recognised() -> None:
    values, missing = perf.parse((DATA / "perf_virtual.csv").read_text())
    assert set(values) == {"task-clock", "page-faults"}
    assert missing["cycles"] == "not supported"
    assert "cycles (not supported)" in hardware._left_out(CountedCalls([], 1, missing))


@pytest.mark.parametrize(
    ("tool", "file", "told"),
    [
        ("ncu", "ncu_refused.txt", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("perf", "perf_refused.txt", "sysctl kernel.perf_event_paranoid lower"),
    ],
)
def test_who_may_not_count_is_told_what_to_do(tool: str, file: str, told: str) -> None:
    assert told in load(tool).refused((DATA / file).read_text())
    assert load(tool).refused("nothing known") == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("softmax", "softmax"),
        ("void ns::softmax<float, 256>(float const*, float*, long)", "softmax"),
        ("softmax(float*) [clone .kd]", "softmax"),
        ("softmax.kd", "softmax"),
        ("void at::native::reduce_kernel<512, 1>(at::native::Op)", "reduce_kernel"),
    ],
)
def test_kernels_are_known_by_their_bare_names(name: str, expected: str) -> None:
    assert bare(name) == expected


# ---- in words


def test_metrics_are_listed_with_units_or_told_where_they_stand_out() -> None:
    metrics = {"memory_pct": 83.14, "occupancy_pct": 71.0, "bytes_read": 134_217_728.0}
    assert rendering.render(metrics, "raw").splitlines() == [
        "memory_pct: 83.1 %",
        "occupancy_pct: 71 %",
        "bytes_read: 134.2 MB",
    ]
    assert rendering.render(metrics, "nl") == (
        "Device memory works at 83.1 % of its bandwidth, close to its limit."
    )
    assert rendering.render({"occupancy_pct": 71.0}, "nl") == "Nothing stands out."
    assert [shown("instructions", 5767168.0), shown("ipc", 1.2345)] == ["5,767,168", "1.23 /cycle"]


def test_every_sentence_is_of_a_metric_that_there_is() -> None:
    assert {one.metric for one in rendering.SENTENCES} <= set(UNITS)
    for name in UNITS:
        for value in (0.0, 5.0, 50.0, 99.0, 1e6):
            assert all("{" not in text for text in rendering.sentences({name: value}))


# ---- counting

HOST = host_targets()[0]
CPU_KERNEL = next(
    one for one in catalogue.candidates("softmax", registry.load("cpu")) if one.language == "c++"
)
needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="no perf on PATH")


def on_host(kernel: Candidate, **changes: Any) -> tuple[Task, list[Record]]:
    """A task on this machine, and a record of a kernel that passed there."""
    of = task("cpu", HOST, kernel.language)
    told: dict[str, Any] = {"source_hash": kernel.digest, "resources": [], "target": HOST}
    return of, [record(number=1, **{**told, **changes})]


def counting(which: str = "any", timeout_s: float = 60.0) -> Counters:
    return Counters(which, render="raw", timeout_s=timeout_s)


@needs_perf
def test_perf_counts_a_kernel_that_runs_in_the_jail() -> None:
    of, records = on_host(CPU_KERNEL)
    told = counting("ncu24").measure(of, CPU_KERNEL, records)
    assert told.title == "Hardware counters (perf)"
    assert 0 < told.metrics["occupancy_pct"] <= 101
    assert told.metrics["page_faults"] >= 0
    assert "occupancy_pct: " in told.text


@needs_perf
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can become another user"
)
def test_a_perf_that_is_refused_says_so_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = tmp_path / "perf"
    other = "setpriv --reuid 12345 --regid 12345 --clear-groups"
    refused.write_text(
        f"#!/bin/sh\nexec {other} {shutil.which('perf')} stat -x, -e task-clock -p 1\n"
    )
    refused.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    of, records = on_host(CPU_KERNEL)
    told = counting("perf").measure(of, CPU_KERNEL, records)
    assert not told.metrics
    assert told.text.startswith("Not counted: the kernel does not let this user count events")
    assert "kernel.perf_event_paranoid" in told.text


def test_a_profiler_that_is_not_there_says_so_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    told = counting().measure(task(), candidate(task()), [record()])
    assert told.text == (
        "Not counted: no ncu on PATH; it comes with the CUDA toolkit; put it on PATH."
    )
    told = counting().measure(task("hip", "mi300x"), candidate(task("hip", "mi300x")), [record()])
    assert "no rocprofv3 on PATH; it comes with ROCm" in told.text
    told = counting().measure(task("opencl", "opencl_generic"), candidate(task()), [record()])
    assert told.text == "Not counted: nothing here counts on opencl_generic."


def test_records_of_another_kernel_are_never_profiled_in_its_place() -> None:
    of, records = on_host(CPU_KERNEL, source_hash="another")
    with pytest.raises(ValueError, match="records are of another, the candidate is"):
        FeedbackSubject.of(of, CPU_KERNEL, records)


def test_what_is_profiled_is_the_artifact_that_was_evaluated() -> None:
    of, records = on_host(CPU_KERNEL)
    work = records[0].workload
    asked = Workload(work.name, work.dims)
    cell = SelectedCell(SOFTMAX, work.set, asked, "float32", of.backend, of.target, CPU_KERNEL)
    assert isinstance(cell.ready, Ready)
    cache = ArtifactCache(cache_root() / "builds")
    (built,) = build.build_all(
        [cell.build_request], [cell.ready.toolchain], limits=StageLimits(), cache=cache
    )
    found = FeedbackSubject.of(of, CPU_KERNEL, records)
    assert isinstance(found, FeedbackSubject)
    assert found.contestant.artifact == built.outcome
    assert found.workload.dims == work.dims


def test_what_only_ran_in_an_emulator_has_no_counters() -> None:
    of = task("hip", "gfx942")
    emulated = failed("passed", evidence="emulated", missing="no AMD GPU on this machine")
    found = FeedbackSubject.of(of, candidate(of), [emulated])
    assert isinstance(found, Missing)
    assert str(found) == (
        "counters are the hardware's, and it was not timed there: no AMD GPU on this machine"
    )


NOSY = """
import os, socket

def read(path):
    with open(path) as file:
        file.read(1)

def softmax(x):
    attempts = {
        "project": lambda: read(%r), "home": lambda: os.listdir(os.path.expanduser("~root")),
        "environment": lambda: read(f"/proc/{os.getppid()}/environ"),
        "write": lambda: open("/tmp/portkern-nosy", "w"),
        "signal": lambda: os.kill(os.getppid(), 0),
        "network": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "key": lambda: os.environ["OPENAI_API_KEY"],
        "scratch": lambda: open(os.environ["TMPDIR"] + "/mine", "w"),
    }
    told = []
    for name, attempt in attempts.items():
        try:
            attempt()
            told.append(name)
        except (OSError, KeyError):
            pass
    with open(os.environ["TMPDIR"] + "/told", "a") as file:
        print(*told, file=file)
    return x.softmax(-1)
"""


@pytest.fixture
def nosy(monkeypatch: pytest.MonkeyPatch) -> FeedbackSubject:
    """A kernel that looks around when it is called."""
    if "landlock" not in session.layers().active:
        pytest.skip(f"landlock: {session.layers().missing.get('landlock')}")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    source = NOSY % str(Path(__file__).resolve())
    kernel = Candidate("softmax", "cpu", "numba", source, "softmax", style="return")
    found = FeedbackSubject.of(*on_host_with(kernel))
    assert isinstance(found, FeedbackSubject)
    return found


def on_host_with(kernel: Candidate) -> tuple[Task, Candidate, list[Record]]:
    of, records = on_host(kernel)
    return of, kernel, records


@pytest.mark.full
def test_a_kernel_under_a_profiler_sees_its_scratch_folder_and_no_secrets(
    nosy: FeedbackSubject, tmp_path: Path
) -> None:
    said = outside.under([], nosy, tmp_path, timeout_s=100)
    told = (tmp_path / outside.SCRATCH / "told").read_text().splitlines()
    assert told == ["scratch"] * (outside.WARM_UP + outside.CALLS), said


@pytest.mark.full
def test_ncu_is_started_with_the_program_and_its_table_is_read(
    nosy: FeedbackSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in runs the program and leaves a recorded table."""
    stand_in(tmp_path, f'cp {DATA}/ncu24.csv "$log"', monkeypatch)
    counted = ncu.count(nosy, load("ncu").sets["ncu24"].passes, timeout_s=100)
    assert (len(counted.launches), counted.calls) == (2, outside.CALLS)


def test_an_ncu_that_may_not_count_says_so_with_the_remedy(
    nosy: FeedbackSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, f'cp {DATA}/ncu_refused.txt "$log"; exit 1', monkeypatch)

    def chosen(of: Task, kernel: Candidate, records: Sequence[Record]) -> FeedbackSubject:
        return nosy

    counters = Counters("ncu24", render="raw", timeout_s=100, subject=chosen)
    told = counters.measure(task(), candidate(task()), [record()])
    assert told.text.startswith("Not counted: the driver lets administrators alone read")


def stand_in(folder: Path, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ``ncu`` that starts what comes after its options, then does ``then`` to its log file."""
    tool = folder / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(
        '#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\nlog=$2; shift 2\n"$@" || exit 9\n'
        f"{then}\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
