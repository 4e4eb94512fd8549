"""Every seeded bug is caught under its code, and no correct twin is accused of anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from portkern.simt import toolbox

from .simt.suite import Case, cases
from .simt.verdicts import judge

pytestmark = pytest.mark.skipif(
    not isinstance(toolbox.find(), toolbox.Toolbox), reason=str(toolbox.find())
)


def _name(case: Case) -> str:
    return case.name


#: What the executor has no checker for yet; strict, so that the first one that works is noticed.
NOT_YET = {
}


def _mutants() -> list[Any]:
    return [
        pytest.param(
            case, id=case.name,
            marks=[pytest.mark.xfail(reason=NOT_YET[case.name], strict=True)]
            if case.name in NOT_YET else [],
        ) for case in cases()
    ]  # fmt: skip


@pytest.mark.parametrize("case", _mutants())
def test_the_mutant_is_caught(case: Case, tmp_path: Path) -> None:
    for width in case.widths:
        verdict = judge(case, width, tmp_path, bug=True)
        assert case.caught(verdict.seen), (width, case.what, verdict)


@pytest.mark.parametrize("case", cases(), ids=_name)
def test_the_correct_twin_is_left_in_peace(case: Case, tmp_path: Path) -> None:
    for width in case.twin_widths:
        verdict = judge(case, width, tmp_path, bug=False)
        assert verdict.clean, (width, case.what, verdict)
