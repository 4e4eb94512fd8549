"""Ports packages that nobody here chose: drawn by a seed from a stated list, every failure counted.

.venv/bin/python -m benchmarks.port_drawn order [seed=45]
.venv/bin/python -m benchmarks.port_drawn sdists=FOLDER [seed=45] [packages=8] [without=NAME,NAME]
    [at_once=1] [jobs=N] [to=gfx942,gfx1100] [limit_s=300] [timeout_s=60] [work=FOLDER]
    [write=true]
.venv/bin/python -m benchmarks.port_drawn page [seed=45]

``order`` prints the packages in the order of drawing, without those that were looked at before.
FOLDER holds their source distributions as PyPI has them (``unearth --no-binary --download FOLDER
NAME``, which runs no setup.py). The first so many that have a kernel of CUDA are ported, each for
limit_s seconds, so many at once, by so many threads each; one without a source distribution, or
without a kernel in it, is listed with that as its cause, as are those that without= names, for an
earlier draw had them. What lies below a folder ``third_party`` is another library's and is left
out. With write=true the rows go to results/port-drawn-SEED.json after each package; ``page`` puts
what is there into docs/port.md.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import port_table
from benchmarks._script import RESULTS, show_on_page, write
from portkern.port.kernel_port import PROVEN
from portkern.sandbox import session
from portkern.toolchain import host

#: Extensions of PyTorch, and a few other libraries of kernels, which PyPI has as sources. Left out
#: are those that tests, earlier tables or the issue tracker speak of.
POOL = tuple(
    """alias-free-torch auto-gptq autoawq-kernels chamferdist dcnv2 dcnv4 difflogic eetq
    fast-hadamard-transform grouped-gemm implicit inplace-abn lietorch minkowskiengine
    ms-deform-attn natten nerfacc nv-grouped-gemm optimum-quanto pytorch-fast-transformers
    raymarching rwkv simple-knn spatial-correlation-sampler sru torch-cluster
    torch-discounted-cumsum torch-dwn
    torch-harmonics torch-linear-assignment torch-points-kernels torch-ransac3d torch-sparse
    torch-spline-conv torchmd-net torchsort vptq warp-rnnt warpctc-pytorch""".split()
)
#: Another list, for seeds from 47 on, when little of the first was left that nobody had looked at:
#: packages of PyPI that call themselves extensions or kernels of CUDA, none of them looked at.
NEWER = tuple(
    """adtlert beamgrad biwkv4-cuda clic-inference-extensions ctpwa cuda-ext-example
    cuda-float-compress cuda-kernels cuda-moea cugpt cuneb-chenn dbscan-torch deepgpr
    diffusion-policy-accelerated ds-splat fast-attnres fpscan frame-analytics fussim graphgp-cuda
    hypertensor ista-daslab-optimizers-cuda kernel-craft morphottention orionvis pov-shuffle
    pytorch-fft qgemm quant-matmul quartic-bspline-extension ramnet-ops seismicflowcuda serron
    sgemm-bi sparse-delta-memory spikeskip starwave tiny-torch-nevmenko torch-ans torch-hungarian
    torch-lap-cuda torch-lattice torch-llm-kernels torch-ms-deform-attn torch-projectors
    torch-quickfps""".split()
)
#: Fixed before any of them was looked at.
SEED, FIRST_OF_NEWER = 45, 47
#: Looked at since, when causes of an earlier draw were mended, so that no share is told of them.
SEEN = tuple(
    """alias-free-torch auto-gptq autoawq-kernels chamferdist dcnv4 grouped-gemm natten nerfacc
    nv-grouped-gemm pytorch-fast-transformers rwkv torch-cluster torch-discounted-cumsum torch-dwn
    torch-ransac3d warp-rnnt""".split()
)
#: How long a package may go on, beyond its time, with the file that it is in.
_GRACE_S = 10.0
_OTHERS = "third_party"
_DEVICE = ("*.cu", "*.cuh")
_NAMES = (
    *("sdists", "seed", "packages", "without", "at_once", "jobs", "to", "limit_s", "timeout_s"),
    *("work", "write"),
)


@dataclass(frozen=True)
class Draw:
    """The packages that are ported, each with the folder of its sources, and why those between them
    are not."""

    seed: int
    chosen: Mapping[str, Path]
    without: Mapping[str, str]


def main() -> None:
    asked = sys.argv[1:]
    given = dict(word.partition("=")[::2] for word in asked if word not in ("order", "page"))
    if not set(given) <= set(_NAMES) or len({"order", "page", "sdists"} & {*asked, *given}) != 1:
        raise SystemExit(__doc__)
    seed = int(given.get("seed", SEED))
    if "page" in asked:
        known = json.loads(RESULTS.joinpath(f"port-drawn-{seed}.json").read_text("utf-8"))
        table = markdown(known["rows"], known["without"])
        show_on_page(port_table.PAGE, f"benchmarks/port_drawn.py seed={seed}", table)
        return
    pool = pool_of(seed)
    order = [name for name in random.Random(seed).sample(pool, len(pool)) if name not in SEEN]
    if "order" in asked:
        print("\n".join(order))
        return
    draw, rows = drawn(order, seed, given), dict[str, port_table.Row]()
    with ThreadPoolExecutor(int(given.get("at_once", "1"))) as threads:
        ported = {threads.submit(_ported, name, draw.chosen[name], given) for name in draw.chosen}
        for future in as_completed(ported):
            row = future.result()
            rows[row.library] = row
            documents = [port_table.document(rows[name]) for name in draw.chosen if name in rows]
            _tell(documents, draw, given)


def pool_of(seed: int) -> Sequence[str]:
    """The list that a seed draws from."""
    return POOL if seed < FIRST_OF_NEWER else NEWER


def drawn(order: Sequence[str], seed: int, given: Mapping[str, str]) -> Draw:
    """The first packages of this order that have kernels."""
    chosen: dict[str, Path] = {}
    without: dict[str, str] = {}
    sources = _work(given).with_name(f"{_work(given).name}-sources")  # work itself is not read
    for name in order:
        if len(chosen) == int(given.get("packages", "8")):
            break
        if name in given.get("without", "").split(","):
            without[name] = "in an earlier draw"
            continue
        place = _unpacked(Path(given["sdists"]), name, sources / name)
        if isinstance(place, Path):
            chosen[name] = place
        else:
            without[name] = place
    return Draw(seed, chosen, without)


def _work(given: Mapping[str, str]) -> Path:
    return Path(given.get("work", "reports/port-drawn"))


def _ported(name: str, place: Path, given: Mapping[str, str]) -> port_table.Row:
    """One package, by a process of its own, which ends when its time is over: what it has recorded
    by then counts."""
    row = port_table.Row(name, tuple(given.get("to", "gfx942,gfx1100").split(",")))
    began, limit_s = time.monotonic(), float(given.get("limit_s", "300"))
    way = multiprocessing.get_context("spawn")
    reader, writer = way.Pipe(duplex=False)
    process = way.Process(target=_port, args=(row, place, dict(given), began + limit_s, writer))
    process.start()
    writer.close()
    try:
        row = reader.recv() if reader.poll(limit_s + _GRACE_S) else _recorded(row, place, given)
    except EOFError:
        row = _recorded(row, place, given)
        row.failed.append(f"{name}: its process ended before it was done")
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    row.seconds = time.monotonic() - began
    return row


def _port(
    row: port_table.Row, place: Path, given: Mapping[str, str], ends: float, done: Connection
) -> None:
    os.setpgid(0, 0)
    timeout_s, jobs = float(given.get("timeout_s", "60")), int(given.get("jobs", "0"))
    port_table.port(place, place, row, _work(given), ends, (), timeout_s, jobs)
    session.close_servers()
    done.send(row)


def _recorded(row: port_table.Row, place: Path, given: Mapping[str, str]) -> port_table.Row:
    row.kernels = port_table.kernels(place, row)
    for kernel in port_table.recorded(port_table.records_of(place, place, row, _work(given))):
        row.add(kernel)
    return row


def _tell(documents: Sequence[Mapping[str, Any]], draw: Draw, given: Mapping[str, str]) -> None:
    table = markdown(documents, draw.without)
    print(table, flush=True)
    if given.get("write") == "true":
        said = {"host": host.machine(), "seed": draw.seed, "pool": pool_of(draw.seed), "seen": SEEN}
        said |= {"without": draw.without, "rows": documents}
        write(f"port-drawn-{draw.seed}.json", said)


def _unpacked(sdists: Path, name: str, folder: Path) -> Path | str:
    """The package's folder, unpacked where it was before, so that what is known of it is known
    again; else why there is nothing to port in it."""
    called = re.compile(rf"{name.replace('-', '[-_.]')}-[0-9].*\.tar\.gz", re.IGNORECASE)
    archives = sorted(path for path in sdists.rglob("*.tar.gz") if called.fullmatch(path.name))
    if not archives:
        return "no source distribution"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(archives[-1]) as archive:
        members = [m for m in archive.getmembers() if _OTHERS not in Path(m.name).parts]
        archive.extractall(folder, members, filter="data")
    texts = (path.read_text("utf-8", "replace") for end in _DEVICE for path in folder.rglob(end))
    if not any("__global__" in text for text in texts):
        return "no kernel of its own in it"
    return next(path for path in folder.iterdir() if path.is_dir())


def markdown(rows: Sequence[Mapping[str, Any]], without: Mapping[str, str]) -> str:
    """The table, the sum over all of its kernels, and the causes of all that are not good."""
    return "\n".join([*_lines(rows), "", *_causes(rows, without), ""])


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    kernels, examined = (sum(row[name] for row in rows) for name in ("kernels", "examined"))
    proven = sum(row["outcomes"].get(PROVEN, 0) for row in rows)
    good = sum(row["proven_and_built"] for row in rows)
    yield (
        f"{len(rows)} packages, {kernels} kernels: {examined} examined, {proven} proven, "
        f"{good} proven and built for all targets."
    )
    yield ""
    head = ["package", "kernels", "examined", "built for all", "proven and built"]
    head += ["proven", *port_table.OUTCOMES[1:]]
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        cells = [row["library"], row["kernels"], row["examined"], row["built_everywhere"]]
        cells += [row["proven_and_built"]]
        cells += [row["outcomes"].get(outcome, 0) for outcome in port_table.OUTCOMES]
        yield "| " + " | ".join(map(str, cells)) + " |"


def _causes(rows: Sequence[Mapping[str, Any]], without: Mapping[str, str]) -> Iterator[str]:
    causes: Counter[str] = Counter()
    for row in rows:
        causes.update(row["reasons"])
    left = sum(row["kernels"] - row["examined"] for row in rows)
    if left:
        yield f"- {left} × not examined when the package's time was over"
    yield from (f"- {count} × {why}" for why, count in causes.most_common())
    yield from (f"- {line}" for row in rows for line in row["failed"])
    yield from (f"- {name}: drawn, {why}" for name, why in without.items())


if __name__ == "__main__":
    main()
