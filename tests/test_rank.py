"""Where nothing can be timed, kernels are ranked by what is known of them without a clock."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from portkern.agent import rank
from portkern.agent.attempt import UNTIMED
from portkern.agent.log import Log
from portkern.agent.rank import RankedAttempt
from portkern.cli.main import run
from portkern.isa import runtime_library
from portkern.records.record import BuildResources, Launch, Record, Roofline
from portkern.spec import target
from portkern.spec.backend import Missing, Resources
from portkern.spec.occupancy import no_place

KERNEL = """
#define ROWS 4  // knob: 4 8
#define AGAIN 2  // knob: 2 1

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
  __shared__ float row[ROWS * 4096];  // 8 rows are 128 KiB
  int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= n) return;
  float v = float(x[at]);
  for (int k = 0; k < AGAIN; ++k) {
    ((volatile float*)row)[threadIdx.x] = v;
    v = ((volatile float*)row)[threadIdx.x];
  }
  y[at] = scalar_t(v < 0.0f ? 0.0f : v);
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, hipStream_t stream) {
  if (n) relu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
  return hipGetLastError();
}
"""


def record(counts: dict[str, int], *used: BuildResources, nbytes: int = 1 << 20) -> Record:
    return Record.model_construct(
        launches=(Launch(name="mine", counts=counts),) if counts else (),
        resources=used,
        roofline=Roofline(bytes=nbytes, flops=0.0),
    )


COUNTED = {"instructions": 90_000, "lines": 9_000, "lds_passes": 900, "scratch_bytes": 640}


@pytest.mark.parametrize("name", COUNTED)
def test_more_of_whatever_is_counted_ranks_lower(name: str) -> None:
    less = rank.of([record(COUNTED)])
    more = rank.of([record(COUNTED | {name: 4_000 + 40 * COUNTED[name]})])
    scores = [rank.score(known, executed=True) for known in (less, more)]
    assert 0 < scores[1] < scores[0] <= UNTIMED


def test_a_kernel_that_moves_its_bytes_and_nothing_else_is_at_the_top() -> None:
    least = {"instructions": 1, "lines": (1 << 20) // 128}
    assert rank.of([record(least)]).share == pytest.approx(1, rel=1e-3)


def test_workloads_count_alike_and_those_with_nothing_to_move_do_not() -> None:
    small = record(COUNTED, nbytes=1 << 12)
    shares = [rank.of([one]).share or 0.0 for one in (record(COUNTED), small)]
    both = rank.of([record(COUNTED), small, record({}, nbytes=0)])
    assert both.share == pytest.approx(math.sqrt(shares[0] * shares[1]))
    assert rank.of([record(COUNTED), record({})]).share is None  # one of two was not counted


#: The better one first.
BUILDS = [
    (
        RankedAttempt(spills=0, occupancy=0.1, registers=255),
        RankedAttempt(spills=1, occupancy=1.0, registers=1),
    ),
    (RankedAttempt(occupancy=0.5, registers=128), RankedAttempt(occupancy=0.25, registers=64)),
    (RankedAttempt(registers=64, shared_bytes=60_000), RankedAttempt(registers=80, shared_bytes=0)),
    (RankedAttempt(shared_bytes=1024), RankedAttempt(shared_bytes=65_536)),
    (RankedAttempt(spills=3), RankedAttempt(spills=100_000)),
]


@pytest.mark.parametrize(("better", "worse"), BUILDS)
@pytest.mark.parametrize("share", [None, 0.4])
def test_the_build_decides_where_the_work_is_equal_or_unknown(
    better: RankedAttempt, worse: RankedAttempt, share: float | None
) -> None:
    scores = []
    for one in (better, worse):
        known = RankedAttempt(share, 1 if share else None, one.spills, one.occupancy, one.registers,
                      one.shared_bytes)  # fmt: skip
        scores.append(rank.score(known, executed=share is not None))
    assert 0 < scores[1] < scores[0] <= UNTIMED


def test_work_goes_before_the_build_and_what_was_not_counted_comes_last() -> None:
    lean = RankedAttempt(share=0.42, spills=99, occupancy=0.1)
    tidy = RankedAttempt(share=0.40, spills=0, occupancy=1.0)
    uncounted = RankedAttempt(spills=0, occupancy=1.0)
    scores = [rank.score(known, executed=True) for known in (lean, tidy, uncounted)]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 3
    assert rank.score(RankedAttempt(), executed=False) == UNTIMED and not RankedAttempt().anything


def test_any_two_kernels_have_scores_above_nothing() -> None:
    facts = itertools.product((None, 1e-9, 1.0), (None, 0, 10**9), (None, 0.0, 1.0), (None, 10**6))
    for share, spills, occupancy, registers in facts:
        known = RankedAttempt(share, share and 1, spills, occupancy, registers, registers)  # type: ignore[arg-type]
        assert 0 < rank.score(known, executed=True) <= UNTIMED
        assert bool(str(known)) == known.anything


def test_of_a_build_the_kernels_count_that_were_launched() -> None:
    idle = BuildResources(kernel="idle", registers=250, spills=40, occupancy=0.1)
    mine = BuildResources(kernel="mine", registers=20, spills=0, occupancy=0.9)
    assert rank.of([record(COUNTED, idle, mine)]).registers == 20
    assert rank.of([record({}, idle, mine)]).spills == 40  # nobody said which of them ran


@pytest.mark.parametrize(
    ("where", "used", "why"),
    [
        ("gfx942", {"shared_bytes": 65_552}, "takes 65,552 B of shared memory per block, gfx942"),
        ("gfx942", {"shared_bytes": 65_536, "registers": 256, "threads": 256}, ""),
        ("gfx942", {"threads": 2048}, "takes 2,048 threads per block, gfx942 has 1,024"),
        ("gfx1100", {"registers": 300}, "takes 300 registers per thread, gfx1100 has 256"),
        ("sm_90", {"registers": 255, "threads": 1024}, "255 registers in each of 1024 threads"),
        ("sm_90", {"shared_bytes": 232_448}, ""),
        ("sm_86", {"shared_bytes": 131_072}, "131,072 B of shared memory per block, sm_86 has"),
        ("x86_64", {"registers": 9999}, ""),
        ("gfx942", {}, ""),
    ],
)
def test_a_kernel_that_takes_more_than_the_target_has_has_no_place_there(
    where: str, used: dict[str, int], why: str
) -> None:
    told = no_place(target.load(where), Resources("mine", **used))
    assert (why in told) if why else not told


@pytest.mark.full
@pytest.mark.skipif(isinstance(runtime_library.find(), Missing), reason="nothing executes objects")
def test_without_a_gpu_settings_are_ranked_by_counts_and_those_without_a_place_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.hip").write_text(KERNEL, encoding="utf-8")
    asked = ["generate", "op=relu", "target=gfx942", "source=mine.hip", "final=[]", "track=false",
             "budget.attempts=3", "run=it"]  # fmt: skip
    assert run(asked) == 0
    said = capsys.readouterr().out
    assert "Nothing is timed here: right kernels are ranked by what executing" in said
    assert "ranked by: " in said and "not offered: " in said and "exceeds limit (65536)" in said
    tried = list(Log.read(tmp_path / "reports" / "it" / "attempts.jsonl"))
    assert not any("ROWS 8" in attempt.source for attempt in tried)
    best = max(tried, key=lambda attempt: attempt.score)
    assert "AGAIN 1" in best.source and "instructions" in best.ranked
    assert f"best: {best.id}, correct" in said
