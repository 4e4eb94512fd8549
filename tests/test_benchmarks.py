"""The tables of benchmarks/ say what the records and results behind them do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    _script,
    amd_builds,
    amd_moved,
    cpu_ops,
    headline,
    kernelbench_kernels,
    memory_bound,
)
from portkern import ops
from portkern.records.record import Verdict
from portkern.spec import target
from tests.report_records import make

H200 = target.load("h200")
SOFTMAX = next(row for row in headline.ROWS if row.name == "softmax")


def timed(median_us: float, **changes: Any) -> Any:
    timing = {
        "median_us": median_us,
        "p20_us": median_us,
        "p80_us": median_us,
        "n": 9,
        "samples": [median_us],
        "method": "cuda events",
    }
    return make(timing=timing, **changes)


def wrong(**changes: Any) -> Any:
    return make(
        timing=None,
        baselines={},
        speedup={},
        errors=None,
        evidence="built",
        verdict=Verdict.WRONG,
        detail="off\nlog",
        **changes,
    )


# ---- headline


def test_the_best_of_a_row_is_the_fastest_and_baselines_are_of_its_run() -> None:
    other = {"median_us": 9e3, "p20_us": 1.0, "p80_us": 1.0, "n": 1, "samples": [], "method": ""}
    records = [
        timed(2000.0, backend="cuda", baselines={"eager": other}),
        timed(500.0, backend="triton", baselines={"eager": {**other, "median_us": 1e3}}),
    ]
    row = headline.summary(SOFTMAX, H200, records, {})
    assert row["best"] == "triton"
    assert row["portkern_ms"]["cuda"] == 2.0
    assert row["behind_best"] == {"cuda": 4.0, "triton": 1.0}
    assert row["baselines_ms"] == {"eager": 1.0, "compile": None, "crfm": None}


def test_a_kernel_that_was_not_timed_says_why() -> None:
    row = headline.summary(SOFTMAX, H200, [wrong(backend="hip")], {"eager": 1e-7})
    assert row["best"] == ""
    assert row["portkern_ms"]["hip"] is None
    assert row["not_timed"] == {"hip": "wrong: off"}
    assert row["errors_vs_fp64"]["eager"] == 1e-7
    assert "| 1.04 |" not in headline.table({"rows": [row]})


def test_rows_can_be_named_on_the_command_line() -> None:
    assert not [row.name for row in headline.ROWS if "," in row.name]


@pytest.mark.parametrize("driver", ["1", "2"])
def test_rows_that_were_not_asked_for_stay_if_their_machine_was_like_this_one(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine(*_: Any) -> dict[str, Any]:
        return {"gpu": "g", "driver": driver, "torch": "t", "toolchains": {}, "time": "now"}

    monkeypatch.setattr(_script, "RESULTS", tmp_path)
    monkeypatch.setattr(headline, "machine", machine)
    old = {"name": "matmul", "best": "hip"}, {"name": "softmax", "best": "hip"}
    here = {"gpu": "g", "driver": "1", "torch": "t", "toolchains": {}, "time": "before"}
    (tmp_path / "headline-h200.json").write_text(json.dumps({"machine": here, "rows": old}))
    told = headline.write([SOFTMAX], H200, {"softmax": [timed(1.0, backend="cuda")]}, {})
    kept = ["matmul"] if driver == "1" else []
    assert [row["name"] for row in told["rows"]] == [*kept, "softmax"]
    assert told["rows"][-1]["best"] == "cuda"


def committed() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((_script.RESULTS / "headline-h200.json").read_text())[
        "rows"
    ]
    return rows


def test_the_committed_run_has_every_row_and_backend() -> None:
    assert len(committed()) == len(headline.ROWS)
    for row in committed():
        assert row["not_timed"] == {}
        assert set(row["portkern_ms"]) == set(headline.BACKENDS)
        assert None not in row["portkern_ms"].values()


def test_no_committed_row_is_won_by_precision() -> None:
    for row in committed():
        errors = row["errors_vs_fp64"]
        if row["precision"] == "strict" and "eager" in errors:
            assert errors[row["best"]] <= 2 * errors["eager"], row["name"]


# ---- memory-bound


def test_a_share_is_of_a_copy() -> None:
    copied = H200.peaks["memory_copy"].value * 1e9
    roofline = {"bytes": copied * 1e-3, "flops": 1.0, "fraction": None, "basis": "memory"}
    assert memory_bound.share(timed(2000.0, roofline=roofline)) == pytest.approx(0.5)


def test_the_newest_record_of_a_cell_counts() -> None:
    size = {"set": "typical", "name": "1x1", "dims": {}, "dtype": "float32"}
    records = [
        timed(9.0, key="a", workload=size),
        timed(1.0, key="a", workload=size),
        timed(1.0, key="b", workload={**size, "set": "ci"}),
    ]
    [(problem, asked)] = memory_bound.problems(records, "float32").items()
    assert problem == ("relu", "1x1", "h200")
    assert [one.timing.median_us for one in asked if one.timing] == [1.0]


# ---- CPU


def test_cpu_kernels_are_compared_with_the_framework_and_with_cpp() -> None:
    eager = {"median_us": 6e3, "p20_us": 1.0, "p80_us": 1.0, "n": 1, "samples": [], "method": ""}
    records = [
        timed(3000.0, language="c++", baselines={"eager": eager}),
        timed(6000.0, language="numba", baselines={"eager": eager}),
        wrong(language="opencl"),
    ]
    row = cpu_ops.summary(records)
    assert row["ratio"] == {"c++": 2.0, "numba": 0.5}
    assert row["not_timed"] == {"opencl": "wrong: off"}
    line = cpu_ops.table({"rows": [row]}).splitlines()[-1]
    assert "| 6.00 ms | 3.00 ms | 2.00 | 6.00 ms | 0.50 |  |  |" in line


# ---- AMD builds


def test_amd_builds_are_counted_by_target_and_backend() -> None:
    part = {"kernel": "k", "registers": 64, "agprs": 8, "spills": 1, "shared_bytes": 512}
    build = [{**part, "occupancy": 1.0}, {**part, "kernel": "l", "occupancy": 0.5}]
    records = [
        make(target="gfx942", backend="hip", key="a", resources=build),
        make(target="gfx942", backend="hip", key="b", op="gelu", resources=build[1:]),
        make(target="sm_90", backend="cuda", resources=build),
    ]
    [row] = amd_builds.summary(records)
    assert (row["target"], row["backend"]) == ("gfx942", "hip")
    assert (row["ops"], row["kernels"], row["spills"]) == (2, 3, 3)
    assert (row["vgprs"], row["lds_bytes"], row["lds_limit"]) == (72, 512, 65536)
    assert (row["occupancy"], row["lowest_occupancy"]) == (0.5, 0.5)
    assert "`gfx942` | `hip` | 2 | 3 | 3 |" in amd_builds.table([row])


def test_what_kernels_move_is_told_of_each_size_beside_the_least() -> None:
    counters = {
        **{"warps": 4, "load_bytes": 4000, "store_bytes": 4000, "atomics": 0, "barriers": 1},
        **{"transactions": 250, "least_transactions": 125, "shared_passes": 6},
        "least_shared_passes": 4,
    }
    relu = ops.load("relu")
    [workload, *_] = relu.workloads["ci"]
    launches = [{"kernel": "relu", "counters": counters}] * 2
    row = amd_moved.row_of(relu, target.load("gfx942"), workload, launches)
    assert (row["waves"], row["line_bytes"], row["thread_bytes"]) == (8, 32000, 16000)
    assert row["least_bytes"] == 8 * workload.dims["n"] == 8000
    assert "| relu | 1000 | 8 | 8 | 4.00 | 2.00 | 1.50 |" in amd_moved.table([row])


# ---- KernelBench


def test_a_twin_leaves_out_a_term_or_scales() -> None:
    loop = "a = 0;\nfor (int64_t r2 = 0; r2 < cols; ++r2) {\n  a += x[r2];\n}\ny[i] = scalar_t(a);"
    how, text = kernelbench_kernels.twin(loop)
    assert how == "a term is left out" and "r2 < (cols) - 1; ++r2)" in text
    how, text = kernelbench_kernels.twin("    y[v3] = scalar_t((v1 + v2));")
    assert how == "scaled" and text == "    y[v3] = scalar_t(((v1 + v2)) * 1.002f);"


def test_the_table_of_kernels_counts_by_level() -> None:
    right = {"written": True, "verdicts": {"passed": 40}, "twin_verdicts": {"wrong": 2}}
    rows = {
        "level1/1_A": right,
        "level1/2_B": {"written": False, "why": "sort"},
        "level1/3_C": {**right, "twin_verdicts": {"passed": 2}},
        "level2/1_D": {**right, "verdicts": {"passed": 39, "wrong": 1}},
    }
    table = kernelbench_kernels.table(rows)
    assert "| level1 | 3 | 2 | 2 | 1 |" in table
    assert "| level2 | 1 | 1 | 0 | 0 |" in table
