"""The object venue: what the AMD compiler emitted is executed and judged, through the verbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from portkern.cells.selection import RunStage, venues
from portkern.cli import main
from portkern.isa.device import Memory
from portkern.records.record import Evidence, Record
from portkern.spec import registry, target
from portkern.spec.backend import Missing, Venue

KERNEL = """
__global__ void k(const scalar_t* x, scalar_t* y, int64_t n) {{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    {body}
}}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, hipStream_t stream) {{
    {host}
    if (n) k<<<(unsigned)((n + 127) / 128), 128, 0, stream>>>(x, y, n);
    return (int)hipGetLastError();
}}
"""
RIGHT = "if (i < n) y[i] = x[i] > 0 ? x[i] : scalar_t(0);"
COPIES = """
    scalar_t* kept = new scalar_t[n];
    hipMemcpy(kept, x, n * sizeof *kept, hipMemcpyDeviceToHost);
    for (int64_t i = 0; i < n; ++i) kept[i] = kept[i] > 0 ? kept[i] : scalar_t(0);
    hipMemcpy(y, kept, n * sizeof *kept, hipMemcpyHostToDevice);
    delete[] kept;
"""

TRITON = """
import triton
import triton.language as tl

@triton.jit
def _elsewhere(x, y, n):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(y + at, 0.0, mask=at < n)

@triton.jit
def _on_amd(x, y, n):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)

def relu(x, y):
    here = triton.runtime.driver.active.get_current_target().backend
    kernel = _on_amd if x.is_cuda and y.is_cuda and here == "hip" else _elsewhere
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel())
"""


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """``portkern check`` of a relu with this body; the first record of its JSON document."""
    monkeypatch.chdir(tmp_path)
    known = venues(registry.load("hip"), target.load("gfx942")).object
    if isinstance(known, Missing):
        pytest.skip(str(known))

    def run(body: str, *options: str, host: str = "") -> dict[str, Any]:
        Path("relu.hip").write_text(KERNEL.format(body=body, host=host), encoding="utf-8")
        argv = ["op=relu", "backend=hip", "source=relu.hip", "target=gfx942", "venue=object"]
        main.run(["check", *argv, "json=true", *options])
        record: dict[str, Any] = json.loads(capsys.readouterr().out)["records"][0]
        return record

    return run


def test_a_right_kernel_is_executed(check: Any) -> None:
    record = check(RIGHT)
    assert (record["verdict"], record["evidence"]) == ("passed", "executed"), record["detail"]
    assert record["venue"].startswith("object: AMD executor, gfx942 (wave 64)")
    [launch] = record["launches"]
    counts = launch["counts"]
    assert launch["name"] == "k" and counts["instructions"] > counts["vector"] > counts["waves"]
    assert counts["load_bytes"] == counts["store_bytes"] == 4 * record["workload"]["dims"]["n"]
    assert record["missing"] == "only the object was asked for" and record["timing"] is None
    assert Record.from_json(json.dumps(record)).evidence is Evidence.EXECUTED


@pytest.mark.full
def test_what_a_host_function_chooses_on_a_gpu_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    known = venues(registry.load("triton"), target.load("gfx942")).object
    if isinstance(known, Missing):
        pytest.skip(str(known))
    Path("relu.py").write_text(TRITON, encoding="utf-8")
    argv = ["op=relu", "backend=triton", "source=relu.py", "target=gfx942", "venue=object"]
    main.run(["check", *argv, "json=true"])
    record = json.loads(capsys.readouterr().out)["records"][0]
    assert record["verdict"] == "passed", record["detail"]
    assert [launch["name"] for launch in record["launches"]] == ["_on_amd"]


@pytest.mark.full
def test_a_wrong_kernel_and_one_that_stores_outside_are_wrong(check: Any) -> None:
    assert check(RIGHT.replace("> 0", "> 0.1"))["verdict"] == "wrong"
    record = check(RIGHT.replace("i < n", "i <= n"))
    assert record["verdict"] == "wrong", record
    assert {"object-load-outside", "object-store-outside"} <= {
        f["code"] for f in record["findings"]
    }


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "host", "verdict", "said"),
    [
        ("volatile int on = 1; while (on) {}", "", "crashed", "waits for what no other wave"),
        (
            'int id; asm volatile("s_getreg_b32 %0, hwreg(2)" : "=s"(id)); if (i < n) y[i] = id;',
            "",
            "unavailable",
            "k needs hardware",
        ),
        ("if (i < n) __builtin_trap();", "", "crashed", "a trap"),
        (RIGHT, "for (int64_t i = 0; i < n; ++i) y[i] = x[i];", "crashed", "SIGSEGV"),
        ("if (i < 0) y[i] = x[i];", COPIES, "wrong", "were copied from host memory"),
        (RIGHT, "hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal);", "unavailable", ""),
    ],
)
def test_what_does_not_end_well_says_why(
    check: Any, body: str, host: str, verdict: str, said: str
) -> None:
    record = check(body, host=host)
    assert record["verdict"] == verdict, record
    assert said in record["detail"] and record["evidence"] == "built"


@pytest.mark.full
def test_a_kernel_of_very_many_instructions_runs_out_of_time(check: Any) -> None:
    body = "for (unsigned k = 0; k < 4000000000u; ++k) if (i < n) atomicAdd((float*)y + i, 1.0f);"
    record = check(body, "timeout_s=3")
    assert record["verdict"] == "timed_out", record


def test_objects_come_before_the_source_but_where_checkers_of_the_source_are_asked_for() -> None:
    hip = registry.load("hip")
    known = venues(hip, target.load("gfx942"))
    if isinstance(known.object, Missing) or isinstance(known.emulator, Missing):
        pytest.skip("needs both venues")
    kinds = {
        choice: getattr(RunStage.parse("best", choice.split()).of(known, hip).best, "kind", "")
        for choice in ("none", "bounds", "uninitialised", "bounds schedule", "waits lds")
    }
    assert kinds == {
        "none": "object",
        "bounds": "object",
        "uninitialised": "emulator",
        "bounds schedule": "emulator",
        "waits lds": "object",
    }
    only = RunStage.parse("emulator", ()).of(known, hip)
    assert isinstance(only.object, Missing) and isinstance(only.best, Venue)
    nvidia = venues(hip, target.load("sm_90"))
    assert isinstance(nvidia.object, Missing)


def test_evidence_is_ordered_and_old_names_stay() -> None:
    assert [str(rung) for rung in sorted(Evidence)] == [
        *("none", "built", "emulated", "executed", "verified", "measured")
    ]


def test_host_code_reaches_a_device_by_copies_inside_of_blocks_alone() -> None:
    memory = Memory()
    at, other = memory.allocate(100), memory.allocate(8)
    assert memory.fill(at, 7, 100) and not memory.fill(at + 1, 7, 100)
    assert memory.copy(other, at, 8) and not memory.copy(other, at, 9)
    assert memory.blocks[other].copied == 0 and memory.read_back == 0
    assert memory.release(at) and not memory.release(at) and not memory.release(other + 1)
    assert memory.release(other)
    with pytest.raises(MemoryError, match="a device has no"):
        memory.allocate(1 << 50)
