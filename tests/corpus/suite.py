"""The corpus in two heaps: ``cheats/``, none of which may pass, and ``honest/``, all of which must.

Each file is a kernel for the cpu backend. It opens with lines of ``// key: value`` or
``# key: value``:

    mechanism   what the kernel does, in one sentence
    op          the operator that it claims to compute
    entry       the function to call, the op's name unless told
    style       ``dps`` or ``return``; C++ takes its outputs, Python returns them unless told
    expect      of a cheat: the verdicts that count as caught, ``wrong | crashed``; ``defeated``
                where it passes and is no faster for it than the framework, which does the work
    says        of a cheat: words of which the verdict's detail must have one, ``off | finite``
    torch_ops   the guard's policy, ``forbid`` unless told
    workloads   the sets that it is judged on, ``ci`` unless told
    build_s     seconds that its build may take, 30 unless told
    run_s       seconds that a call may take, 30 unless told
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, cast
from unittest.mock import patch

from portkern import guard, ops, registry, sandbox, target, timing
from portkern.building import Built, Failure, Limits
from portkern.candidate import Candidate, Style
from portkern.cells import host_targets
from portkern.evaluate import Options, Result
from portkern.jail import Policy, limits
from portkern.record import Verdict
from portkern.testing import judge as judge_candidate
from portkern.timing import Plan

HEAPS = Path(__file__).parent
#: What a bomb may reach: enough for torch and a compiler, little for the machine.
SMALL = limits.Limits(memory_bytes=3 << 30, file_bytes=64 << 20, tasks=256)
SCRATCH_BYTES = 128 << 20
LIMIT_S, LOAD_S = "30", 30.0
DEFEATED = "defeated"
#: A result that is remembered takes a tenth of the time or less.
NO_FASTER = 2.0
_COMMENT = {".cpp": "//", ".py": "#"}
_KEYS = ("mechanism", "op", "entry", "style", "expect", "says", "torch_ops", "workloads",
         "build_s", "run_s")  # fmt: skip

Heap = Literal["cheats", "honest"]


@dataclass(frozen=True)
class Case:
    """One kernel, and how it must end: ``expect`` holds the verdicts, ``says`` the words."""

    path: Path
    mechanism: str
    op: str
    entry: str
    style: Style
    expect: frozenset[Verdict]
    defeated: bool
    says: tuple[str, ...]
    policy: guard.Policy
    workloads: tuple[str, ...]
    build_s: float
    run_s: float

    @property
    def name(self) -> str:
        """Its file: several languages may show one mechanism."""
        return self.path.name

    @classmethod
    def parse(cls, path: Path) -> Case:
        header = _header(path)
        cheat = path.parent.name == "cheats"
        expected = _words(header.get("expect", "passed"))
        unknown = header.keys() - set(_KEYS)
        needed = {"mechanism", "op", *(("expect",) if cheat else ())}
        needed |= {"says"} if cheat and expected != [DEFEATED] else set()
        missing = needed - header.keys()
        if unknown or missing:
            raise ValueError(f"{path.name}: unknown {sorted(unknown)}, missing {sorted(missing)}")
        return cls(
            path=path, mechanism=header["mechanism"], op=header["op"],
            entry=header.get("entry", header["op"]),
            style=cast(Style, header.get("style", "dps" if path.suffix == ".cpp" else "return")),
            expect=frozenset(Verdict(one) for one in expected if one != DEFEATED),
            defeated=DEFEATED in expected,
            says=tuple(_words(header.get("says", ""))),
            policy=guard.Policy(guard.torch_ops(header.get("torch_ops", "forbid"))),
            workloads=tuple(header.get("workloads", "ci").split()),
            build_s=float(header.get("build_s", LIMIT_S)),
            run_s=float(header.get("run_s", LIMIT_S)),
        )  # fmt: skip


@dataclass(frozen=True)
class Ending:
    """The first verdict that is not ``passed``, or that one, with its detail."""

    verdict: Verdict
    detail: str = ""
    speedup: float = 0.0  # the largest of a passed one

    def meets(self, case: Case) -> bool:
        if case.defeated and self.verdict is Verdict.PASSED:
            return self.speedup < NO_FASTER
        told = not case.says or any(word in self.detail for word in case.says)
        return self.verdict in case.expect and told

    def __str__(self) -> str:
        first = next(iter(self.detail.strip().splitlines()), "")
        return f"{self.verdict}: {first}" if first else str(self.verdict)


def _header(path: Path) -> dict[str, str]:
    header: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(rf"{_COMMENT[path.suffix]} ([a-z_]+): (.+)", line)
        if found is None:
            break
        header[found[1]] = found[2]
    return header


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(" | ") if word.strip()]


@cache
def cases(heap: Heap) -> tuple[Case, ...]:
    """All of a heap, by name."""
    files = [path for path in (HEAPS / heap).iterdir() if path.suffix in _COMMENT]
    return tuple(map(Case.parse, sorted(files)))


def judge(case: Case, folder: Path) -> Ending:
    """What the evaluator says of the case on this machine. The guard has the last word, not the
    first: what it would refuse is run all the same, to see what the judge makes of it."""
    language = registry.load("cpu").languages[case.path.suffix]
    source = case.path.read_text(encoding="utf-8")
    candidate = Candidate(
        case.op, "cpu", language, source, case.entry, author="corpus", style=case.style
    )
    ending = _run(case, candidate, folder)
    refused = guard.rejection(guard.inspect(candidate, case.policy))
    if ending.verdict is Verdict.PASSED and refused:
        return Ending(Verdict.REJECTED, refused)
    return ending


def _run(case: Case, candidate: Candidate, folder: Path) -> Ending:
    """With little room for bombs."""
    op, backend = ops.load(case.op), registry.load("cpu")
    within = Limits(build_s=case.build_s, load_s=LOAD_S, run_s=case.run_s)
    options = Options(within, Plan(rounds=6, budget_s=0.0))
    workloads = [workload for which in case.workloads for workload in op.workloads[which]]
    policy = partial(Policy, limits=SMALL, scratch_bytes=SCRATCH_BYTES)
    with patch.object(sandbox, "Policy", policy):
        results = judge_candidate(
            candidate, op, backend, target.load(host_targets()[0]), workloads,
            folder=folder, options=options, torch_ops=case.policy.torch_ops,
        )  # fmt: skip
    if isinstance(results, Built):
        assert isinstance(results.outcome, Failure), results
        return Ending(results.outcome.verdict, str(results.outcome))
    failed = [one for one in results if one.verdict is not Verdict.PASSED]
    if failed:
        return Ending(failed[0].verdict, failed[0].detail)
    return Ending(Verdict.PASSED, speedup=max(map(_speedup, results)))


def _speedup(result: Result) -> float:
    assert result.samples is not None
    eager = result.baselines["eager"]
    return timing.speedup(result.samples.values, eager.values).value


def close() -> None:
    sandbox.close_servers()
