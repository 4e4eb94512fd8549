"""llm.c's kernels and their ports on elements of a ring, and mutants that lack a term.

    python benchmarks/port_algebra.py llmc=CHECKOUT [seed=45] [mutants=2] [programs=NAME,…]
        [work=FOLDER] [limit_s=3000] [run_s=60] [revision=COMMIT] [page=true]

CHECKOUT is a copy of llm.c, at ``revision`` where it is not a git folder. Each program of its
dev/cuda is run at small sizes of its main(), those of benchmarks/real/llmc.py, its translation to
HIP beside it for gfx942, with each of the numbers of its kernels. For each kernel the table counts
what algebra says of its port. Then, of each function of the translated programs, at most
``mutants`` copies that lack one term of a sum, one factor or one accumulation, drawn by the seed,
are run beside the original: each that came to its place must be found to be another formula.
With page=true the tables go to docs/port.md.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import _script
from real.dropped_terms import REACHED, Mutant, mutated
from real.llmc import PROGRAMS, Program, resized
from real.running import commit

from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.port import library
from portkern.port.proof import algebra
from portkern.port.proof.compare import Types
from portkern.port.proof.examine import ORDERS
from portkern.port.proof.outcome import Algebra, ByAlgebra, ProofLimits, ProofSource
from portkern.port.proof.recording import LaunchRecord
from portkern.port.proof.runs import Program as Built
from portkern.port.proof.runs import ProgramNotBuilt, ProgramRun, Runs, Wanted
from portkern.port.proof.texts import SourceTexts
from portkern.port.request import PortRequest
from portkern.port.translated import translated
from portkern.simt.execute.ring import Ring
from portkern.spec import target as targets
from portkern.toolchain import host

PAGE = Path(__file__).parents[1] / "docs" / "port.md"
RESULT, TABLE = "port-algebra.json", "benchmarks/port_algebra.py"
VENDOR, TARGET = "sm_90", "gfx942"
#: Sizes at which types of 16 bits have keys for all values, where other studies have larger ones.
_SMALL = {
    "classifier_fused-1-2-3-4-5": {"B": 1, "T": 8, "V": 257},
    "fused_residual_forward-1-2-3-4-5-6": {"B": 1, "T": 8, "C": 256},
    "layernorm_backward-2-3-4-5-6-7-10": {"B": 1, "T": 8, "C": 128},
    "layernorm_backward-8-9": {"B": 1, "T": 4, "C": 512},
    "attention_backward-1-2-3-4-5-6-7-8": {"B": 1, "T": 32, "C": 16, "NH": 1},
    "matmul_backward_bias-1-2-3-4-7-8": {"B": 1, "T": 8, "C": 64, "OC": 768},
}
_WORST = (ByAlgebra.DIFFERENT, ByAlgebra.UNKNOWN, ByAlgebra.EQUAL)


@dataclass
class Found:
    """The results of a program: for each kernel what algebra says, and for each mutant whether it
    was ``found``, or ``not reached``, ``not told`` (with why), ``missed``."""

    program: str
    kernels: dict[str, str] = field(default_factory=dict)
    mutants: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    seconds: float = 0.0


@dataclass
class Study:
    source: Path
    work: Path
    seed: int
    most: int
    limits: ProofLimits
    ends: float

    def of(self, program: Program) -> Found:
        begin = time.monotonic()
        found = Found(program.key)
        try:
            self._run(program, found)
        except Exception as error:  # noqa: BLE001 - a row for each program
            found.problem = found.problem or f"{type(error).__name__}: {error}"[:300]
        found.seconds = round(time.monotonic() - begin, 1)
        print(_line(found), flush=True)
        return found

    def _run(self, program: Program, found: Found) -> None:
        folder = self.work / program.key
        source, port, changed, mutants = self._texts(program, folder)
        with JailedCompilers(source.view.joined(port.view).joined(changed.view)) as compilers:
            with Runs(folder / "build", source.path.parent, self.limits, compilers) as runs:
                vendor, target = targets.load(VENDOR), targets.load(TARGET)
                built = runs.build_all(
                    [
                        Wanted(source, vendor, "ring", "original"),
                        Wanted(port, target, "ring", "port"),
                        Wanted(changed, target, "ring", "mutants"),
                    ]
                )
                original, ported, mutated_ = built
                for name, one in zip(("original", "port"), built[:2], strict=True):
                    if isinstance(one, ProgramNotBuilt):
                        found.problem = f"{name}: {one.reason}"
                        return
                assert isinstance(original, Built)
                assert isinstance(ported, Built)
                texts = SourceTexts(source), SourceTexts(port)
                types = Types(
                    (*texts[1].own.kernels, *texts[0].own.kernels),
                    {**texts[1].aliases, **texts[0].aliases},
                )
                ring = Ring.drawn()
                firsts: dict[int, ProgramRun] = {}
                for kernel in program.kernels:
                    first = runs.run(original, arguments=[str(kernel)], ring=ring)
                    firsts[kernel] = first
                    said = _judged(ring, first, runs, original, ported, str(kernel), types)
                    for name, one in said.items():
                        _note(found.kernels, name, one)
                if isinstance(mutated_, ProgramNotBuilt):
                    found.problem = f"mutants: {mutated_.reason}"
                    return
                for mutant in mutants:
                    if time.monotonic() > self.ends:
                        found.problem = "the time was over before all mutants were run"
                        return
                    found.mutants.append(
                        asdict(mutant) | _of_mutant(ring, firsts, runs, mutated_, mutant, types)
                    )

    def _texts(
        self, program: Program, folder: Path
    ) -> tuple[ProofSource, ProofSource, ProofSource, Sequence[Mutant]]:
        """The original, its port, and the port with its mutants, written below the folder."""
        name = f"{program.file}.cu"
        text = (self.source / name).read_text(encoding="utf-8")
        sizes = _SMALL.get(program.key, program.sizes("check"))
        original = folder / "original"
        original.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        (original / name).write_text(resized(text, sizes, program.float32))
        for header in self.source.glob("*.h"):
            (original / header.name).write_text(header.read_text())
        request = PortRequest(
            original, "hip", (targets.load(TARGET),), folder / "no-tree", build=False
        )
        places = {kind: folder / kind for kind in ("port", "mutants")}
        mutants: Sequence[Mutant] = ()
        for place in places.values():
            place.mkdir(exist_ok=True)
        for file in translated(library.read(original), request):
            content = file.ported.after
            (places["port"] / file.name).write_bytes(content)
            if file.name == name:
                changed, mutants = mutated(content.decode(), self.seed, self.most)
                content = changed.encode()
            (places["mutants"] / file.name).write_bytes(content)
        return (
            ProofSource(original / name, "cuda", whole=(original,)),
            ProofSource(places["port"] / name, "hip", whole=(places["port"],)),
            ProofSource(places["mutants"] / name, "hip", whole=(places["mutants"],)),
            mutants,
        )


def _judged(
    ring: Ring,
    first: ProgramRun,
    runs: Runs,
    original: Built,
    port: Built,
    kernel: str,
    types: Types,
) -> Mapping[str, Algebra]:
    run = runs.run(port, arguments=[kernel], ring=ring)
    problem = "the run did not end in time" if run.is_late or first.is_late else ""
    ported = [algebra.RingRun(TARGET, run.launches, problem)]

    def others() -> Sequence[Sequence[LaunchRecord]]:
        return [
            runs.run(original, order=order, seed=seed, arguments=[kernel], ring=ring).launches
            for order, seed in ORDERS
        ]

    return algebra.judged(ring, first.launches, others, ported, types)


def _of_mutant(
    ring: Ring,
    firsts: Mapping[int, ProgramRun],
    runs: Runs,
    program: Built,
    mutant: Mutant,
    types: Types,
) -> dict[str, str]:
    """Whether one of the runs that come to the mutant's place shows another formula."""
    status, why = "not reached", ""
    for kernel, first in firsts.items():
        names = {launch.name for launch in first.launches}
        if mutant.is_kernel and mutant.function not in names:
            continue
        run = runs.run(program, arguments=[str(kernel), str(mutant.number)], ring=ring)
        if REACHED not in run.outcome.output and run.outcome.status is not None:
            continue
        runs_ = [algebra.RingRun(TARGET, run.launches)]
        said = algebra.judged(ring, first.launches, tuple, runs_, types)
        worst = min(said.values(), key=lambda one: _WORST.index(one.verdict))
        if worst.verdict is ByAlgebra.DIFFERENT:
            return {"status": "found", "why": ""}
        if worst.verdict is ByAlgebra.UNKNOWN:
            status, why = "not told", worst.why
        elif status == "not reached":
            status, why = "missed", ""
    return {"status": status, "why": why}


def _note(kernels: dict[str, str], name: str, said: Algebra) -> None:
    """A kernel has the worst of what its launches show."""
    before = kernels.get(name)
    rank = [verdict for verdict in _WORST if before and before.startswith(verdict)]
    if not rank or _WORST.index(said.verdict) < _WORST.index(rank[0]):
        kernels[name] = str(said)


def _line(found: Found) -> str:
    said = Counter(text.partition(":")[0] for text in found.kernels.values())
    status = Counter(one["status"] for one in found.mutants)
    return f"{found.program}: {dict(said)} mutants {dict(status)} {found.problem} {found.seconds} s"


def summary(rows: Sequence[Mapping[str, Any]], kernels: int) -> str:
    """The two tables."""
    best: dict[tuple[str, str], str] = {}
    for row in rows:
        file = row["program"].partition("-")[0]
        for name, text in row["kernels"].items():
            known = best.get((file, name), "")
            if not known or known.startswith(ByAlgebra.EQUAL):
                best[file, name] = text
    said = Counter(text.partition(":")[0] for text in best.values())
    examined = len(best)
    lines = [
        f"Of {kernels} kernels in llm.c's dev/cuda {examined} are launched by the programs "
        f"shown: {said[ByAlgebra.EQUAL]} are equal to their port by algebra, "
        f"{said[ByAlgebra.DIFFERENT]} differ, of {said[ByAlgebra.UNKNOWN]} it cannot be said.",
        "",
        "| kernel | what algebra says |",
        "|---|---|",
    ]
    others = {k: text for k, text in sorted(best.items()) if not text.startswith(ByAlgebra.EQUAL)}
    lines += [f"| `{name}` ({file}) | {text} |" for (file, name), text in others.items()]
    lines += ["| all others | equal by algebra |", ""]
    kinds = ("term", "factor", "accumulation")
    lines += ["| dropped | mutants run | found | not told | missed |", "|---|---|---|---|---|"]
    mutants = [one for row in rows for one in row["mutants"] if one["status"] != "not reached"]
    for kind in kinds:
        own = Counter(one["status"] for one in mutants if one["kind"] == kind)
        cells = [own.total(), own["found"], own["not told"], own["missed"]]
        lines.append(f"| {kind} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    known = ("llmc", "revision", "seed", "mutants", "programs", "work", "limit_s", "run_s", "page")
    given = _script.words(known, __doc__, ("llmc",))
    checkout = Path(given["llmc"])
    source = checkout / "dev" / "cuda"
    wanted = [name for name in given.get("programs", "").split(",") if name]
    programs = [p for p in PROGRAMS if not p.absent and (not wanted or p.file in wanted)]
    work = Path(given.get("work", "reports/port-algebra")).absolute()
    study = Study(
        source,
        work,
        int(given.get("seed", "45")),
        int(given.get("mutants", "2")),
        replace(
            ProofLimits(), ring=True, record_bytes=192 << 20, run_s=float(given.get("run_s", "60"))
        ),
        time.monotonic() + float(given.get("limit_s", "3000")),
    )
    count = sum(file.read_text().count("__global__ void") for file in source.glob("*.cu"))
    rows: list[dict[str, Any]] = []
    document = {
        "machine": host.machine(),
        "llmc": given.get("revision") or commit(checkout),
        "seed": study.seed,
        "mutants": study.most,
        "kernels": count,
        "rows": rows,
    }
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        for done in as_completed([pool.submit(study.of, program) for program in programs]):
            rows.append(asdict(done.result()))
            rows.sort(key=lambda row: row["program"])
            if not wanted:
                _script.write(RESULT, document)
    table = summary(rows, count)
    print(table)
    if given.get("page") == "true":
        _script.show_on_page(PAGE, TABLE, table)


if __name__ == "__main__":
    main()
