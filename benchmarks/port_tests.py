"""Runs the own tests of public extensions of PyTorch, and of libraries of Triton, on their ports,
with counts.

.venv/bin/python -m benchmarks.port_tests list
.venv/bin/python -m benchmarks.port_tests checkouts=FOLDER [only=NAME,NAME] [at_once=1] [jobs=N]
    [to=gfx942,gfx1100] [limit_s=900] [timeout_s=300] [work=FOLDER] [write=true]
.venv/bin/python -m benchmarks.port_tests page

``list`` prints each library with its repository, the commit that was measured and its tests. FOLDER
has a checkout of each by its name. Each is ported by ``portkern port NAME tests=…``, for limit_s
seconds, so many at once; what its report says is counted: tests collected, passing in the original
and in the port, launches recorded, kernels proven, kernels built. With write=true the rows go to
results/port-tests.json, and ``page`` puts them into docs/port.md. Nothing of a library is kept.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import port_table
from benchmarks._script import RESULTS, show_on_page, words, write
from portkern.port.kernel_port import PROVEN
from portkern.toolchain import host

_NAMES = ("checkouts", "only", "at_once", "jobs", "to", "limit_s", "timeout_s", "work", "write")
_FROM_TESTS = "recorded from pytest"
#: What a report says of the tests of a library.
_COUNTED = re.compile(
    r": (?P<original>\d+) of (?P<tests>\d+) tests pass in (?:the original, (?P<port>\d+) of these "
    r"in the port|Triton's interpreter as on NVIDIA's GPU); (?P<launches>\d+) launches of "
    r"(?P<classes>\d+) instances"
)


@dataclass(frozen=True)
class Extension:
    """A public library: ``folder`` is that of its setup.py, ``tests`` are those that end within a
    few minutes in the executor, by their own names."""

    name: str
    repository: str
    commit: str
    tests: str
    folder: str = "."


#: Libraries of Triton: ``random.Random(48).sample(sorted(names), 6)`` of 16 that were listed
#: before any of them was looked at: BobMcDear/attorch, linkedin/Liger-Kernel,
#: fla-org/flash-linear-attention,
#: FlagOpen/FlagGems, unslothai/unsloth, triton-lang/triton, facebookresearch/xformers,
#: OpenNLPLab/lightning-attention, kakaobrain/trident, mobiusml/gemlite, ELS-RD/kernl,
#: databricks/stk, shawntan/scattermoe, stackav-oss/conch, meta-pytorch/applied-ai and
#: fla-org/native-sparse-attention. Of stk no copy was to be had; gemlite has no tests of its own.
TRITON = (
    Extension(
        "applied-ai",
        "github.com/meta-pytorch/applied-ai",
        "2391954b19988bd76cf3c2ea84c1ce74b68d568b",
        "pytest tests",
        "tutorials/triton",
    ),
    Extension(
        "FlagGems",
        "github.com/FlagOpen/FlagGems",
        "532ff438c70343d7aec9becdabb76a71225a0553",
        "pytest tests/test_norm_ops.py tests/test_unary_pointwise_ops.py "
        "tests/test_reduction_ops.py --mode quick --ref cpu",
    ),
    Extension(
        "trident",
        "github.com/kakaobrain/trident",
        "6c429c6b1a2d33711d964a9d643c2b4b1610afdf",
        "pytest tests",
    ),
    Extension(
        "conch",
        "github.com/stackav-oss/conch",
        "e2c5ecfe341574114fef0218dedb1dd0da1e71f2",
        "pytest tests",
    ),
)
EXTENSIONS = (
    Extension(
        "pytorch_scatter",
        "github.com/rusty1s/pytorch_scatter",
        "648dda3cf964731ffb4de11eafc445a83133eda4",
        "pytest test/test_scatter.py test/test_segment.py test/test_gather.py "
        "test/test_zero_tensors.py",
    ),
    Extension(
        "causal-conv1d",
        "github.com/Dao-AILab/causal-conv1d",
        "0d2252d161f25f7907bbd05985c08ab98d255874",
        "pytest tests/test_causal_conv1d.py -k '64-129-4-True-True or 64-16-3-False-False "
        "or 64-8-2-True-True or 2048-3-1-False-True-True'",
    ),
    Extension(
        "mamba",
        "github.com/state-spaces/mamba",
        "e9594ce1c732d97440f0332fdc43170a2294dbfa",
        "pytest tests/ops/test_selective_scan.py -k '128-'",
    ),
    Extension(
        "fast-hadamard-transform",
        "github.com/Dao-AILab/fast-hadamard-transform",
        "e7706faf8d1c3b9f241e36860640ad1dac644ede",
        "pytest tests/test_fast_hadamard_transform.py -k 'not 2048 and not 4096 and not 8192 "
        "and not 16384 and not 32768'",
    ),
    Extension(
        "warp-rnnt",
        "github.com/1ytic/warp-rnnt",
        "66dfe053f236d86320c09cd5d1238828cc78b8fa",
        "pytest warp_rnnt/test.py",
        "pytorch_binding",
    ),
    Extension(
        "pytorch_cluster",
        "github.com/rusty1s/pytorch_cluster",
        "3d1d9e3967c77c757a68d8aad37d0171e93018e2",
        "pytest test -k 'not large'",
    ),
    Extension(
        "pytorch_spline_conv",
        "github.com/rusty1s/pytorch_spline_conv",
        "050f58a430e41f6beda90fe9ea5a348c0b8831a7",
        "pytest test",
    ),
    Extension(
        "torch-discounted-cumsum",
        "github.com/toshas/torch-discounted-cumsum",
        "43e94d1475d62ded4dcb60001c98c10cee63c6c4",
        "pytest tests/test.py -k 'not speed'",
    ),
    *TRITON,
)


def main() -> None:
    if sys.argv[1:] == ["list"]:
        for one in EXTENSIONS:
            print(f"{one.name}: {one.repository} {one.commit}\n    {one.folder}: {one.tests}")
        return
    if sys.argv[1:] == ["page"]:
        known = json.loads(RESULTS.joinpath("port-tests.json").read_text("utf-8"))
        show_on_page(port_table.PAGE, "benchmarks/port_tests.py", markdown(known["rows"]))
        return
    given = words(_NAMES, __doc__, ["checkouts"])
    only = given.get("only", "").split(",") if given.get("only") else [e.name for e in EXTENSIONS]
    asked = [one for one in EXTENSIONS if one.name in only]
    rows = _before([one.name for one in asked])
    with ThreadPoolExecutor(int(given.get("at_once", "1"))) as threads:
        for future in as_completed(threads.submit(_ported, one, given) for one in asked):
            row = future.result()
            rows[str(row["name"])] = row
            known = [rows[one.name] for one in EXTENSIONS if one.name in rows]
            print(markdown(known), flush=True)
            if given.get("write") == "true":
                write("port-tests.json", {"host": host.machine(), "rows": known})


def _before(asked: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The rows of libraries that are not asked for, which an earlier run has left."""
    file = RESULTS / "port-tests.json"
    known = json.loads(file.read_text("utf-8"))["rows"] if file.is_file() else []
    return {row["name"]: row for row in known if row["name"] not in asked}


def _ported(one: Extension, given: Mapping[str, str]) -> dict[str, Any]:
    """One library's row, of what its report has when its time is over."""
    place = Path(given["checkouts"]) / one.name
    run = Path(given.get("work", "reports/port-tests")).absolute() / one.name
    row: dict[str, Any] = {"name": one.name, "repository": one.repository, "commit": _commit(place)}
    row |= {"tests": one.tests, "targets": given.get("to", "gfx942,gfx1100").split(",")}
    began = time.monotonic()
    try:
        subprocess.run(_command(one, place, run, given), timeout=float(given.get("limit_s", "900")))
    except subprocess.TimeoutExpired:
        row["late"] = True
    row["seconds"] = round(time.monotonic() - began)
    return row | _counted(run)


def _command(one: Extension, place: Path, run: Path, given: Mapping[str, str]) -> list[str]:
    asked = [f"to={given.get('to', 'gfx942,gfx1100')}", f"tests={one.tests}", f"run={run.name}"]
    asked += [f"reports={run.parent}", f"timeout_s={given.get('timeout_s', '300')}"]
    asked += [f"jobs={given['jobs']}"] if "jobs" in given else []
    return [shutil.which("portkern") or "portkern", "port", str(place / one.folder), *asked]


def _commit(place: Path) -> str:
    said = subprocess.run(
        ["git", "-C", str(place), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    return said.stdout.strip()


def _counted(run: Path) -> dict[str, Any]:
    """The counts of a report and of what is recorded, which is there also of one that is late."""
    row: dict[str, Any] = {"counts": {}, "unused": []}
    told = [run / "tests-triton.txt", run / "tests.txt"]
    if told := [file for file in told if file.is_file()]:
        lines = told[0].read_text("utf-8").splitlines()
        found = next(filter(None, map(_COUNTED.search, lines)), None)
        row["counts"] = {k: int(v) for k, v in found.groupdict().items() if v} if found else {}
        row["unused"] = [line[:300] for line in (lines[1:] if found else lines)][:12]
    kernels = port_table.recorded(run)
    of_tests = [k for k in kernels if any(_FROM_TESTS in p.proof.inputs for p in k.ports)]
    row |= {"kernels": len(kernels), "launched": len(of_tests)}
    row |= {"proven": sum(k.outcome == PROVEN for k in of_tests)}
    row |= {"good": sum(k.outcome == PROVEN and k.built for k in of_tests)}
    causes = Counter(
        f"{k.outcome}: {port_table.reason(k.why)}" for k in of_tests if not (k.good and k.built)
    )
    return row | {"causes": dict(causes.most_common())}


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join([*_lines(rows), "", *_causes(rows), ""])


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield (
        "| library | tests | pass in the original | of these in the port | launches | instances "
        "and shapes | kernels | launched | proven | proven and built |"
    )
    yield "|" + "---|" * 10
    for row in rows:
        counts = row["counts"]
        cells = [row["name"], *(counts.get(k, "–") for k in _COLUMNS)]
        cells += [row.get(k, "–") for k in ("kernels", "launched", "proven", "good")]
        yield "| " + " | ".join(map(str, cells)) + " |"


def _causes(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        late = " (its time was over)" if row.get("late") else ""
        yield f"- {row['name']} at {row['commit'][:12]}, `{row['tests']}`{late}"
        yield from (f"    - {line}" for line in row["unused"])
        yield from (f"    - {count} × {why}" for why, count in row["causes"].items())


_COLUMNS = ("tests", "original", "port", "launches", "classes")

if __name__ == "__main__":
    main()
