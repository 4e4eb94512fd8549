"""Every operator on shapes that nobody tuned for: draws them from a seed, races our kernels with
the framework, prints a table and writes results/grid-<target>.json.

.venv/bin/python -m benchmarks.grid target=gpu|cpu seed=N|commit [ops=NAME,NAME] [count=6]
    [backends=cuda,triton] [dtypes=float32,bfloat16] [kinds=odd,power,model] [folder=FOLDER]
    [minutes=N] [out=NAME.json]

Shapes, by turns: of odd lengths, of powers of two, with lengths that layers of published models
have; a third of each where count is a multiple of three, and odd ones alone where it is 1. With
kinds=layers they are those of layers of the models in `benchmarks/models.py`, tokens and images
log-uniform, and are named after the model. Of the others, the
largest tensor has 10³ to 2·10⁸ elements, log-uniform; the ratio of each two lengths is log-uniform
from 1:10⁷ to 10⁷:1, as far as the lengths allow. Shapes whose arithmetic would take longer than
`WORK` allows are drawn again. Seeds 0 to 9 are for development; the committed result is of
`seed=commit`, taken from the hash of the commit that the kernels are in.

A cell is one run: all backends, eager and torch.compile in turns, on the same inputs, and the
kernels of `benchmarks/peers.py` where they are installed. Its ratio is the better of the two
baselines' time over the kernel's; peers have a ratio of their own. The host's time is in none of
them: it enqueues a call while the GPU still reads what flushes its cache. With folder= the records
stay there, and a run that was cut off, or that minutes= ended, goes on.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks import _script, grid_shapes, peers
from portkern import ops
from portkern.cells.run import Matrix
from portkern.cells.selection import SelectedCell, host_targets
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.records.record import Record, RecordFile
from portkern.sandbox import session
from portkern.spec import catalogue, registry, target
from portkern.spec.op import Workload
from portkern.spec.target import Target
from portkern.toolchain.run_tool import cache_root
from portkern.tuning import database

BASELINES = ("eager", "compile")
#: The order of columns; a backend may have several languages.
BACKENDS = {"gpu": ("cuda", "triton", "hip", "opencl", "pallas"), "cpu": ("cpu", "opencl")}
SET = "heldout"
SEED_DIGITS = 8  # of the commit's hash
#: Operators and dtypes that are loaded and checked side by side, with a workload of each.
AT_ONCE = 4
#: A cell that a busy machine made uncertain is noisy, and not waited for.
PLAN = TimingPlan(rounds=5, budget_s=0.2, patient=False)


@dataclass(frozen=True)
class Grid:
    """The cells that are asked for; ``until`` is the time after which no further operator is
    begun."""

    where: Target
    seed: int
    count: int
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    backends: tuple[str, ...]
    kinds: tuple[grid_shapes.Kind, ...]
    until: float

    def workloads(self, op: str, dtype: str) -> list[Workload]:
        """The same for all backends, and for an operator whatever others are asked for."""
        stream = np.random.default_rng([self.seed, *op.encode(), *dtype.encode()])
        return grid_shapes.draw(op, self.count, stream, gpu=self.where.is_gpu, kinds=self.kinds)

    def cells(self, name: str, dtype: str) -> Iterator[SelectedCell]:
        own = ops.load(name)
        drawn = self.workloads(name, dtype)
        op = replace(own, workloads={**own.workloads, SET: tuple(drawn)})
        for backend in map(registry.load, self.backends):
            where = self._target(backend.name)
            for kernel in catalogue.candidates(name, backend):
                for workload in drawn:
                    known = (database.own(), database.shipped())
                    tuned = database.with_tuned_knobs(kernel, where, dtype, workload, known)
                    yield SelectedCell(op, SET, workload, dtype, backend, where, tuned)

    def _target(self, backend: str) -> Target:
        on_cpu = backend == "opencl" and not self.where.is_gpu
        return target.load("opencl_generic") if on_cpu else self.where


def main() -> None:
    known = {"target", "seed", "ops", "count", "backends", "dtypes", "kinds"}
    known |= {"folder", "minutes", "out"}
    words = _script.words(known, __doc__, needed={"target", "seed"})
    grid = asked(words)
    kept = Path(words["folder"]) if "folder" in words else None
    with tempfile.TemporaryDirectory() if kept is None else nullcontext(str(kept)) as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        records: list[Record] = []
        for made in run(grid, Path(folder)):
            records += made
            write(grid, records, words.get("out", f"grid-{grid.where.name}.json"))
    session.close_servers()
    print(table(list(summaries(records))))


def write(grid: Grid, records: Sequence[Record], name: str) -> None:
    """Writes the results so far, which survive if the rest should fail."""
    rows = list(summaries(records))
    document = {
        "seed": grid.seed,
        "command": f"python -m benchmarks.grid {' '.join(sys.argv[1:])}",
        "target": grid.where.name,
        "machine": _script.provenance(records),
        "summary": goals(rows),
        "cells": rows,
    }
    _script.write(name, document)


def asked(words: Mapping[str, str]) -> Grid:
    want_gpu = words["target"] == "gpu"
    here = [target.load(name) for name in host_targets()]
    where = next((known for known in here if known.is_gpu == want_gpu), None)
    if where is None:
        raise SystemExit(f"grid: got target={words['target']}, and there is none of it here")
    backends = words["backends"].split(",") if "backends" in words else BACKENDS[words["target"]]
    return Grid(
        where,
        seed_of(words["seed"]),
        int(words.get("count", "6")),
        tuple(words["ops"].split(",") if "ops" in words else grid_shapes.RULES),
        tuple(words.get("dtypes", "float32,bfloat16").split(",")),
        tuple(backends),
        _kinds(words.get("kinds", ",".join(grid_shapes.KINDS))),
        time.monotonic() + 60 * float(words.get("minutes", "inf")),
    )


def _kinds(words: str) -> tuple[grid_shapes.Kind, ...]:
    valid = get_args(grid_shapes.Kind)
    if unknown := [word for word in words.split(",") if word not in valid]:
        raise SystemExit(f"grid: got kinds={','.join(unknown)}; expected {', '.join(valid)}")
    return tuple(words.split(","))  # type: ignore[arg-type]


def seed_of(word: str) -> int:
    if word != "commit":
        return int(word)
    told = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        check=True,
        capture_output=True,
        text=True,
        cwd=_script.RESULTS,
    )
    return int(told.stdout[:SEED_DIGITS], 16)


def run(grid: Grid, folder: Path) -> Iterator[list[Record]]:
    """The records of operators and dtypes that could be begun until the time was over. Some of them
    load and are checked side by side; each is timed by itself."""
    cache = ArtifactCache(cache_root() / "builds")
    asked = [(name, dtype) for name in grid.ops for dtype in grid.dtypes]
    cells = {each: [cell for cell in grid.cells(*each) if not cell.ruled_out] for each in asked}
    everything = list(chain.from_iterable(cells.values()))
    Matrix(everything, "grid", RecordFile(folder / "built.jsonl"), cache, _options()).build_ahead()
    for name, few in _side_by_side(asked):
        if time.monotonic() > grid.until:
            print(f"grid: the time is over before {few[0][0]} {few[0][1]}", file=sys.stderr)
            return
        begun = time.monotonic()
        some = [cell for each in few for cell in cells[each]]
        file = RecordFile(folder / f"{'-'.join(chain.from_iterable(few))}.jsonl")
        yield Matrix(some, "grid", file, cache, _options(name)).execute()
        what = ", ".join(f"{op} {dtype}" for op, dtype in few)
        took = f"{len(some)} cells in {time.monotonic() - begun:.0f} s"
        print(f"grid: {what}: {took}", file=sys.stderr, flush=True)


def _side_by_side(
    asked: Sequence[tuple[str, str]],
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Up to :data:`AT_ONCE` operators and dtypes of the same peers, and whose peers: an operator's,
    where it has any of its own."""
    having = [(name if peers.installed(name) else "", (name, dtype)) for name, dtype in asked]
    for peer_of, those in groupby(having, key=lambda each: each[0]):
        same = [each for _, each in those]
        for start in range(0, len(same), AT_ONCE):
            yield peer_of, same[start : start + AT_ONCE]


def _options(op: str = "") -> TrialOptions:
    others = peers.installed(op)
    names = (*BASELINES, *others)
    return TrialOptions(plan=PLAN, baselines=names, distributions=("normal",), others=others)


# ---- what comes out


def summaries(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """One for each operator, dtype and shape; times in microseconds."""
    found: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        found[record.op, record.workload.dtype, record.workload.name].append(record)
    for (op, dtype, name), those in found.items():
        timed = {label(record): record for record in those if record.timing}
        ours = {who: one.timing.median_us for who, one in timed.items() if one.timing}
        theirs = {
            name: statistic
            for name in (*BASELINES, *peers.PEERS)
            if (
                statistic := _median(
                    [r.baselines[name].median_us for r in timed.values() if name in r.baselines]
                )
            )
        }
        best = min((theirs[name] for name in BASELINES if name in theirs), default=None)
        yield {
            "op": op,
            "dtype": dtype,
            "shape": name,
            "dims": dict(those[0].workload.dims),
            "us": ours,
            "baselines_us": theirs,
            "ratios": {who: best / us for who, us in ours.items()} if best else {},
            "noisy": [who for who, one in timed.items() if not one.comparable],
            "not_timed": {
                label(record): f"{record.verdict}: {record.detail.partition(chr(10))[0]}"
                for record in those
                if not record.timing
            },
        }


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def label(record: Record) -> str:
    return record.backend if record.backend != "cpu" else record.language


def best_of(row: Mapping[str, Any]) -> float | None:
    return max(row["ratios"].values(), default=None)


def mean(ratios: Sequence[float]) -> float | None:
    """Geometric."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def goals(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians and shares of the goals that are met: by the best backend of each cell, and by each
    alone."""
    best = [ratio for row in rows if (ratio := best_of(row)) is not None]
    named = sorted({who for row in rows for who in row["ratios"]})
    alone = {who: [row["ratios"][who] for row in rows if who in row["ratios"]] for who in named}
    return {
        "best": _spread(best),
        **{who: _spread(ratios) for who, ratios in alone.items()},
        **{
            f"best over {peer}": _spread(over)
            for peer in peers.PEERS
            if (over := _over(peer, rows))
        },
    }


def _over(peer: str, rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """How many times as fast as a peer's kernel the best of ours is."""
    both = [(row["baselines_us"].get(peer), min(row["us"].values(), default=None)) for row in rows]
    return [theirs / ours for theirs, ours in both if theirs and ours]


def _spread(ratios: Sequence[float]) -> dict[str, Any]:
    return {
        "cells": len(ratios),
        "mean": mean(ratios),
        "below_1": sum(ratio < 1 for ratio in ratios),
        "below_0.9": sum(ratio < 0.9 for ratio in ratios),
        "below_0.7": sum(ratio < 0.7 for ratio in ratios),
        "worst": min(ratios, default=None),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table in Markdown: for each operator the geometric mean of the best and of each
    backend."""
    named = sorted({who for row in rows for who in row["ratios"]})
    heads = ["op", "cells", "best", "< 0.9", "< 0.7", "worst", *named]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    names = list(dict.fromkeys(row["op"] for row in rows))
    for name in [*names, "all"]:
        those = [row for row in rows if name in (row["op"], "all")]
        summary = goals(those)
        best = summary["best"]
        cells = [name, str(best["cells"]), _two(best["mean"]), str(best["below_0.9"])]
        cells += [str(best["below_0.7"]), _two(best["worst"])]
        cells += [_two(summary[who]["mean"]) if who in summary else "" for who in named]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
