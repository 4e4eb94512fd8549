"""Runs the executor on a case of the seeded-bug suite."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from portkern.errors import BuildError
from portkern.simt.diagnostics import Severity
from portkern.simt.execute import build, program
from portkern.simt.execute.build import UnmodelledSource
from portkern.simt.execute.options import ExecutorOptions, Mode
from portkern.spec import target

from .suite import Case, Seen

LIMIT_S = 2.0
CHECKED = ExecutorOptions(
    races=True, bounds=True, uninitialised=True, alignment=True, limit_s=LIMIT_S, widen=True
)
#: A fair schedule and an unfair one; races that both miss are the checked build's.
FAST = (
    ExecutorOptions(limit_s=LIMIT_S, widen=True),
    ExecutorOptions(order="priority", seed=2, limit_s=LIMIT_S, widen=True),
)


@dataclass(frozen=True)
class Verdict:
    """``seen`` of all runs together; ``words`` are the findings as a reader would see them."""

    seen: Seen
    words: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.seen.refused and not self.seen.codes and self.seen.status == 0


def evaluate(case: Case, width: int, folder: Path, *, bug: bool) -> Verdict:
    """Build the mutant or its twin in both modes, and run it at ``width``.

    CUDA source is compiled once for all widths, as ``folder`` then already holds it.
    """
    codes: set[str] = set()
    words: dict[str, None] = {}
    status: int | None = 0
    modes: list[Mode] = ["fast", "check"]
    where = target.load(case.target(width))
    compiled_for = where if case.language == "hip" else target.load(case.target(32))
    for mode in modes:
        version = "bug" if bug else "twin"
        out = folder / f"{case.name}-{compiled_for.name}-{mode}-{version}"
        try:
            if not out.exists():
                build.build_program(
                    case.path,
                    out,
                    build.CompileOptions(
                        target=compiled_for,
                        language=case.language,
                        mode=mode,
                        defines=["BUG"] if bug else [],
                        search=[case.path.parent],
                    ),
                )
        except BuildError as error:
            found = error.diagnostics if isinstance(error, UnmodelledSource) else ()
            refused = frozenset(one.code for one in found)
            return Verdict(Seen(True, refused), (str(error), error.log[:400]))
        for how in FAST if mode == "fast" else (CHECKED,):
            how = replace(how, widen="strict" not in case.checks)
            ended = program.run(
                out, how, target=where, language=case.language, warp=width, timeout_s=30
            )
            codes |= {
                finding.code for finding in ended.findings if finding.severity is not Severity.NOTE
            }
            words |= dict.fromkeys(map(str, ended.findings))
            status = status or ended.status
    return Verdict(Seen(False, frozenset(codes), status), tuple(words))
