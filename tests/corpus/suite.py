"""The corpus in two heaps: ``cheats/``, none of which may pass, and ``honest/``, all of which must.
``gpu/`` has two of the same names, for what shows on a GPU alone.

Each file is a kernel. It opens with lines of ``// key: value`` or ``# key: value``:

    mechanism   what the kernel does, in one sentence
    backend     ``cpu`` unless told
    op          the operator that it claims to compute
    entry       the function to call, the op's name unless told
    style       ``dps`` or ``return``; kernels take their outputs, Numba's return them unless told
    expect      of a cheat: the verdicts that count as caught, ``wrong | crashed``; ``defeated``
                where it passes and is not faster for it than the framework, which does the work
    says        of a cheat: words of which the verdict's detail must have one, ``off | finite``;
                ``times`` stands for those of every rule that compares times
    torch_ops   the guard's policy, ``forbid`` unless told
    workloads   the sets that it is evaluated on, ``ci`` unless told
    build_s     seconds that its build may take, 30 unless told
    run_s       seconds that a call may take, 30 unless told
    emulator    the verdicts that it may end with where a GPU is emulated, on ``ci`` alone; as on
                the hardware unless told, and ``none`` if it is only built there
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, cast
from unittest.mock import patch

from portkern import guard, ops
from portkern.cells.selection import LOOKED_FOR, default_target
from portkern.errors import BackendUnavailable
from portkern.evaluator import statistics
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest, Built, Failure, StageLimits, build_all
from portkern.evaluator.result import Result
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.records.record import Verdict
from portkern.redteam.attack import COMMENT, DEFEATED, alternatives, header, style_of
from portkern.sandbox import session
from portkern.sandbox.jail import JailPolicy, limits
from portkern.spec import registry, target
from portkern.spec.backend import Build, Missing, Ready, Venue
from portkern.spec.candidate import Candidate, Style
from portkern.testing import evaluate as evaluate_candidate

HEAPS = Path(__file__).parent
#: What a bomb may reach: enough for torch and a compiler, little for the machine.
SMALL = limits.ProcessLimits(memory_bytes=3 << 30, file_bytes=64 << 20, tasks=256)
SCRATCH_BYTES = 128 << 20
#: A GPU's driver takes memory of the host, and an emulator of one takes a stack per thread.
LARGE = replace(limits.ProcessLimits.of_this_machine(), memory_bytes=16 << 30, file_bytes=64 << 20)
#: Words of the rules that compare times. Which of them sees a false time first depends on how the
#: threads of kernel and evaluator were scheduled.
TIMES = (
    "in a timed call",
    "in rounds of",
    "in the mean",
    "keeps a processor busy",
    "more by the evaluator's",
    "were made",
)
LIMIT_S, LOAD_S = "30", 30.0
#: A result that is remembered takes a tenth of the time or less.
NO_FASTER = 2.0
_KEYS = (
    "mechanism",
    "backend",
    "op",
    "entry",
    "style",
    "expect",
    "says",
    "torch_ops",
    "workloads",
    "build_s",
    "run_s",
    "emulator",
)

Heap = Literal["cheats", "honest"]
Device = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Case:
    """One kernel, and how it must end: ``expect`` holds the verdicts, ``says`` the words."""

    path: Path
    mechanism: str
    backend: str
    op: str
    entry: str
    style: Style
    expect: frozenset[Verdict]
    defeated: bool
    says: tuple[str, ...]
    policy: guard.GuardPolicy
    workloads: tuple[str, ...]
    build_s: float
    run_s: float
    emulator: frozenset[Verdict]

    @property
    def name(self) -> str:
        """Its file: several languages may show one mechanism."""
        return self.path.name

    @classmethod
    def parse(cls, path: Path) -> Case:
        said = header(path, path.read_text(encoding="utf-8"))
        cheat = path.parent.name == "cheats"
        expected = alternatives(said.get("expect", "passed"))
        unknown = said.keys() - set(_KEYS)
        needed = {"mechanism", "op", *(("expect",) if cheat else ())}
        needed |= {"says"} if cheat and expected != [DEFEATED] else set()
        missing = needed - said.keys()
        if unknown or missing:
            raise ValueError(f"{path.name}: unknown {sorted(unknown)}, missing {sorted(missing)}")
        backend = said.get("backend", "cpu")
        emulator = alternatives(said["emulator"]) if "emulator" in said else expected
        return cls(
            path=path,
            mechanism=said["mechanism"],
            backend=backend,
            op=said["op"],
            entry=said.get("entry", said["op"]),
            style=style_of(path, said),
            expect=frozenset(Verdict(one) for one in expected if one != DEFEATED),
            defeated=DEFEATED in expected,
            says=tuple(_reasons(said.get("says", ""))),
            policy=guard.GuardPolicy(guard.torch_ops(said.get("torch_ops", "forbid"))),
            workloads=tuple(said.get("workloads", "ci").split()),
            build_s=float(said.get("build_s", LIMIT_S)),
            run_s=float(said.get("run_s", LIMIT_S)),
            emulator=frozenset(Verdict(one) for one in emulator if one not in ("none", DEFEATED)),
        )

    @property
    def caught_by(self) -> tuple[frozenset[Verdict], tuple[str, ...]]:
        """Cheats that are caught by the same mechanism share it."""
        return self.expect, self.says

    @property
    def candidate(self) -> Candidate:
        language = registry.load(self.backend).languages[self.path.suffix]
        source = self.path.read_text(encoding="utf-8")
        return Candidate(
            self.op, self.backend, language, source, self.entry, author="corpus", style=self.style
        )


@dataclass(frozen=True)
class Ending:
    """The first verdict that is not ``passed``, or that one, with its detail."""

    verdict: Verdict
    detail: str = ""
    speedup: float = 0.0  # the largest of a passed one

    def meets(self, case: Case, *, emulated: bool = False) -> bool:
        """Whether the ending is the expected one; in an emulator for any reason, as its words are
        others."""
        if emulated:
            return self.verdict in case.emulator
        if case.defeated and self.verdict is Verdict.PASSED:
            return self.speedup < NO_FASTER
        told = not case.says or any(word in self.detail for word in case.says)
        return self.verdict in case.expect and told

    def __str__(self) -> str:
        first = next(iter(self.detail.strip().splitlines()), "")
        return f"{self.verdict}: {first}" if first else str(self.verdict)


def _reasons(told: str) -> list[str]:
    return [said for word in alternatives(told) for said in (TIMES if word == "times" else (word,))]


@cache
def cases(heap: Heap, device: Device = "cpu") -> tuple[Case, ...]:
    """All of a heap, by name."""
    folder = HEAPS / heap if device == "cpu" else HEAPS / device / heap
    files = [path for path in folder.iterdir() if path.suffix in COMMENT]
    return tuple(map(Case.parse, sorted(files)))


def where(backend: str) -> tuple[target.Target, Venue] | Missing:
    """The target and the venue of this machine that a backend's cases are evaluated on."""
    loaded = registry.load(backend)
    try:
        chosen = default_target(loaded)
    except BackendUnavailable as error:
        return Missing(str(error))
    ready, venue = loaded.probe(chosen), loaded.venues(chosen).best
    if isinstance(ready, Missing) or isinstance(venue, Missing):
        return ready if isinstance(ready, Missing) else cast(Missing, venue)
    return chosen, venue


def evaluate(case: Case, folder: Path) -> Ending:
    """Runs the evaluator on the case on this machine. The guard has the last word, not the first:
    what it would refuse is run all the same, to see what the evaluator makes of it."""
    ending = _run(case, folder)
    refused = guard.rejection(guard.inspect(case.candidate, case.policy))
    if ending.verdict is Verdict.PASSED and refused:
        return Ending(Verdict.REJECTED, refused)
    return ending


def build(case: Case, folder: Path) -> Built:
    """Builds the case for its target alone, where nothing runs."""
    backend, op = registry.load(case.backend), ops.load(case.op)
    chosen, _ = _here(case)
    ready = backend.probe(chosen)
    assert isinstance(ready, Ready), ready
    sizes = op.workloads["ci"][0]
    request = Build(
        case.candidate,
        op.signature,
        "float32",
        chosen,
        sizes.dims,
        op.signature.scalar_values(sizes.scalars),
        runnable=False,
    )
    within = StageLimits(build_s=case.build_s)
    [built] = build_all(
        [BuildRequest(backend, request)],
        [ready.toolchain],
        limits=within,
        cache=ArtifactCache(folder),
    )
    return built


def _here(case: Case) -> tuple[target.Target, Venue]:
    found = where(case.backend)
    assert not isinstance(found, Missing), found
    return found


def _run(case: Case, folder: Path) -> Ending:
    """Evaluates the case with little room for bombs."""
    op, (chosen, venue) = ops.load(case.op), _here(case)
    within = StageLimits(build_s=case.build_s, load_s=LOAD_S, run_s=case.run_s)
    options = TrialOptions(within, TimingPlan(rounds=6, budget_s=0.0))
    sets = case.workloads if venue.kind == "hardware" else ("ci",)
    workloads = [workload for which in sets for workload in op.workloads[which]]
    policy = partial(
        JailPolicy, limits=LARGE if chosen.is_gpu else SMALL, scratch_bytes=SCRATCH_BYTES
    )
    with patch.object(session, "JailPolicy", policy):
        results = evaluate_candidate(
            case.candidate,
            op,
            registry.load(case.backend),
            chosen,
            workloads,
            folder=folder,
            options=options,
            torch_ops=case.policy.torch_ops,
            sanitize=LOOKED_FOR,
        )
    if isinstance(results, Built):
        assert isinstance(results.outcome, Failure), results
        return Ending(results.outcome.verdict, str(results.outcome))
    failed = [result for result in results if result.verdict is not Verdict.PASSED]
    if failed:
        return Ending(failed[0].verdict, failed[0].detail)
    return Ending(Verdict.PASSED, speedup=max(map(_speedup, results)))


def _speedup(result: Result) -> float:
    if result.samples is None:  # emulated
        return 0.0
    eager = result.baselines["eager"]
    return statistics.speedup(result.samples.values, eager.values).value


def close() -> None:
    session.close_servers()
