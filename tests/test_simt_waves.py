"""Waits within a wave, between waves and between blocks, where waves run in lock-step.

What ends on a GPU whose lanes progress one by one is known by running it there.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.options import ExecutorOptions, Order
from portkern.simt.execute.program import ProgramOutcome
from portkern.spec import target

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)

KERNELS = """
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define TAKE(l) do { while (atomicExch(l, 1)) { } } while (0)
struct Turn { volatile int now; int used; __device__ bool is(int t) const { return now == t; } };
template <class F> __device__ void until(F&& f) { while (!f()) { } }
__device__ void wait_for(int* p) { while (atomicAdd(p, 0) == 0) __nanosleep(20); }
__device__ void take(int* l) { for (;;) { if (atomicCAS(l, 0, 1) == 0) return; } }
__global__ void member(int* x, int*) {
  Turn* turn = (Turn*)x; int n = 0, t = threadIdx.x;
  while (!turn->is(t)) { ++n; if (n < 0) break; }
  turn->used += 1; __threadfence_block(); turn->now = t + 1;
}
__global__ void from_the_right(int* x, int*) {
  int t = threadIdx.x;
  if (t + 1 < blockDim.x) { do { __nanosleep(8); } while (atomicOr(x + t + 1, 0) == 0); }
  atomicExch(x + t, 1);
}
__global__ void returns(int* x, int*) { take(x); x[1] += 1; __threadfence(); atomicExch(x, 0); }
__global__ void by_macro(int* x, int*) { TAKE(x); x[1] += 1; __threadfence(); atomicExch(x, 0); }
__global__ void branches(int* x, int*) {
  if (threadIdx.x % 2) { while (*(volatile int*)x == 0) { } } else { *(volatile int*)x = 1; }
}
__global__ void lambdas(int* x, int*) {
  int t = threadIdx.x;
  until([&] { return *(volatile int*)x == t; });
  *(volatile int*)x = t + 1;
}
__global__ void shortly(int* x, int*) {
  int t = threadIdx.x;
  t > 0 && (wait_for(x + t - 1), true);
  atomicExch(x + t, 1);
}
__global__ void empty_for(int* x, int*) {
  int t = threadIdx.x;
  for (; atomicCAS(x, t, t) != t;) ;
  atomicExch(x, t + 1);
}
__global__ void by_switch(int* x, int*) {
  switch (threadIdx.x & 3) {
    case 0: atomicExch(x, 1); break;
    case 3: wait_for(x + 1); break;
    default: wait_for(x); atomicExch(x + 1, 1);
  }
}
__global__ void stores_first(int* x, int*) {
  int t = threadIdx.x; *(volatile int*)(x + t) = 1; __threadfence();
  while (*(volatile int*)(x + (t + 1) % blockDim.x) == 0) { }
}
__global__ void between_waves(int* x, int*) {
  int w = threadIdx.x / 64;
  if (w == 0) { if (threadIdx.x == 0) wait_for(x + 1); x[2] = 5; }
  else if (threadIdx.x == 64) { __threadfence(); atomicExch(x + 1, 1); }
}
__global__ void chain(int* x, int*) {
  if (threadIdx.x == 0) {
    if (blockIdx.x) wait_for(x + blockIdx.x - 1);
    atomicExch(x + blockIdx.x, 1);
  }
  __syncthreads();
}
__global__ void in_the_branch(int* x, int*) {
  for (bool done = false; !done;)
    if (atomicCAS(x, 0, 1) == 0) {
      x[1] += 1;
      __threadfence();
      done = true;
      atomicExch(x, 0);
    }
}
__global__ void one_lane_at_a_time(int* x, int*) {
  for (int l = 0; l < 64; ++l)
    if (l == threadIdx.x % 64) { take(x); x[1] += 1; __threadfence(); atomicExch(x, 0); }
}
__global__ void grid(int* x, int*) {
  __syncthreads();
  if (threadIdx.x == 0) { atomicAdd(x, 1); while (*(volatile int*)x < (int)gridDim.x) { } }
  __syncthreads();
}
__global__ void computes(int* x, int*) {
  unsigned long long v = threadIdx.x + 1; unsigned n = 0;
  while (v != 12345 && n < 300000) { v = v * 6364136223846793005ull + 1; ++n; }
  atomicAdd(x, (int)(v & 1));
}
__global__ void retries(int* x, int*) {
  int old = *x, was;
  do {
    was = old;
    old = atomicCAS(x, was, __float_as_int(__int_as_float(was) + 1));
  } while (was != old);
}
__global__ void uniform_turns(int* x, int*) {
  int w = threadIdx.x / warpSize;
  while (*(volatile int*)x != w) { }
  __syncwarp();
  if (threadIdx.x % warpSize == 0) { __threadfence(); *(volatile int*)x = w + 1; }
}
__global__ void too_wide(int* x, int*) {
  if (threadIdx.x == 0) { atomicAdd(x, 1); while (*(volatile int*)x < (int)gridDim.x) { } }
}
__global__ void one_too_many(int* x, int*) {
  if (threadIdx.x) return;
  atomicAdd(x, 1); while (*(volatile int*)x <= (int)gridDim.x) { }
}
__global__ void nobody_tells(int* x, int*) {
  if (threadIdx.x || blockIdx.x) return;
  while (atomicAdd(x, 0) == 0) { }
}
struct Named { const char* name; void (*kernel)(int*, int*); int blocks; };
int main(int, char** argv) {
  const Named all[] = {
    {"member", member, 1},
    {"from_the_right", from_the_right, 1},
    {"returns", returns, 2},
    {"by_macro", by_macro, 2},
    {"branches", branches, 1},
    {"lambdas", lambdas, 1},
    {"shortly", shortly, 1},
    {"empty_for", empty_for, 1},
    {"by_switch", by_switch, 2},
    {"stores_first", stores_first, 2},
    {"between_waves", between_waves, 2},
    {"chain", chain, 300},
    {"in_the_branch", in_the_branch, 2},
    {"one_lane_at_a_time", one_lane_at_a_time, 2},
    {"grid", grid, 100},
    {"computes", computes, 2},
    {"retries", retries, 2},
    {"uniform_turns", uniform_turns, 1},
    {"too_wide", too_wide, 8000},
    {"one_too_many", one_too_many, 8},
    {"nobody_tells", nobody_tells, 300}
  };
  int* x;
  cudaMalloc(&x, 4096 * 4);
  cudaMemset(x, 0, 4096 * 4);
  for (const Named& one : all)
    if (!strcmp(one.name, argv[1])) { auto k = one.kernel; k<<<one.blocks, 128>>>(x, nullptr); }
  printf("%d", cudaDeviceSynchronize());
}
"""

#: Kernels in which a lane waits for what one of its wave does later, and the line of the wait.
WITHIN = {
    "from_the_right": 18,
    "returns": 10,
    "by_macro": 22,
    "lambdas": 8,
    "shortly": 9,
    "empty_for": 38,
    "by_switch": 9,
}
#: Kernels in which no lane does.
BETWEEN = (
    "stores_first",
    "between_waves",
    "chain",
    "in_the_branch",
    "one_lane_at_a_time",
    "grid",
    "computes",
    "retries",
    "uniform_turns",
)
AMD = ("gfx942", "gfx1100")
ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("waves")
    (folder / "waves.cu").write_text(KERNELS, encoding="utf-8")
    options = build.CompileOptions(target=target.load("sm_90"))
    return build.build_program(folder / "waves.cu", folder / "waves", options)


def run(built: Path, kernel: str, at: str, order: Order = "forward") -> ProgramOutcome:
    how = ExecutorOptions(order=order, widen=True, limit_s=20)
    return program.run(built, how, target=target.load(at), timeout_s=60, arguments=[kernel])


@pytest.mark.sampled(quick=2)
@pytest.mark.parametrize("kernel", WITHIN)
def test_a_wait_for_a_lane_of_the_same_wave_is_found_by_its_line(kernel: str, built: Path) -> None:
    assert run(built, kernel, "sm_90").output == "0"
    for at in AMD:
        outcome = run(built, kernel, at)
        assert outcome.output == "702", (at, outcome)
        assert [(f.code, f.line) for f in outcome.findings] == [("SX312", WITHIN[kernel])]


@pytest.mark.parametrize("kernel", BETWEEN)
def test_a_wait_that_no_lane_of_the_same_wave_has_to_end_is_left_alone(
    kernel: str, built: Path
) -> None:
    for at in ("sm_90", *AMD):
        for order in ORDERS:
            outcome = run(built, kernel, at, order)
            assert outcome.output == "0", (at, order, outcome)
            assert not outcome.findings


def test_branches_of_a_wave_wait_for_each_other_whichever_comes_first(built: Path) -> None:
    assert "SX312" in run(built, "branches", "gfx942", "forward").codes
    assert not run(built, "branches", "gfx942", "reverse").codes


def test_blocks_that_wait_for_more_than_are_resident_are_found(built: Path) -> None:
    for at in ("sm_90", "gfx942"):
        outcome = run(built, "too_wide", at)
        assert [f.code for f in outcome.findings] == ["SX315"], outcome


@pytest.mark.parametrize(("kernel", "line"), [("one_too_many", 105), ("nobody_tells", 109)])
def test_a_wait_that_more_room_for_blocks_would_not_end_is_a_deadlock(
    kernel: str, line: int, built: Path
) -> None:
    for at in ("sm_90", "gfx942"):
        for order in ORDERS:
            outcome = run(built, kernel, at, order)
            assert [(f.code, f.line) for f in outcome.findings] == [("SX303", line)], outcome


#: Lanes that go on to the next round meet there only when those that have more to do in this one
#: have done it: a shuffle without a mask would miss them.
ROUNDS = """\
#include <hip/hip_runtime.h>
#include <stdio.h>
__device__ int all_of(int v) {
  for (int d = warpSize / 2; d > 0; d /= 2) v += __shfl_xor(v, d);
  return v;
}
__device__ bool late(int u) { return u > 9; }
__device__ int noted(int* x, int v) { atomicAdd(x, 1); return v; }
__global__ void rounds(int* x) {
  int lane = threadIdx.x % warpSize;
  for (int u = 0; u < 4; ++u) {
    int sum = all_of(lane + u);
    if (lane > 0 || late(u)) continue;
    if (u < 3) x[u + 1] = noted(x, sum);
    else x[u + 1] = noted(x, -sum);
  }
}
__device__ int part(int* x, int lane, int u, int sum) {
  if (lane > 0) return 0;
  if (u < 3) x[u + 1] = noted(x, sum);
  else x[u + 1] = noted(x, -sum);
  return 1;
}
__device__ void each(int* x, int lane, int u, int sum) {
  while (lane > 0) return;
  for (int i = 3; late(i + 10); --i) {
    if (i != u) continue;
    x[u + 1] = u < 3 ? sum : -sum;
    if (noted(x, 1) > 9) return;
  }
}
__global__ void calls(int* x) {
  int lane = threadIdx.x % warpSize;
  for (int u = 0; u < 4; ++u) part(x, lane, u, all_of(lane + u));
}
__global__ void procedures(int* x) {
  int lane = threadIdx.x % warpSize;
  for (int u = 0; u < 4; ++u) each(x, lane, u, all_of(lane + u));
}
int main(int, char** argv) {
  int *x, y[5] = {};
  hipMalloc(&x, sizeof(y));
  hipMemset(x, 0, sizeof(y));
  auto kernel = *argv[1] == 'r' ? rounds : *argv[1] == 'c' ? calls : procedures;
  kernel<<<1, 64>>>(x);
  hipMemcpy(y, x, sizeof(y), hipMemcpyDeviceToHost);
  printf("%d %d %d %d %d", y[0], y[1], y[2], y[3], y[4]);
}
"""


def test_a_round_of_a_loop_or_a_call_ends_for_all_lanes_before_what_is_next(
    tmp_path: Path,
) -> None:
    (tmp_path / "rounds.hip").write_text(ROUNDS, encoding="utf-8")
    at = target.load("gfx942")
    options = build.CompileOptions(target=at, language="hip")
    made = build.build_program(tmp_path / "rounds.hip", tmp_path / "rounds", options)
    for order, kernel in product(ORDERS, ("rounds", "calls", "procedures")):
        how = ExecutorOptions(order=order, limit_s=20)
        outcome = program.run(
            made, how, target=at, language="hip", timeout_s=60, arguments=[kernel]
        )
        assert outcome.output == "4 2016 2080 2144 -2208", (order, kernel, outcome)
        assert not outcome.findings
