"""KernelBench's own evaluator and ours, on one GPU, over the same candidates:
results/beside-kernelbench.json.

.venv/bin/python -m benchmarks.beside_kernelbench folder=../KernelBench [problems=19] [beside=0]

``folder`` is a checkout of KernelBench; its evaluator runs as its scripts call it, in a process of
its own, with five trials of correctness and a hundred of time. Ours evaluates the same text as a
``ModelNew``, and the kernel in it alone, at the ``ci`` and ``typical`` sizes. Needs a CUDA device
and nvcc.

Candidates of each problem: a plain kernel written from the graph, the same with a mistake, the
reference's own operations under another name, and one that keeps its output for inputs that it has
seen the address of. Those that have a row are not run again; a row says how many other evaluations
ran on the same machine (``beside=``), which all walls pay for.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import portkern
from benchmarks import _script
from benchmarks.kernelbench_kernels import twin
from portkern.cells.selection import load_op
from portkern.evaluator import from_torch
from portkern.evaluator.from_torch import OperatorFile
from portkern.formats import kernelbench_runs
from portkern.formats.exported import ExportedOp, KernelRecords
from portkern.spec import catalogue, registry

RESULTS = "beside-kernelbench.json"
#: Level 1: elementwise, a softmax, norms, reductions, scans, losses, a pooling, a product.
PROBLEMS = (1, 19, 23, 26, 36, 40, 42, 47, 48, 89, 94, 97, 98)
#: What KernelBench's scripts pass.
CORRECT_TRIALS, PERF_TRIALS = 5, 100
LIMIT_S = 300.0
#: Its modules import these for their models' calls, which an evaluation has none of.
_CLIENTS = {
    "openai": ("OpenAI",),
    "litellm": ("completion",),
    "dotenv": ("load_dotenv",),
    "requests": (),
    "tqdm": ("tqdm",),
}


@dataclass(frozen=True)
class Problem:
    path: Path
    source: str

    @property
    def name(self) -> str:
        return self.path.stem

    def candidates(self) -> Iterator[tuple[str, str, str]]:
        """Yields for each candidate its title, the text of its ModelNew, and the kernel in it, if
        any."""
        plain = from_torch.plain_kernel(str(self.path), "cuda")
        _, broken = twin(plain)
        yield "right", self._module(plain), plain
        yield "with a mistake", self._module(broken), broken
        yield "the framework's own", re.sub(r"\bModel\b", "ModelNew", self.source), ""
        yield "kept outputs", self.source + _KEPT, ""

    def _module(self, kernel: str) -> str:
        op, backend = load_op(str(self.path)), registry.load("cuda")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{op.name}.cu"
            file.write_text(kernel)
            candidate = catalogue.from_file(file, op=op.name, backend=backend)
        exported = ExportedOp(op, OperatorFile.read(str(self.path)).source, "Model", self.name)
        return kernelbench_runs.model_new(KernelRecords(exported, candidate, "float32", ()))


_KEPT = """


class ModelNew(Model):
    seen = {}

    def forward(self, *inputs):
        key = tuple(value.data_ptr() if hasattr(value, "data_ptr") else value for value in inputs)
        if key not in self.seen:
            self.seen[key] = super().forward(*inputs)
        return self.seen[key]
"""


def main() -> None:
    if "theirs" in sys.argv[1:2]:
        print(json.dumps(theirs(*map(Path, sys.argv[2:5]))))
        return
    words = _script.words(("folder", "problems", "beside"), __doc__, ("folder",))
    folder = Path(words["folder"])
    wanted = [int(n) for n in words.get("problems", "").split(",") if n] or PROBLEMS
    device = torch.cuda.get_device_name()
    rows = _earlier(device)
    known = {(row["problem"], row["candidate"]) for row in rows}
    for number in wanted:
        [path] = (folder / "KernelBench" / "level1").glob(f"{number}_*.py")
        problem = Problem(path, path.read_text())
        for kind, module, kernel in problem.candidates():
            if (problem.name, kind) in known:
                continue
            head = {"problem": problem.name, "candidate": kind, "beside": words.get("beside", "0")}
            rows.append({**head, **row(folder, path, module, kernel)})
            print(json.dumps(rows[-1]), flush=True)
            _script.write(RESULTS, {"device": device, "rows": rows})
    print(table(rows))


def _earlier(device: str) -> list[dict[str, Any]]:
    """The rows that runs on such a device left."""
    path = _script.RESULTS / RESULTS
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return list(known["rows"]) if known.get("device") == device else []


def row(folder: Path, problem: Path, module: str, kernel: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        candidate, own = Path(name) / "candidate.py", Path(name) / "candidate.cu"
        candidate.write_text(module)
        own.write_text(kernel)
        answer = {
            "theirs": timed(lambda: _in_a_process(folder, problem, candidate)),
            "ours": timed(lambda: ours(problem, candidate)),
        }
        return (
            {**answer, "ours, the kernel": timed(lambda: ours(problem, own))} if kernel else answer
        )


def timed(evaluate: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    begin = time.perf_counter()
    answer = evaluate()
    return {**answer, "wall_s": round(time.perf_counter() - begin, 2)}


def ours(problem: Path, source: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as reports:
        report = portkern.check(
            str(problem),
            "cuda",
            source,
            workloads=["ci"],
            dtypes=["float32"],
            reports=reports,
        )
    bad = [one for one in report.records if one.verdict != "passed"]
    if not report.records:
        return {"verdict": "nothing ran"}
    speedups = [one.speedup["eager"].value for one in report.records if "eager" in one.speedup]
    said = bad[0] if bad else report.records[-1]
    return {
        "verdict": str(said.verdict),
        "detail": said.detail[:200],
        "speedup": round(speedups[-1], 3) if speedups and not bad else None,
    }


def _in_a_process(folder: Path, problem: Path, candidate: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.beside_kernelbench", "theirs"]
    try:
        done = subprocess.run(
            [*command, str(folder), str(problem), str(candidate)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"verdict": f"no answer in {LIMIT_S:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"verdict": "crashed", "detail": done.stderr[-300:]}
    return dict(json.loads(lines[-1]))


def theirs(folder: Path, problem: Path, candidate: Path) -> dict[str, Any]:
    """The verdict of KernelBench's evaluator, run in this process."""
    for name, members in _CLIENTS.items():
        if find_spec(name) is None:
            stand_in = types.ModuleType(name)
            vars(stand_in).update(dict.fromkeys(members, _nothing))
            sys.modules[name] = stand_in
    sys.path.insert(0, str(folder / "src"))
    evaluator = importlib.import_module("kernelbench.eval")
    with tempfile.TemporaryDirectory() as build:
        result = evaluator.eval_kernel_against_ref(
            problem.read_text(),
            candidate.read_text(),
            num_correct_trials=CORRECT_TRIALS,
            num_perf_trials=PERF_TRIALS,
            measure_performance=True,
            build_dir=build,
            device=torch.device("cuda:0"),
        )
    if result is None:
        return {"verdict": "no answer"}
    verdict = "passed" if result.correctness else "wrong" if result.compiled else "build_failed"
    told = {key: str(value)[:200] for key, value in (result.metadata or {}).items()}
    eager = getattr(result, "ref_runtime", 0)
    speedup = round(eager / result.runtime, 3) if eager and eager > 0 < result.runtime else None
    return {"verdict": verdict, "speedup": speedup, "metadata": told}


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Does nothing, in place of the clients of models that KernelBench imports."""


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a table in Markdown: verdicts side by side, and the median of the seconds."""
    lines = [
        "| candidate | theirs | ours | theirs, s | ours, s | ours, the kernel, s |",
        "|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(row["candidate"] for row in rows):
        mine = [row for row in rows if row["candidate"] == kind]
        said = [_counted(mine, who) for who in ("theirs", "ours")]
        walls = [_median(mine, who) for who in ("theirs", "ours", "ours, the kernel")]
        lines.append(f"| {kind} | {' | '.join([*said, *walls])} |")
    return "\n".join(lines)


def _counted(rows: list[dict[str, Any]], who: str) -> str:
    verdicts = [row[who]["verdict"] for row in rows]
    return ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts))


def _median(rows: list[dict[str, Any]], who: str) -> str:
    walls = sorted(row[who]["wall_s"] for row in rows if who in row)
    return f"{walls[len(walls) // 2]:.1f}" if walls else "—"


if __name__ == "__main__":
    main()
