"""Measures what evaluating costs: writes results/evaluator-<machine>.json and prints its table.

.venv/bin/python benchmarks/evaluator.py [containment] [processor] [cpu] [gpu] [kernelbench=PATH]
    [pairs=5] [earlier=PATH] [repeats=5]

Without a word, all that this machine has is measured. containment: the cpu matrix at ci sizes with
cold caches, with the jail and without it in turns; earlier=PATH also by the portkern that is
installed in that folder (pip install --target), such as one without cross-checks, and by this one
with the kernels of that one, as what compilers take for a kernel is not a cost of the evaluator.
processor: seconds of processors for four operators, timed in five rounds, with the jail and without
it, which other work on the machine changes little; as root, in a group that counts it. cpu and
gpu: a source from a file to its verdict, in a new process and in a warm one. kernelbench: the same
kernel in a checkout's own evaluator, its process included and not; no figure without a checkout.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

ROOT = Path(__file__).parents[1]
#: The command by its entry point, which an earlier portkern has elsewhere.
RUN = (
    "import sys; from importlib.metadata import distribution; "
    "[main] = distribution('portkern').entry_points.select(group='console_scripts'); "
    "sys.exit(main.load()())"
)
#: Operators by name, as sets of them change: one of each way to go through memory.
OPS = "[relu,gelu,add,sum,softmax,layernorm,rmsnorm,matmul,transpose,cumsum]"
MATRIX = f"matrix ops={OPS} targets=host backends=cpu workloads=ci track=false".split()
SIDE = 4096
#: The same of few, with as many rounds as there are at least: others go on until medians are known.
VERDICTS = [*MATRIX, "budget_s=0"]
VERDICTS[1] = "ops=[relu,softmax,rmsnorm,matmul]"
#: Where a group counts the processor time of all processes that were started in it, in ns.
ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")
PARTS = {"containment", "processor", "cpu", "gpu", "kernelbench"}
#: The trials that KernelBench's own scripts ask for.
CORRECT_TRIALS, PERF_TRIALS = 5, 100
#: What its modules import, for seconds, and its evaluator never calls: stand-ins do.
UNUSED = ("dotenv", "openai", "litellm", "requests", "tqdm")
#: What the contained matrix is held against, as the table calls it.
WAYS = {
    "none": "without containment",
    "rounds": "contained, five rounds to each race instead of known medians",
    "theirs": "the same of five rounds, with the kernels of portkern before the jail",
    "earlier": "by portkern before the jail and the cross-checks, also of five rounds",
}


def main() -> None:
    words = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if set(words) - {*PARTS, "earlier", "pairs", "repeats"}:
        raise SystemExit(__doc__)
    repeats = int(words.get("repeats", 5))
    chosen = set(words) & PARTS
    from portkern.cells.selection import host_targets
    from portkern.sandbox import session
    from portkern.toolchain import host

    gpu = [name for name in host_targets() if name != host_targets()[0]]
    measured: dict[str, Any] = {
        "machine": f"{os.cpu_count()} CPUs, {host.cpu_name()}",
        "gpu": ", ".join(gpu),
        "layers": str(session.layers()),
        "load": os.getloadavg()[0],
    }
    session.close_servers()
    if not chosen or "containment" in chosen:
        measured["containment"] = containment(int(words.get("pairs", 5)), words.get("earlier", ""))
    if "processor" in chosen:
        measured["processor"] = processor(int(words.get("pairs", 5)))
    if not chosen or "cpu" in chosen:
        measured["cpu"] = verdicts("cpu", repeats)
    if gpu and (not chosen or "gpu" in chosen):
        measured["gpu_candidate"] = verdicts("cuda", repeats)
    if gpu and "kernelbench" in chosen:
        measured["kernelbench"] = kernelbench(Path(words["kernelbench"]).resolve(), repeats)
    machine = (gpu or host_targets())[-1]
    target = ROOT / "benchmarks" / "results" / f"evaluator-{machine}.json"
    known = json.loads(target.read_text()) if target.exists() else {}
    target.write_text(json.dumps(known | measured, indent=1) + "\n")
    print(table(known | measured))


def table(measured: dict[str, Any]) -> str:
    """Formats the measurements as a Markdown table for the documentation."""
    found = [f"On {measured['machine']}; {measured['gpu'] or 'no GPU'}.", "", "| | |", "|---|---|"]
    jail = measured.get("containment")
    if jail:
        name = f"matrix of {jail['candidates']} candidates, contained ({measured['layers']})"
        found.append(f"| {name} | {jail['all_s']:.1f} s |")
        for key, name in WAYS.items():
            if key in jail:
                found += [
                    f"| {name} | {jail[f'{key}_s']:.1f} s |",
                    f"| ratio | {_spread(jail[key])} |",
                ]
                found.append(f"| more per candidate | {jail[key]['per_candidate_s']:.2f} s |")
    if work := measured.get("processor"):
        found += [
            f"| processor time of {work['cells']} verdicts, contained | {work['all_s']:.1f} s |",
            f"| without containment | {work['none_s']:.1f} s |",
            f"| ratio | {_spread(work)} |",
        ]
    for key, name in (("cpu", "C++ softmax, ci sizes"), ("gpu_candidate", f"CUDA softmax {SIDE}²")):
        for when, seconds in measured.get(key, {}).items():
            found.append(f"| {name}: {when.replace('_', ' ')} | {seconds:.2f} s |")
    if measured["gpu"]:
        theirs = measured.get("kernelbench", {})
        for when in ("with_process", "call"):
            cell = f"{theirs[when]:.2f} s" if when in theirs else ""
            found.append(f"| KernelBench's evaluator: {when.replace('_', ' ')} | {cell} |")
    return "\n".join(found)


# ---- what containment costs


def containment(pairs: int, earlier: str) -> dict[str, Any]:
    """The order within a round alternates: what drifts meets all. An earlier portkern is held
    against a run of its kernels in as many rounds as it had: races have gone on until medians are
    known since."""
    ways = ["all", "none", *(["rounds", "theirs", "earlier"] if earlier else [])]
    taken: dict[str, list[float]] = {way: [] for way in ways}
    candidates = 0
    for number in range(pairs):
        for way in ways if number % 2 == 0 else reversed(ways):
            seconds, evaluated = _matrix(way, earlier)
            taken[way].append(seconds)
            candidates = evaluated if way == "all" else candidates
    found: dict[str, Any] = {"candidates": candidates, "samples_s": taken}
    for way in ways:
        found[f"{way}_s"] = statistics.median(taken[way])
    beside = {"none": "all", "rounds": "all", "theirs": "rounds", "earlier": "theirs"}
    for way, now in beside.items():
        if way not in taken:
            continue
        both = list(zip(taken[now], taken[way], strict=True))
        ratios = [one / other for one, other in both]
        found[way] = {
            "ratio": statistics.median(ratios),
            "ratio_range": [min(ratios), max(ratios)],
            "per_candidate_s": statistics.median(one - other for one, other in both) / candidates,
        }
    return found


def _spread(found: dict[str, Any]) -> str:
    low, high = found["ratio_range"]
    return f"{found['ratio']:.3f} ({low:.3f}–{high:.3f})"


def processor(pairs: int) -> dict[str, Any]:
    """Seconds of processors, with what they compile: in pairs, whose order alternates."""
    taken: dict[str, list[float]] = {"all": [], "none": []}
    cells = 0
    for number in range(pairs):
        for way in ("all", "none") if number % 2 == 0 else ("none", "all"):
            seconds, cells = _worked(way)
            taken[way].append(seconds)
            print(f"{way}: {seconds:.2f} s", file=sys.stderr, flush=True)
    ratios = [one / other for one, other in zip(*taken.values(), strict=True)]
    return {
        "cells": cells,
        "samples_s": taken,
        "load": os.getloadavg()[0],
        **{f"{way}_s": statistics.median(samples) for way, samples in taken.items()},
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
    }


def _worked(way: str) -> tuple[float, int]:
    """Processor seconds of one run, and how many cells it judged."""
    group = ACCOUNTS / f"portkern-cost-{os.getpid()}"
    group.mkdir()
    try:
        with tempfile.TemporaryDirectory() as folder:
            environment = {"PORTKERN_CACHE_DIR": f"{folder}/cache", "PORTKERN_CONTAINMENT": way}
            join = f"open('{group}/cgroup.procs', 'w').write('0'); "
            _timed(
                [sys.executable, "-c", join + RUN, *VERDICTS, f"reports={folder}", "run=cost"],
                environment,
                codes=(0, 1),
            )
            lines = (Path(folder) / "cost" / "records.jsonl").read_text().splitlines()
        return int((group / "cpuacct.usage").read_text()) / 1e9, len(lines)
    finally:
        group.rmdir()


def _matrix(way: str, earlier: str) -> tuple[float, int]:
    """Seconds, and how many kernels were evaluated."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PORTKERN_CACHE_DIR": f"{folder}/cache"}
        environment |= (
            {"PYTHONPATH": earlier}
            if way == "earlier"
            else {"PORTKERN_CONTAINMENT": "none" if way == "none" else "all"}
        )
        argv = [sys.executable, "-c", RUN, *MATRIX, f"reports={folder}", "run=cost"]
        argv += ["budget_s=0"] if way in ("rounds", "theirs") else []
        if way == "theirs":
            argv += [f"kernels={earlier}/portkern/backends/cpu/kernels", "tuned=false"]
        seconds, _ = _timed(argv, environment, codes=(0, 1))
        lines = (Path(folder) / "cost" / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    confined = {record["environment"].get("containment", "") for record in records} - {""}
    if way != "earlier" and ("none" in confined) != (way == "none"):
        raise SystemExit(f"PORTKERN_CONTAINMENT={way} ran under {confined}")
    evaluated = [one for one in records if one["verdict"] not in ("unsupported", "unavailable")]
    return seconds, len({(one["op"], one["language"]) for one in evaluated})


# ---- from a source to its verdict


def verdicts(backend: str, repeats: int) -> dict[str, float]:
    """Medians: of a new process, its start and imports included; of the same without them; and of
    the next source in that process. The driver keeps what it compiled, so no source comes twice."""
    told: list[dict[str, float]] = []
    for number in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            sources = [_source(backend, Path(folder), f"{number} {which}") for which in range(2)]
            environment = {"PORTKERN_CACHE_DIR": f"{folder}/cache"}
            argv = [sys.executable, __file__, "verdicts", backend, folder, *map(str, sources)]
            seconds, printed = _timed(argv, environment)
            first, second, imports = json.loads(printed.splitlines()[-1])
            told.append(
                {
                    "with_process": seconds - second,
                    "first": first,
                    "next": second,
                    "imports": imports,
                }
            )
    return {name: statistics.median(one[name] for one in told) for name in told[0]}


def _source(backend: str, folder: Path, mark: str) -> Path:
    suffix = ".cpp" if backend == "cpu" else ".cu"
    text = (ROOT / "backends" / backend / "kernels" / f"softmax{suffix}").read_text()
    path = folder / f"softmax {mark}{suffix}"
    path.write_text(f"{text}// {mark} {time.time_ns()}\n")
    return path


def _evaluate_each(backend_name: str, folder: str, *sources: str) -> None:
    """Prints the seconds of each verdict, and of the imports before; runs in the measured
    process."""
    start = time.perf_counter()
    from portkern import ops
    from portkern.cells.selection import default_target
    from portkern.evaluator.trial import TrialOptions
    from portkern.sandbox import session
    from portkern.spec import catalogue, registry
    from portkern.spec.op import Workload
    from portkern.testing import evaluate

    op, backend = ops.load("softmax"), registry.load(backend_name)
    square = Workload(f"{SIDE}x{SIDE}", {"rows": SIDE, "cols": SIDE})
    workloads = list(op.workloads["ci"]) if backend_name == "cpu" else [square]
    seconds = [time.perf_counter() - start]
    for source in sources:
        start = time.perf_counter()
        candidate = catalogue.from_file(Path(source), op=op.name, backend=backend, entry=None)
        results = evaluate(
            candidate,
            op,
            backend,
            default_target(backend),
            workloads,
            folder=Path(folder) / "builds",
            options=TrialOptions(),
        )
        seconds.append(time.perf_counter() - start)
        if not isinstance(results, list) or not all(result.samples for result in results):
            raise SystemExit(f"It did not pass with a time: {results}")
    session.close_servers()
    print(json.dumps([*seconds[1:], seconds[0]]))


# ---- KernelBench


def kernelbench(checkout: Path, repeats: int) -> dict[str, Any]:
    """Medians of its ``eval_kernel_against_ref``: of the call, and of a process that makes it."""
    told: list[dict[str, Any]] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            argv = [sys.executable, __file__, "kernelbench", str(checkout), folder]
            environment = {"TORCH_EXTENSIONS_DIR": f"{folder}/extensions"}
            seconds, printed = _timed(argv, environment)
            told.append(json.loads(printed.splitlines()[-1]) | {"with_process": seconds})
    return told[0] | {
        name: statistics.median(one[name] for one in told) for name in ("call", "with_process")
    }


REFERENCE = f"""\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.randn({SIDE}, {SIDE})]

def get_init_inputs():
    return []
"""
#: ``CUDA`` is the kernel that portkern is timed with; ``MARK`` keeps builds apart.
CUSTOM = """\
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <stdint.h>
#include <cuda_runtime.h>
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
typedef float scalar_t;
KERNEL
torch::Tensor forward(torch::Tensor x) {
    torch::Tensor y = torch::empty_like(x);
    softmax(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1),
            at::cuda::getCurrentCUDAStream());
    return y;
}
'''
built = load_inline(
    name="softmax_MARK", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=CUDA,
    functions=["forward"], extra_cuda_cflags=["-O3"],
)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return built.forward(x)
"""


def _evaluate_theirs(checkout: str, folder: str) -> None:
    """Evaluates by their code; runs in the measured process."""
    sys.modules |= {name: MagicMock() for name in UNUSED}
    sys.path.insert(0, f"{checkout}/src")
    import torch
    from kernelbench.eval import eval_kernel_against_ref

    text = (ROOT / "backends/gpu/kernels/softmax.cu").read_text()
    custom = CUSTOM.replace("KERNEL", text).replace("MARK", str(time.time_ns()))
    major, minor = torch.cuda.get_device_capability()
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"  # one architecture, as for portkern
    start = time.perf_counter()
    result = eval_kernel_against_ref(
        REFERENCE,
        custom,
        measure_performance=True,
        num_correct_trials=CORRECT_TRIALS,
        num_perf_trials=PERF_TRIALS,
        build_dir=folder,
        device=torch.device("cuda:0"),
    )
    seconds = time.perf_counter() - start
    if result is None or not (result.compiled and result.correctness):
        raise SystemExit(f"KernelBench did not accept the kernel: {result}")
    print(
        json.dumps(
            {
                "call": seconds,
                "runtime_ms": float(result.runtime),
                "correct_trials": CORRECT_TRIALS,
                "perf_trials": PERF_TRIALS,
            }
        )
    )


def _timed(
    argv: list[str], environment: dict[str, str], codes: tuple[int, ...] = (0,)
) -> tuple[float, str]:
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        tempfile.TemporaryDirectory() as place,
    ):
        start = time.perf_counter()
        done = subprocess.run(  # where no modules are: an earlier portkern must not find this one's
            argv,
            env=os.environ | environment,
            stdout=out,
            stderr=err,
            check=False,
            cwd=place,
        )
        seconds = time.perf_counter() - start
        texts = [file.read() for file in (out, err) if file.seek(0) == 0]
    if done.returncode not in codes:
        raise SystemExit(f"{argv} exited {done.returncode}:\n{''.join(texts)[-3000:]}")
    return seconds, texts[0]


#: How this file calls itself: each is measured in a process of its own.
MEASURED: dict[str, Callable[..., None]] = {
    "verdicts": _evaluate_each,
    "kernelbench": _evaluate_theirs,
}

if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] in MEASURED:
        MEASURED[sys.argv[1]](*sys.argv[2:])
    else:
        main()
