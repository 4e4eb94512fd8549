"""Measures what the jail costs: writes results/containment-<machine>.json and prints its table.

.venv/bin/python -m benchmarks.containment [pairs=12] [seconds=400]

In pairs whose order alternates, in one process: a kernel of C++ for each of a few operators, from
its text to its verdict, by warm workers with the jail and without it; and a CUDA program, which is
compiled and run in the SIMT executor as ``portkern run`` does, with the jail and with jail=false.
Texts are new each time, so that nothing is built before; timed rounds are few in both ways, as what
they take is not the jail's. The same program by a command of its own has all that starts in it. No
pair begins after ``seconds``.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import _script
from portkern import ops
from portkern.cells.selection import default_target
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.evaluator.jailed_process import JailedProcesses
from portkern.records.record import Verdict
from portkern.sandbox import session
from portkern.sandbox.jail import SWITCH
from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.compile_options import CompileOptions
from portkern.spec import catalogue, registry, target
from portkern.testing import evaluate
from portkern.toolchain import host
from portkern.toolchain.run_tool import accept_foreign
from portkern.toolchain.source_view import SourceView
from portkern.worker.protocol import Execute

ROOT = Path(__file__).parents[1]
#: One of each way to go through memory, by what compiles quickly and slowly.
OPS = ("relu", "softmax", "matmul")
GPU = "sm_90"
PROGRAM = """\
#include <cstdio>
__global__ void scale(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * y[i] + MARK;
}
int main() {
  const int n = 1 << 16;
  float* y;
  cudaMalloc(&y, n * sizeof(float));
  cudaMemset(y, 0, n * sizeof(float));
  for (int k = 0; k < 50; ++k) scale<<<n / 256, 256>>>(y, n);
  float last;
  cudaMemcpy(&last, y + n - 1, sizeof last, cudaMemcpyDeviceToHost);
  printf("%g\\n", last);
}
"""
#: What is measured, as the table calls it, and how often in each pair.
KINDS = {
    "verdicts": f"verdicts of {len(OPS)} kernels of C++, by warm workers",
    "run": "a CUDA program, compiled and run by warm workers",
    "command": "the same by `portkern run`, its start included",
}
_RESAMPLES = 4000
_COMMAND = "import sys; from portkern.cli.main import main; sys.exit(main())"


def main() -> None:
    words = _script.words({"pairs", "seconds"}, __doc__)
    pairs, seconds = int(words.get("pairs", 12)), float(words.get("seconds", 400))
    begin = time.monotonic()
    measured: dict[str, Any] = {
        "machine": f"{len(os.sched_getaffinity(0))} CPUs, {host.cpu_name()}",
        "load": os.getloadavg()[0],
        "layers": str(session.layers()),
        "samples_s": {kind: {"jail": [], "none": []} for kind in KINDS},
    }
    if measured["layers"] == "none":
        raise SystemExit("There is no jail here: portkern doctor says why")
    with tempfile.TemporaryDirectory(prefix="portkern-cost-") as folder:
        Path(folder).chmod(0o755)
        os.environ["PORTKERN_CACHE_DIR"] = f"{folder}/cache"
        for number in range(pairs + 1):
            if number > 1 and time.monotonic() - begin > seconds:
                break
            for way in ("jail", "none") if number % 2 else ("none", "jail"):
                for kind, took in _both(way, Path(folder)).items():
                    print(f"{number} {way} {kind}: {took:.2f} s", file=sys.stderr, flush=True)
                    if number:  # what all share is built in the first
                        measured["samples_s"][kind][way].append(took)
    for kind in KINDS:
        measured[kind] = compared(**measured["samples_s"][kind])
    name = default_target(registry.load("cpu")).name
    _script.write(f"containment-{name}.json", measured)
    print(table(measured))


def _both(way: str, folder: Path) -> Mapping[str, float]:
    """The seconds of each kind, in servers of this way."""
    session.close_servers()
    os.environ[SWITCH] = "none" if way == "none" else "all"
    measure: Mapping[str, Callable[[str, Path], float]] = {
        "verdicts": _verdicts,
        "run": _run,
        "command": _command,
    }
    try:
        return {kind: of(way, folder) for kind, of in measure.items()}
    finally:
        session.close_servers()


def _verdicts(_way: str, folder: Path) -> float:
    backend = registry.load("cpu")
    where = default_target(backend)
    seconds = 0.0
    for name in ("relu", *OPS):  # the first finds servers that have not started
        op = ops.load(name)
        source = folder / f"{name}.cpp"
        text = (ROOT / "backends" / "cpu" / "kernels" / f"{name}.cpp").read_text(encoding="utf-8")
        source.write_text(f"{text}// {time.time_ns()}\n", encoding="utf-8")
        candidate = catalogue.from_file(source, op=name, backend=backend, entry=None)
        begin = time.monotonic()
        found = evaluate(
            candidate, op, backend, where, list(op.workloads["ci"])[:2], folder=folder / "builds"
        )
        took = time.monotonic() - begin
        if not isinstance(found, list) or any(
            result.verdict is not Verdict.PASSED for result in found
        ):
            raise SystemExit(f"{name} did not pass: {found}")
        seconds += took
    return seconds


def _program(folder: Path) -> Path:
    source = folder / "program.cu"
    source.write_text(PROGRAM.replace("MARK", str(time.time_ns() % 1000)), encoding="utf-8")
    return source


def _command(way: str, folder: Path) -> float:
    jail = f"jail={way != 'none'}"
    argv = [sys.executable, "-c", _COMMAND, "run", str(_program(folder)), f"target={GPU}", jail]
    begin = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd=folder / "program.src")
    return time.monotonic() - begin


def _run(way: str, folder: Path) -> float:
    _ran(way, folder)  # finds servers that have not started
    return _ran(way, folder)


def _ran(way: str, folder: Path) -> float:
    source, out = _program(folder), folder / "program"
    how = CompileOptions(target=target.load(GPU), language="cuda", timeout_s=120.0)
    begin = time.monotonic()
    if way == "none":
        with accept_foreign():
            built = build.build_program(source, out, how)
        outcome = program.run(built, target=target.load(GPU), language="cuda")
        took = time.monotonic() - begin
    else:
        with ExitStack() as opened:
            compilers = opened.enter_context(JailedCompilers(SourceView.of([source])))
            reads = [folder, runtime_library.ready().folder]
            processes = opened.enter_context(JailedProcesses(reads))
            processes.begin()  # as the command does
            built = compilers.program(source, out, how)
            compilers.stop()
            asked = Execute((str(built),), str(folder / "program.src"), GPU, "cuda", (), 60.0)
            outcome = processes.run(asked).program
            took = time.monotonic() - begin
    if outcome.status != 0:
        raise SystemExit(f"The program did not end well: {outcome}")
    return took


def compared(jail: list[float], none: list[float]) -> dict[str, float | list[float]]:
    """The medians, and that of the ratios of pairs with the interval that has it in 95 % of
    draws."""
    ratios = [one / other for one, other in zip(jail, none, strict=True)]
    chance = random.Random(44)
    drawn = sorted(
        statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES)
    )
    return {
        "pairs": len(ratios),
        "jail_s": statistics.median(jail),
        "none_s": statistics.median(none),
        "ratio": statistics.median(ratios),
        "interval": [drawn[int(_RESAMPLES * part)] for part in (0.025, 0.975)],
    }


def table(measured: Mapping[str, Any]) -> str:
    """Formats the measurements as a Markdown table."""
    rows = ["| | with the jail | without | ratio (95 %) | pairs |", "|---|---|---|---|---|"]
    for kind, name in KINDS.items():
        of = measured[kind]
        low, high = of["interval"]
        rows.append(
            f"| {name} | {of['jail_s']:.2f} s | {of['none_s']:.2f} s "
            f"| {of['ratio']:.3f} ({low:.3f}–{high:.3f}) | {of['pairs']} |"
        )
    return "\n".join([f"On {measured['machine']}, {measured['layers']}.", "", *rows])


if __name__ == "__main__":
    main()
