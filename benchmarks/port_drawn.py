"""Ports packages that nobody here chose: drawn by a seed from a stated list, every failure counted.

.venv/bin/python -m benchmarks.port_drawn order
.venv/bin/python -m benchmarks.port_drawn sdists=FOLDER [packages=8] [to=gfx942,gfx1100]
    [limit_s=300] [timeout_s=60] [work=FOLDER] [write=true] [page=true]

``order`` prints the packages in the order of drawing. FOLDER holds their source distributions as
PyPI has them (``unearth --no-binary --download FOLDER NAME``, which runs no setup.py). The first so
many that have a kernel of CUDA are ported, each for limit_s seconds; one without a source
distribution, or without a kernel in it, is listed with that as its cause. What lies below a folder
``third_party`` is another library's and is left out. With write=true the rows go to
results/port-drawn.json, with page=true also to docs/port.md.
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import port_table
from benchmarks._script import show_on_page, write
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
#: Fixed before any of them was looked at.
SEED = 45
_OTHERS = "third_party"
_DEVICE = ("*.cu", "*.cuh")
_NAMES = ("sdists", "packages", "to", "limit_s", "timeout_s", "work", "write", "page")


def main() -> None:
    drawn = random.Random(SEED).sample(POOL, len(POOL))
    if sys.argv[1:] == ["order"]:
        print("\n".join(drawn))
        return
    given = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if not set(given) <= set(_NAMES) or "sdists" not in given:
        raise SystemExit(__doc__)
    rows, without = _ported(drawn, given)
    session.close_servers()
    documents = [port_table.document(row) for row in rows]
    table = markdown(documents, without)
    print(table)
    if given.get("write") == "true":
        said = {"host": host.machine(), "seed": SEED, "pool": POOL, "without": without}
        write("port-drawn.json", said | {"rows": documents})
        if given.get("page") == "true":
            show_on_page(port_table.PAGE, "benchmarks/port_drawn.py", table)


def _ported(
    drawn: Sequence[str], given: Mapping[str, str]
) -> tuple[list[port_table.Row], dict[str, str]]:
    """A row for each of the first packages that have kernels, and why those between have none."""
    rows: list[port_table.Row] = []
    without: dict[str, str] = {}
    work = Path(given.get("work", "reports/port-drawn"))
    sources = work.with_name(f"{work.name}-sources")  # what lies in work itself is not read
    names = tuple(given.get("to", "gfx942,gfx1100").split(","))
    for name in drawn:
        if len(rows) == int(given.get("packages", "8")):
            break
        place = _unpacked(Path(given["sdists"]), name, sources / name)
        if isinstance(place, str):
            without[name] = place
            continue
        row, began = port_table.Row(name, names), time.monotonic()
        ends, timeout_s = began + float(given.get("limit_s", "300")), given.get("timeout_s", "60")
        port_table.port(place, place, row, work, ends, (), float(timeout_s))
        row.seconds = time.monotonic() - began
        rows.append(row)
    return rows, without


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
